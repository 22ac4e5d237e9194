"""Random steps through the services: rows and cursors always name one owner, and only it may acknowledge."""

from collections import Counter
from random import Random

import pytest
from pytest_django import Settings

from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned
from scalable.domain.operations import Outcome
from scalable.domain.subscriptions import BucketKey, assignable, units_of
from scalable.models import Assignment
from scalable.services import scaling, settling
from scalable.store import subscriptions as store
from tests.services.group import Group
from tests.topology import ACTOR, append_everywhere, drive, layout_of, make_topic

pytestmark = pytest.mark.django_db
NAMES = "abcd"
STEPS = 60


class Life:
    """A subscription whose consumers join, leave, release, drain and seek while the topic is reshaped."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.random, self.settings = Random(seed), settings
        self.key_shared = seed % 2 == 1
        self.topic = make_topic(segments=2)
        self.group = Group(self.topic, key_shared=self.key_shared)
        self.former: dict[BucketKey, int] = {}
        self.done: Counter[str] = Counter()

    def step(self, number: int) -> None:
        self.settings.SCALABLE_HANDOVER_SECONDS = self.random.choice([0, 100])
        act = (self.join, self.leave, self.release, self.reshape, self.drain, self.seek)[number % 6]
        act()
        self.done[act.__name__] += 1
        self.check()

    def join(self) -> None:
        self.group.join(self.random.choice(NAMES))

    def leave(self) -> None:
        if self.random.random() < 0.5:
            self.group.leave(self.random.choice(NAMES))

    def release(self) -> None:
        self.group.release_all(self.random.choice(NAMES))
        settling.force_releases()

    def reshape(self) -> None:
        append_everywhere(self.topic, "more")
        active = layout_of(self.topic).active
        if len(active) < 6:
            segment_id = self.random.choice(active).segment_id
            operation = scaling.request_split(name=self.topic.name, segment_id=segment_id, actor=ACTOR)
        else:
            pair = [segment.segment_id for segment in active[:2]]
            operation = scaling.request_merge(name=self.topic.name, segment_ids=pair, actor=ACTOR)
        assert drive(operation).outcome is Outcome.SUCCEEDED

    def drain(self) -> None:
        for key in self.group.bucket_owners():
            self.group.drain(key.segment_id, bucket=key.bucket)

    def seek(self) -> None:
        if self.random.random() < 0.4:
            segments = sorted(layout_of(self.topic).segments)
            self.group.seek(dict.fromkeys(self.random.sample(segments, 2), 0))

    def check(self) -> None:
        subscription_id = self.group.subscription_id
        layout, known = layout_of(self.topic), store.ownerships(subscription_id)
        keys = units_of(layout, assignable(layout, known.drained), key_shared=self.key_shared)
        consumers, owners = store.consumers(subscription_id), self.group.bucket_owners()
        assert set(owners) == (set(keys) if consumers else set())
        if consumers:
            goal = Counter(known.owned[key].next_owner or owners[key] for key in keys)
            assert max(goal[name] for name in consumers) - min(goal[name] for name in consumers) <= 1
        assert sum(len(self.group.view(name).segments) for name in NAMES) == len(owners)
        self.check_acknowledgements(known)

    def check_acknowledgements(self, known: store.Ownerships) -> None:
        """A generation that is over is refused by the cursor itself, the one that holds is taken."""
        for key, owned in known.owned.items():
            before = self.former.get(key, owned.generation)
            assert before <= owned.generation
            if before < owned.generation:
                with pytest.raises((GenerationSuperseded, SegmentNotOwned)):
                    self.group.acknowledge(key.segment_id, 0, generation=before, bucket=key.bucket)
            if owned.owner is not None:
                self.group.acknowledge(key.segment_id, 0, generation=owned.generation, bucket=key.bucket)
            self.former[key] = owned.generation


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_steps_leave_one_owner_each_in_the_database(seed: int, settings: Settings) -> None:
    life = Life(seed, settings)
    for number in range(STEPS):
        life.step(number)
    assert set(life.done.values()) == {STEPS // 6}
    assert len(layout_of(life.topic).segments) > 6
    assert Assignment.objects.filter(drained=True).exists()
