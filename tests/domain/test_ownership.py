"""Hand-over of segments: never two owners, an abandoned one harms nobody, and none waits for ever."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned
from scalable.domain.layout import Layout
from scalable.domain.ownership import Ownership, rebalance
from scalable.domain.subscriptions import BucketKey, assignable, parents_owners
from tests.domain.test_layout_properties import random_merge, random_split
from tests.domain.test_subscriptions import fewest_moves

HAND_OVER_MS = 10_000
Ownerships = dict[int, Ownership]


def settle(before: Mapping[int, Ownership], segments: int, consumers: str, now_ms: int = 0) -> Ownerships:
    return rebalance(before, range(segments), list(consumers), now_ms=now_ms, hand_over_ms=HAND_OVER_MS)


def owners(ownerships: Mapping[int, Ownership]) -> dict[int, str | None]:
    return {key: known.owner for key, known in ownerships.items()}


def deadlines(ownerships: Mapping[int, Ownership]) -> set[int]:
    return {
        known.release_deadline_ms for known in ownerships.values() if known.release_deadline_ms is not None
    }


def test_the_first_owner_starts_at_once_under_the_first_generation() -> None:
    assert settle({}, 2, "a") == {0: Ownership("a", generation=1), 1: Ownership("a", generation=1)}


def test_a_joiner_waits_until_the_holder_releases() -> None:
    held = settle({}, 2, "a")
    asked = settle(held, 2, "ab", now_ms=500)
    assert asked == {0: held[0], 1: Ownership("a", "b", 1, 500 + HAND_OVER_MS)}
    released = asked[1].released(segment_id=1, consumer="a", generation=1)
    assert released == Ownership("b", generation=2)


def test_a_holder_that_does_not_release_loses_the_segment_at_the_deadline() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert asked[1].release_deadline_ms == HAND_OVER_MS
    assert settle(asked, 2, "ab", now_ms=HAND_OVER_MS - 1) == asked
    assert settle(asked, 2, "ab", now_ms=HAND_OVER_MS)[1] == Ownership("b", generation=2)
    assert asked[1].past_deadline(HAND_OVER_MS - 1) == asked[1]
    assert asked[1].past_deadline(HAND_OVER_MS) == Ownership("b", generation=2)


def test_a_leaver_hands_over_at_once() -> None:
    held = settle({}, 2, "ab")
    assert settle(held, 2, "a")[1] == Ownership("a", generation=2)


def test_an_abandoned_hand_over_returns_to_the_holder_and_goes_to_nobody_else() -> None:
    """A holds; B joins and leaves before A releases; C joins. At each step exactly one may acknowledge."""
    held = settle({}, 2, "a")
    asked = settle(held, 2, "ab")
    abandoned = settle(asked, 2, "a", now_ms=1)
    assert abandoned == held
    anew = settle(abandoned, 2, "ac", now_ms=2)
    assert anew[1] == Ownership("a", "c", 1, 2 + HAND_OVER_MS)
    assert [known.owner for state in (held, asked, abandoned, anew) for known in state.values()] == ["a"] * 8


def test_a_release_that_crosses_the_end_of_its_hand_over_changes_nothing() -> None:
    held = settle({}, 1, "a")[0]
    assert held.released(segment_id=0, consumer="a", generation=1) == held


def test_a_release_by_a_former_owner_is_refused_by_name() -> None:
    passed_on = Ownership("b", generation=2)
    with pytest.raises(GenerationSuperseded) as caught:
        passed_on.released(segment_id=4, consumer="a", generation=1)
    assert (caught.value.segment_id, caught.value.generation, caught.value.current_generation) == (4, 1, 2)


@pytest.mark.parametrize(("consumer", "generation"), [("b", 1), ("a", 2), ("nobody", 1)])
def test_only_the_owner_releases(consumer: str, generation: int) -> None:
    with pytest.raises(SegmentNotOwned):
        Ownership("a", "b", 1, 99).released(segment_id=0, consumer=consumer, generation=generation)


def test_joins_cannot_postpone_a_release_for_ever() -> None:
    state = settle(settle({}, 2, "b"), 2, "bc")
    (deadline_ms,) = deadlines(state)
    for now_ms in range(1_000, 9_000, 1_000):
        state = settle(state, 2, "ab" if now_ms % 2_000 else "bc", now_ms=now_ms)
        assert deadlines(state) == {deadline_ms}


def test_a_hand_over_to_one_who_left_is_not_carried_out_at_the_deadline() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "a", now_ms=HAND_OVER_MS)[1] == Ownership("a", generation=1)


def test_a_late_hand_over_to_one_who_left_goes_to_another_at_once() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "ac", now_ms=HAND_OVER_MS)[1] == Ownership("c", generation=2)


def test_when_holder_and_next_owner_are_both_gone_another_starts_at_once() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "c") == {0: Ownership("c", generation=2), 1: Ownership("c", generation=2)}


def test_the_next_owner_starts_at_once_when_the_holder_leaves() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "b")[1] == Ownership("b", generation=2)


def test_a_drained_segment_is_owned_by_nobody_and_opened_again_under_a_higher_generation() -> None:
    held = settle({}, 2, "a")
    drained = settle(held, 1, "a")
    assert drained[1] == Ownership(generation=1)
    assert settle(drained, 2, "a")[1] == Ownership("a", generation=2)


def test_without_consumers_nobody_owns_and_generations_stay() -> None:
    assert settle(settle({}, 1, "a"), 1, "") == {0: Ownership(generation=1)}


def test_a_segment_on_its_way_is_what_moves_when_a_third_joins() -> None:
    held = settle({}, 6, "a") | {4: Ownership("b", generation=1), 5: Ownership("b", generation=1)}
    asked = settle(held, 6, "ab")
    third = settle(asked, 6, "abc")
    assert owners(third) == owners(held)
    assert {key: known.next_owner for key, known in third.items() if known.in_hand_over} == {2: "c", 3: "c"}


class World:
    """A topic with one subscription whose consumers join, leave, drop, release and drain at random.

    It keeps its own book on who may acknowledge what, from generations alone, as a segment store does.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.layout = Layout.initial(3, 0)
        self.drained: set[int] = set()
        self.consumers: list[str] = []
        self.joined = 0
        self.ownerships: Ownerships = {}
        self.granted: dict[tuple[int, int], str] = {}

    def step(self) -> None:
        self.now_ms += self.random.randint(0, HAND_OVER_MS // 3)
        self.random.choice(
            [
                self.join,
                self.leave,
                self.release,
                self.release,
                self.reshape,
                self.drain,
                self.drain,
                self.wait,
            ]
        )()
        self.settle()

    def join(self) -> None:
        if len(self.consumers) < 7:
            self.joined += 1
            self.consumers.append(f"c{self.joined % 9}-{self.joined}")

    def leave(self) -> None:
        if self.consumers:
            self.consumers.remove(self.random.choice(self.consumers))

    def wait(self) -> None:
        self.now_ms += HAND_OVER_MS

    def release(self) -> None:
        asked = [key for key, known in self.ownerships.items() if known.in_hand_over]
        if asked:
            key = self.random.choice(asked)
            known = self.ownerships[key]
            assert known.owner is not None
            self.write(key, known.released(segment_id=key, consumer=known.owner, generation=known.generation))

    def reshape(self) -> None:
        choose = random_split if len(self.layout.active) < 10 and self.random.random() < 0.5 else random_merge
        plan = choose(self.layout, self.random)
        if plan is not None:
            self.layout = self.layout.apply(plan, self.now_ms)

    def drain(self) -> None:
        open_sealed = [key for key in self.assignable() if not self.layout.get(key).is_active]
        if open_sealed:
            self.drained.add(self.random.choice(open_sealed))

    def assignable(self) -> tuple[int, ...]:
        return assignable(self.layout, self.drained)

    def settle(self) -> None:
        before, open_ids = self.ownerships, self.assignable()
        held = {BucketKey(key): known.owner for key, known in before.items() if known.owner is not None}
        found = parents_owners(self.layout, [BucketKey(key) for key in open_ids], held)
        preferred = {key.segment_id: name for key, name in found.items()}
        after = self.rebalanced(preferred)
        self.check(before, after, open_ids)
        for key, known in after.items():
            self.write(key, known)
        assert self.rebalanced(preferred) == self.ownerships

    def rebalanced(self, preferred: dict[int, str]) -> Ownerships:
        return rebalance(
            self.ownerships,
            self.assignable(),
            self.consumers,
            preferred=preferred,
            now_ms=self.now_ms,
            hand_over_ms=HAND_OVER_MS,
        )

    def write(self, key: int, known: Ownership) -> None:
        """Note who may acknowledge under a generation: never two, and a generation never goes back."""
        if known.owner is not None:
            holder = self.granted.setdefault((key, known.generation), known.owner)
            assert holder == known.owner, "two owners under one generation"
        assert known.generation >= self.ownerships.get(key, Ownership()).generation
        self.ownerships[key] = known

    def check(self, before: Ownerships, after: Ownerships, open_ids: tuple[int, ...]) -> None:
        due = {key: self.when_due(known) for key, known in before.items()}
        held = {
            key: known.owner for key, known in due.items() if known.owner in self.consumers and known.owner
        }
        readable = after if self.consumers else {}
        assert all(known.owner is None for key, known in after.items() if key not in open_ids or not readable)
        for key in set(open_ids) & set(held):
            had_its_time = (before[key].release_deadline_ms or self.now_ms + 1) <= self.now_ms
            assert after[key].owner == held[key] or had_its_time, "a living holder lost a segment unasked"
        if readable:
            self.check_balance(held, {key: after[key].next_owner or after[key].owner for key in open_ids})

    def check_balance(self, held: Mapping[int, str], goal: Mapping[int, str | None]) -> None:
        counts = Counter(goal.values())
        assert set(counts) <= set(self.consumers)
        assert (
            max(counts[name] for name in self.consumers) - min(counts[name] for name in self.consumers) <= 1
        )
        moved = sum(key in held and held[key] != owner for key, owner in goal.items())
        assert moved == fewest_moves(list(goal), self.consumers, held)

    def when_due(self, known: Ownership) -> Ownership:
        return known.past_deadline(self.now_ms) if known.next_owner in self.consumers else known


@pytest.mark.parametrize("seed", range(20))
def test_ten_thousand_random_steps_never_give_a_segment_two_owners(seed: int) -> None:
    world = World(seed)
    for _ in range(500):
        world.step()
    assert world.layout.epoch > 20
    assert len(world.drained) > 20
    assert max(known.generation for known in world.ownerships.values()) > 3
