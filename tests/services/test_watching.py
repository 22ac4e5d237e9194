"""Reading what changed since an earlier state gives what reading everything gives."""

import random

import msgspec
import pytest
from django.db import transaction

from scalable.domain.errors import ScalableError
from scalable.domain.keyspace import MAX_PARTS
from scalable.domain.layout import Layout
from scalable.services import scaling, topics, watching
from scalable.services.watching import Topology
from scalable.store import topics as store
from tests.topology import make_topic

STEPS = 60


def reshaped(layout: Layout, dice: random.Random) -> Layout:
    """A random split, merge or prune; the same layout when what was diced is not allowed."""
    kind, active = dice.choice(["split", "merge", "prune"]), layout.active
    index = dice.randrange(len(active))
    try:
        if kind == "prune":
            return layout.prune(dice.choice(sorted(layout.segments)))
        if kind == "split":
            plan = layout.plan_split(active[index].segment_id)
        else:
            plan = layout.plan_merge([segment.segment_id for segment in active[index : index + 2]])
    except ScalableError:
        return layout
    return layout.reserve(plan).apply(plan, now_ms=1_700_000_000_000)


def read(incarnation: int, known: Topology | None = None, *, detail: bool = False) -> Topology:
    state = watching.topology(incarnation=incarnation, known=known, detail=detail)
    assert state is not None
    return state


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(4))
def test_what_changed_since_adds_up(seed: int) -> None:
    dice = random.Random(seed)
    topic = make_topic(segments=4)
    known = read(topic.incarnation)
    for _ in range(STEPS):
        for _ in range(dice.choice([1, 1, 1, 3])):  # a watcher may miss some states
            with transaction.atomic():
                locked = store.lock(topic.name)
                store.write_layout(locked, reshaped(locked.layout, dice))
                store.raise_revision(topic.incarnation)
        known = read(topic.incarnation, known)
        fresh = read(topic.incarnation)
        assert known == fresh
        assert list(known.segments) == list(fresh.segments)
    assert known.epoch > STEPS / 3


@pytest.mark.django_db(transaction=True)
def test_a_deleted_topic_has_no_state() -> None:
    topic = make_topic()
    known = read(topic.incarnation)
    topics.delete_topic(name=topic.name, actor="test")
    assert watching.topology(incarnation=topic.incarnation, known=known) is None
    assert watching.topology(incarnation=topic.incarnation, detail=True) is None


@pytest.mark.django_db(transaction=True)
def test_details_stay_small_whatever_the_operations_do() -> None:
    topic = make_topic(segments=1)
    boundaries = range(1, MAX_PARTS)
    scaling.request_split(name=topic.name, segment_id=0, boundaries=boundaries, actor="test")
    detail = read(topic.incarnation, detail=True).detail
    assert detail is not None
    assert len(msgspec.json.encode(detail)) < 10_000
