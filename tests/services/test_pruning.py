"""Sealed segments go when they are old enough and nobody needs them, and not a moment before."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections

from scalable.domain.errors import SegmentNotFound, SegmentStoreMissing
from scalable.domain.operations import OperationKind, Phase
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Assignment, LoadTile, Namespace, PrunedSegment, SegmentLoad
from scalable.segments.memory import MemorySegments
from scalable.segments.port import CursorBacklog, SegmentKey, SegmentPort
from scalable.segments.registry import use_port
from scalable.services import loads, messages, pruning, scaling, subscriptions, sweeping, topics, watching
from scalable.services.driver import Moment
from scalable.store import retention
from tests.services.ageing import (
    FOR_EVER,
    acknowledge,
    age,
    keep,
    kept,
    remembered,
    split,
    split_topic,
    subscribe,
)
from tests.services.group import Group
from tests.services.interruptions import crash, expire_lease, interrupted
from tests.services.mortal import Crash
from tests.topology import ACTOR, append, drive, make_topic, read_all, request, store_ids

pytestmark = pytest.mark.django_db(transaction=True)


def prune(topic: topics.TopicView) -> tuple[int, ...]:
    return pruning.prune_topic(incarnation=topic.incarnation)


# Age


def test_vector_81_a_retention_of_a_minute_counts_from_sealing(port: SegmentPort) -> None:
    topic = split_topic()
    keep(topic, 60)
    loads.report_loads(reporter="r", watermark_ms=1, loads=[])
    SegmentLoad.objects.create(
        topic_id=topic.incarnation,
        segment_id=0,
        msg_rate_in=1,
        bytes_rate_in=1,
        msg_rate_out=1,
        bytes_rate_out=1,
        modified_at="2026-01-01T00:00:00Z",
    )
    assert (prune(topic), kept(topic)) == ((), {0, 1, 2})
    age(topic, seconds=61)
    assert (prune(topic), kept(topic)) == ((0,), {1, 2})
    assert store_ids(topic) == {1, 2}
    assert not SegmentLoad.objects.filter(topic_id=topic.incarnation).exists()
    assert remembered(topic) == [(0, [], [1, 2])]


def test_vector_81_a_retention_of_minus_one_is_for_ever(port: SegmentPort) -> None:
    topic = split_topic()
    keep(topic, FOR_EVER)
    age(topic, seconds=10**8)
    assert (prune(topic), kept(topic)) == ((), {0, 1, 2})


@pytest.mark.parametrize("seconds", [None, 0])
def test_unset_and_zero_let_go_at_once(seconds: int | None) -> None:
    topic = split_topic()
    keep(topic, seconds)
    assert prune(topic) == (0,)


@pytest.mark.parametrize(("own", "pruned"), [(None, ()), (0, (0,))])
def test_the_namespace_rules_where_the_topic_says_nothing(own: int | None, pruned: tuple[int, ...]) -> None:
    Namespace.objects.filter(tenant="public", name="default").update(retention_seconds=FOR_EVER)
    topic = split_topic()
    keep(topic, own)
    assert prune(topic) == pruned


# Who needs it


def test_three_unread_messages_of_one_subscription_hold_a_segment(port: SegmentPort) -> None:
    topic = split_topic(messages=3)
    subscribe(topic, "done")
    acknowledge(topic, 3, cursor="done")
    subscribe(topic, "behind")
    assert prune(topic) == ()
    acknowledge(topic, 2, cursor="behind")
    assert (prune(topic), len(read_all(topic))) == ((), 3)
    acknowledge(topic, 3, cursor="behind")
    assert prune(topic) == (0,)


def test_a_deleted_subscription_holds_nothing(port: SegmentPort) -> None:
    topic = split_topic()
    subscribe(topic)
    assert prune(topic) == ()
    subscriptions.delete_subscription(name=topic.name, subscription="s")
    assert prune(topic) == (0,)


def test_every_entry_bucket_holds_its_segment(port: SegmentPort) -> None:
    topic = split_topic(messages=3)
    subscribe(topic, key_shared=True)
    key = SegmentKey(topic.incarnation, 0)
    names = sorted(cursor.subscription for cursor in port.cursors(key))
    assert len(names) > 1
    for name in names:
        assert prune(topic) == ()
        acknowledge(topic, 3, cursor=name)
    assert prune(topic) == (0,)


def test_a_hole_of_a_queue_holds_its_segment(port: SegmentPort) -> None:
    topic = split_topic(messages=3)
    subscribe(topic, kind=SubscriptionType.QUEUE)
    key = SegmentKey(topic.incarnation, 0)
    port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(0, 1), (2, 3)])
    assert prune(topic) == ()
    port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(1, 2)])
    assert prune(topic) == (0,)


@pytest.mark.parametrize(("holds", "before"), [(True, ()), (False, (0,))])
def test_a_checkpoint_group_holds_by_its_floor_unless_it_was_made_not_to(
    port: SegmentPort, holds: bool, before: tuple[int, ...]
) -> None:
    topic = split_topic(messages=3)
    subscribe(topic, kind=SubscriptionType.CHECKPOINT, holds_pruning=holds)
    assert prune(topic) == before
    if holds:
        acknowledge(topic, 3)
        assert prune(topic) == (0,)


# Which, and in which order


def test_a_chain_goes_at_once_and_leaves_its_history(port: SegmentPort) -> None:
    topic = split_topic()
    split(topic, 1)
    split(topic, 3)
    epoch = topics.get_topic(name=topic.name).epoch
    assert prune(topic) == (0, 1, 3)
    assert remembered(topic) == [(0, [], [1, 2]), (1, [0], [3, 4]), (3, [1], [5, 6])]
    assert topics.get_topic(name=topic.name).epoch == epoch + 3
    assert store_ids(topic) == kept(topic) == {2, 4, 5, 6}


def test_the_parents_of_what_is_pruned_later_are_remembered() -> None:
    topic = split_topic()
    assert prune(topic) == (0,)
    split(topic, 1)
    assert prune(topic) == (1,)
    assert remembered(topic) == [(0, [], [1, 2]), (1, [0], [3, 4])]


def test_a_kept_ancestor_keeps_its_descendants(port: SegmentPort) -> None:
    topic = split_topic(messages=3)
    split(topic, 1)
    subscribe(topic)
    assert prune(topic) == ()  # 1 is empty and sealed, but 0 still has messages
    acknowledge(topic, 3)
    assert prune(topic) == (0, 1)


def test_a_segment_of_an_unfinished_operation_waits(external: MemorySegments) -> None:
    topic = make_topic("busy", segments=1)
    operation = request(OperationKind.SPLIT, topic)
    with pytest.raises(Crash):
        interrupted(operation, Phase.COMMITTED, Moment.AFTER_RECORDING, crash)
    assert (prune(topic), kept(topic)) == ((), {0, 1, 2})
    expire_lease(operation)
    drive(operation)
    assert prune(topic) == (0,)


def test_a_sweep_is_bounded_and_comes_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNED_PER_SWEEP", 2)
    topic = split_topic()
    split(topic, 1)
    split(topic, 3)
    assert topic.incarnation in pruning.sweep_due_topics()
    assert kept(topic) == {2, 3, 4, 5, 6}
    assert pruning.sweep_due_topics() == [topic.incarnation]
    assert kept(topic) == {2, 4, 5, 6}
    assert topic.incarnation not in pruning.sweep_due_topics()


def test_a_topic_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemorySegments):
        broken = 0

        def backlogs(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorBacklog]:
            if incarnation == self.broken:
                raise OSError("out of reach")
            return super().backlogs(incarnation=incarnation, subscription=subscription)

    port = Failing()
    with use_port(port):
        broken, fine = split_topic("broken"), split_topic("fine")
        port.broken = broken.incarnation
        swept = pruning.sweep_due_topics()
    assert {broken.incarnation, fine.incarnation} <= set(swept)
    assert (kept(broken), kept(fine)) == ({0, 1, 2}, {1, 2})
    assert "out of reach" in caplog.text


# At the same time


def test_a_subscription_made_between_check_and_prune_is_not_robbed(port: SegmentPort) -> None:
    topic = split_topic()
    pruned = pruning.prune_topic(incarnation=topic.incarnation, probe=lambda: subscribe(topic))
    assert (pruned, kept(topic), len(read_all(topic))) == ((), {0, 1, 2}, 3)


def test_a_seek_back_between_check_and_prune_stops_it(port: SegmentPort) -> None:
    topic = split_topic()
    subscribe(topic)
    group = Group(topic)
    acknowledge(topic, 3)
    pruned = pruning.prune_topic(incarnation=topic.incarnation, probe=lambda: group.seek({0: 1}))
    assert (pruned, kept(topic)) == ((), {0, 1, 2})


def test_of_two_sweepers_one_prunes_and_none_fails(port: SegmentPort) -> None:
    topic = split_topic()
    barrier = Barrier(2, timeout=60)

    def sweep(_: int) -> tuple[int, ...]:
        try:
            return pruning.prune_topic(incarnation=topic.incarnation, probe=barrier.wait)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(sweep, range(2))) == [(), (0,)]
    assert PrunedSegment.objects.filter(topic_id=topic.incarnation).count() == 1
    assert topics.get_topic(name=topic.name).epoch == 2


def test_a_store_that_outlives_its_segment_is_swept(external: MemorySegments) -> None:
    class Stubborn(MemorySegments):
        def delete(self, key: SegmentKey) -> None:
            raise OSError("died before the store was deleted")

    stubborn = Stubborn()
    with use_port(stubborn):
        topic = split_topic()
        with pytest.raises(OSError, match="died"):
            prune(topic)
        assert kept(topic) == {1, 2}
        assert store_ids(topic) == {0, 1, 2}
    swept = MemorySegments()
    swept._stores = stubborn._stores
    with use_port(swept):
        orphans, _ = sweeping.sweep_stores()
        assert SegmentKey(topic.incarnation, 0) in orphans
        assert store_ids(topic) == {1, 2}


# What is left


def test_watchers_are_told_what_was_removed(port: SegmentPort) -> None:
    topic = split_topic()
    before = watching.topology(incarnation=topic.incarnation)
    assert before is not None
    prune(topic)
    after = watching.topology(incarnation=topic.incarnation, known=before)
    assert after is not None
    told = watching.delta(before, after)
    assert told.removed == [0]
    assert {segment.segmentId: segment.parentIds for segment in told.segments} == {1: [], 2: []}
    assert after.revision > before.revision
    assert after.epoch == before.epoch + 1


def test_owners_of_what_is_pruned_are_forgotten_and_the_rest_goes_on(port: SegmentPort) -> None:
    topic = make_topic("owned", segments=1)
    group = Group(topic)
    group.join("consumer")
    append(topic, 0, "message")
    drive(request(OperationKind.SPLIT, topic))
    assert set(group.owned("consumer")) == {0}
    group.drain(0)
    owned = group.owned("consumer")
    assert set(owned) == {1, 2}
    assert prune(topic) == (0,)
    assert group.owned("consumer") == owned
    assigned = Assignment.objects.filter(subscription_id=group.subscription_id)
    assert set(assigned.values_list("segment_id", flat=True)) == {1, 2}


def test_what_waited_for_a_segment_that_a_group_did_not_hold_opens(port: SegmentPort) -> None:
    topic = split_topic()
    subscribe(topic, kind=SubscriptionType.STREAM, holds_pruning=False)
    group = Group(topic)
    group.join("consumer")
    assert set(group.owned("consumer")) == {0}
    generation = group.subscription.generation
    assert prune(topic) == (0,)
    assert set(group.owned("consumer")) == {1, 2}
    assert group.subscription.generation > generation


def test_tiles_are_the_past_and_stay(port: SegmentPort) -> None:
    topic = split_topic()
    minute = topic.created_at_ms // 60_000 * 60_000
    tile = {"topic": str(topic.name), "incarnation": topic.incarnation, "segmentId": 0}
    loads.report_tiles(tiles=[{**tile, "minuteMs": minute, "mean": [1.0] * 32, "max": [1.0] * 32}])
    before = set(LoadTile.objects.filter(topic_id=topic.incarnation).values_list("pk", flat=True))
    assert before
    assert prune(topic) == (0,)
    assert set(LoadTile.objects.filter(topic_id=topic.incarnation).values_list("pk", flat=True)) == before
    topics.delete_topic(name=topic.name, actor=ACTOR)
    assert not LoadTile.objects.filter(topic_id=topic.incarnation).exists()


def test_a_new_subscription_begins_at_the_oldest_that_is_kept(port: SegmentPort) -> None:
    topic = split_topic()
    append(topic, 1, "kept")
    prune(topic)
    subscribe(topic)
    group = Group(topic)
    group.join("consumer")
    assert set(group.owned("consumer")) == {1, 2}
    with pytest.raises(SegmentNotFound):
        messages.read(
            name=topic.name,
            incarnation=topic.incarnation,
            segment_id=0,
            offset=0,
            max_bytes=1,
            max_batches=1,
        )
    assert read_all(topic) == ["kept"]


def test_a_late_acknowledgement_of_a_pruned_segment_is_refused(port: SegmentPort) -> None:
    topic = split_topic()
    subscribe(topic)
    group = Group(topic)
    acknowledge(topic, 3)
    prune(topic)
    with pytest.raises((SegmentNotFound, SegmentStoreMissing)):
        messages.acknowledge(subscription=group.subscription, segment_id=0, generation=0, position=3)


def test_policy_retention_and_properties_outlive_every_change() -> None:
    topic = make_topic("rewritten", owner="me")
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 8}, actor=ACTOR)
    keep(topic, 0)
    operation = request(OperationKind.SPLIT, topic)
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 9}, actor=ACTOR)
    drive(operation)
    drive(scaling.request_merge(name=topic.name, segment_ids=[1, 3], actor=ACTOR))
    assert set(prune(topic)) == {0, 1, 3}
    after = topics.get_topic(name=topic.name)
    assert (after.properties, after.auto_scale_policy) == ({"owner": "me"}, {"maxSegments": 9})
    assert prune(topic) == ()
    keep(topic, FOR_EVER)
    split(topic, 2)
    assert prune(topic) == ()


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """Remember a few pruned segments and operations only."""
    monkeypatch.setattr(retention, "KEPT_HISTORY", 10)
    monkeypatch.setattr(retention, "KEPT_OPERATIONS", 12)
    return 10


def test_a_topic_that_changes_for_ever_does_not_grow(short_memory: int) -> None:
    topic = make_topic("restless", segments=1)
    for _ in range(30):
        (active,) = topics.get_topic(name=topic.name).layout.active
        split(topic, active.segment_id)
        halves = [segment.segment_id for segment in topics.get_topic(name=topic.name).layout.active]
        drive(scaling.request_merge(name=topic.name, segment_ids=halves, actor=ACTOR))
        pruning.sweep_topic(incarnation=topic.incarnation)
    layout = topics.get_topic(name=topic.name).layout
    assert (len(layout.segments), layout.next_segment_id) == (1, 91)
    assert store_ids(topic) == set(layout.segments)
    assert PrunedSegment.objects.filter(topic_id=topic.incarnation).count() == short_memory
    assert len(scaling.list_operations(name=topic.name, limit=100)) == 12
