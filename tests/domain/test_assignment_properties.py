"""Ten thousand random steps in a subscription's life, with a book of its own on who may acknowledge what."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from scalable.domain.layout import Layout
from scalable.domain.ownership import Ownership, rebalance
from scalable.domain.subscriptions import BucketKey, assignable, parents_owners, units_of
from tests.domain.test_layout_properties import random_merge, random_split
from tests.domain.test_subscriptions import fewest_moves

HAND_OVER_MS = 10_000
GRACE_MS = 60_000
Ownerships = dict[BucketKey, Ownership]


class World:
    """A topic with one subscription whose consumers join, leave, drop, come back, release, drain and seek.

    It keeps its own book on who may acknowledge what, from generations alone, as a segment store does.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.key_shared = seed % 2 == 1
        self.now_ms = 0
        self.layout = Layout.initial(3, 0, bucket_budget=8)
        self.drained: set[int] = set()
        self.consumers: list[str] = []
        self.gone_at_ms: dict[str, int] = {}
        self.joined = 0
        self.ownerships: Ownerships = {}
        self.granted: dict[tuple[BucketKey, int], str] = {}
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        self.now_ms += self.random.randint(0, HAND_OVER_MS // 3)
        self.random.choice(
            [
                self.join,
                self.leave,
                self.drop,
                self.come_back,
                self.release,
                self.release,
                self.split,
                self.merge,
                self.rebucket,
                self.drain,
                self.drain,
                self.drain,
                self.seek,
                self.prune,
                self.wait,
            ]
        )()
        self.expire()
        self.settle()

    # Consumers.

    def join(self) -> None:
        if len(self.consumers) < 7:
            self.joined += 1
            self.consumers.append(f"c{self.joined % 9}-{self.joined}")
            self.done["join"] += 1

    def leave(self) -> None:
        if self.consumers:
            self.end(self.random.choice(self.consumers))
            self.done["leave"] += 1

    def drop(self) -> None:
        """Lose a connection; until the grace is over that changes nothing for anybody."""
        there = [name for name in self.consumers if name not in self.gone_at_ms]
        if there:
            self.gone_at_ms[self.random.choice(there)] = self.now_ms
            self.done["drop"] += 1

    def come_back(self) -> None:
        if self.gone_at_ms and self.random.random() < 0.3:
            del self.gone_at_ms[self.random.choice(sorted(self.gone_at_ms))]
            self.done["come back"] += 1

    def expire(self) -> None:
        for name, at_ms in list(self.gone_at_ms.items()):
            if self.now_ms - at_ms >= GRACE_MS:
                self.end(name)
                self.done["expire"] += 1

    def end(self, name: str) -> None:
        self.consumers.remove(name)
        self.gone_at_ms.pop(name, None)

    def wait(self) -> None:
        self.now_ms += HAND_OVER_MS

    def release(self) -> None:
        asked = sorted(key for key, known in self.ownerships.items() if known.in_hand_over)
        if asked:
            key = self.random.choice(asked)
            known = self.ownerships[key]
            assert known.owner is not None
            after = known.released(
                segment_id=key.segment_id, consumer=known.owner, generation=known.generation
            )
            self.write(key, after)
            self.done["release"] += 1

    # Segments.

    def split(self) -> None:
        self.apply(random_split(self.layout, self.random) if len(self.layout.active) < 10 else None)

    def merge(self) -> None:
        self.apply(random_merge(self.layout, self.random))

    def rebucket(self) -> None:
        segment = self.random.choice(self.layout.active)
        count = self.random.randint(1, 6)
        if count != segment.bucket_count:
            self.apply(self.layout.plan_rebucket(segment.segment_id, count))

    def apply(self, plan) -> None:  # type: ignore[no-untyped-def]
        if plan is not None:
            self.layout = self.layout.apply(plan, self.now_ms)
            self.done[plan.kind.value] += 1

    def prune(self) -> None:
        oldest = [key for key in sorted(self.drained) if key in self.layout.segments and self.is_oldest(key)]
        if oldest:
            self.layout = self.layout.prune(oldest[0])
            self.ownerships = {
                key: known for key, known in self.ownerships.items() if key.segment_id != oldest[0]
            }
            self.done["prune"] += 1

    def is_oldest(self, segment_id: int) -> bool:
        return not self.layout.segments[segment_id].parent_ids

    def drain(self) -> None:
        sealed = [key for key in assignable(self.layout, self.drained) if not self.layout.get(key).is_active]
        if sealed:
            self.drained.add(self.random.choice(sealed))
            self.done["drain"] += 1

    def seek(self) -> None:
        """Go back in some segments: what was delivered of them before must not be acknowledged any more."""
        if self.random.random() < 0.5:
            return
        moved = set(self.random.sample(sorted(self.layout.segments), min(3, len(self.layout.segments))))
        self.drained -= moved
        for key, known in list(self.ownerships.items()):
            if key.segment_id in moved:
                self.write(key, known.sought())
                assert self.ownerships[key].generation > known.generation
        self.done["seek"] += 1

    # Assignment.

    def keys(self) -> tuple[BucketKey, ...]:
        return units_of(self.layout, assignable(self.layout, self.drained), key_shared=self.key_shared)

    def settle(self) -> None:
        before, keys = dict(self.ownerships), self.keys()
        held = {key: known.owner for key, known in before.items() if known.owner is not None}
        preferred = parents_owners(self.layout, keys, held, key_shared=self.key_shared)
        after = self.rebalanced(keys, preferred)
        self.check(before, after, keys, preferred)
        for key, known in after.items():
            self.write(key, known)
        assert self.rebalanced(keys, preferred) == self.ownerships

    def rebalanced(self, keys: Sequence[BucketKey], preferred: Mapping[BucketKey, str]) -> Ownerships:
        shut = {key for key in self.ownerships if key.segment_id not in self.drained} - set(keys)
        return rebalance(
            self.ownerships,
            keys,
            self.consumers,
            shut=shut,
            preferred=preferred,
            now_ms=self.now_ms,
            hand_over_ms=HAND_OVER_MS,
        )

    def write(self, key: BucketKey, known: Ownership) -> None:
        """Note who may acknowledge under a generation: never two, and a generation never goes back."""
        if known.owner is not None:
            holder = self.granted.setdefault((key, known.generation), known.owner)
            assert holder == known.owner, "two owners under one generation"
        assert known.generation >= self.ownerships.get(key, Ownership()).generation
        self.ownerships[key] = known

    # The checker.

    def check(
        self,
        before: Ownerships,
        after: Ownerships,
        keys: Sequence[BucketKey],
        preferred: Mapping[BucketKey, str],
    ) -> None:
        due = {key: self.when_due(known) for key, known in before.items()}
        held = {
            key: known.owner for key, known in due.items() if known.owner in self.consumers and known.owner
        }
        self.check_closed(before, after, keys)
        for key in set(keys) & set(held):
            had_its_time = (before[key].release_deadline_ms or self.now_ms + 1) <= self.now_ms
            assert after[key].owner == held[key] or had_its_time, "a living holder lost a segment unasked"
        if self.consumers:
            goal = {key: after[key].next_owner or after[key].owner or "" for key in keys}
            self.check_balance(held, goal)
            self.check_preferences(held, goal, preferred)
            promised = {known.next_owner for known in before.values()} | set(preferred.values())
            if not set(held) & set(keys) and not promised & set(self.consumers):
                self.done["no history"] += 1
                names = sorted(self.consumers)
                assert goal == {key: names[turn % len(names)] for turn, key in enumerate(keys)}

    def check_closed(self, before: Ownerships, after: Ownerships, keys: Sequence[BucketKey]) -> None:
        """What may not be read has no owner, and what was shut again refuses its former one's late acks."""
        for key, known in after.items():
            if key not in keys or not self.consumers:
                assert known.owner is None
            if key not in keys and key.segment_id not in self.drained and before[key].owner is not None:
                assert known.generation > before[key].generation

    def check_balance(self, held: Mapping[BucketKey, str], goal: Mapping[BucketKey, str]) -> None:
        counts = Counter(goal.values())
        assert set(counts) <= set(self.consumers)
        assert max(counts[name] for name in self.consumers) - min(
            counts[name] for name in self.consumers
        ) in {0, 1}
        moved = sum(key in held and held[key] != owner for key, owner in goal.items())
        assert moved == fewest_moves(list(goal), self.consumers, held)

    def check_preferences(
        self,
        held: Mapping[BucketKey, str],
        goal: Mapping[BucketKey, str],
        preferred: Mapping[BucketKey, str],
    ) -> None:
        """Who is refused a child of what it read got nothing else instead that it was not preferred for."""
        refused = {
            wish
            for key, wish in preferred.items()
            if key not in held and wish in self.consumers and goal[key] != wish
        }
        on_the_way = {key for key, known in self.ownerships.items() if known.next_owner is not None}
        for key, owner in goal.items():
            if owner in refused and key not in held and key not in on_the_way:
                assert preferred.get(key) == owner

    def when_due(self, known: Ownership) -> Ownership:
        return known.past_deadline(self.now_ms) if known.next_owner in self.consumers else known


STEPS = {"join", "leave", "drop", "come back", "expire", "release", "drain", "seek", "prune", "no history"}
CHANGES = {"SPLIT", "MERGE", "REBUCKET"}


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]
)
def test_ten_thousand_random_steps_never_give_a_segment_two_owners(seed: int) -> None:
    world = World(seed)
    for _ in range(500):
        world.step()
    assert set(world.done) >= STEPS | CHANGES
    assert max(known.generation for known in world.ownerships.values()) > 3
