"""Everything at once on one topic: splits and merges side by side, subscriptions that come and go."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import pytest
from django.db import connections

from scalable.domain.errors import ScalableError, SegmentTerminated, SubscriptionNotFound, TopicNotFound
from scalable.domain.operations import Outcome
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import loads, scaling, subscriptions, sweeping, topics
from scalable.services.driver import drive_operation
from scalable.services.settling import settle_topic
from scalable.services.topics import TopicView
from tests.faults.conftest import Plane
from tests.services.group import Group
from tests.topology import ACTOR, append, drive, layout_of, make_topic, read_all, store_ids

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 8


def reshape(topic: TopicView, first: int, last: int) -> list[Outcome | None]:
    """Split and merge one part of the hash space in turn, as if no other part existed."""
    outcomes = []
    for turn in range(ROUNDS):
        own = [
            segment.segment_id
            for segment in layout_of(topic).active
            if first <= segment.hash_range.start and segment.hash_range.end <= last
        ]
        if turn % 2:
            operation = scaling.request_merge(name=topic.name, segment_ids=own, actor=ACTOR)
        else:
            operation = scaling.request_split(name=topic.name, segment_id=own[0], actor=ACTOR)
        outcomes.append(drive(operation).outcome)
    return outcomes


def come_and_go(topic: TopicView, name: str) -> None:
    """Make a subscription, delete it, make it again."""
    for _ in range(ROUNDS):
        subscriptions.create_subscription(name=topic.name, subscription=name, kind=SubscriptionType.STREAM)
        try:
            subscriptions.delete_subscription(name=topic.name, subscription=name)
        except SubscriptionNotFound:
            pytest.fail("nobody else deletes it")
    subscriptions.create_subscription(name=topic.name, subscription=name, kind=SubscriptionType.STREAM)


def publish(topic: TopicView, hash16: int) -> list[str]:
    """Append to whatever segment has a hash; a refusal makes one look at the layout again."""
    accepted = []
    for number in range(4 * ROUNDS):
        value = f"{hash16} {number}"
        for _ in range(1_000):
            segment_id = topics.get_topic(name=topic.name).layout.find_active(hash16).segment_id
            try:
                append(topic, segment_id, value)
            except SegmentTerminated:
                continue
            accepted.append(value)
            break
    return accepted


def drive_operation_to_wherever(operation_id: str) -> None:
    """Drive an operation that may vanish meanwhile."""
    drive_operation(operation_id=operation_id, runner="racing")


@contextmanager
def side_by_side() -> Iterator[Callable[..., Future[object]]]:
    """Run functions in threads that begin together, each with connections of its own."""
    calls: list[tuple[Future[object], Callable[[], object]]] = []

    def run(function: Callable[..., object], *arguments: object) -> Future[object]:
        future: Future[object] = Future()
        calls.append((future, lambda: function(*arguments)))
        return future

    yield run
    barrier = Barrier(len(calls))

    def begin(call: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        running = [(future, pool.submit(begin, call)) for future, call in calls]
    for future, done in running:
        future.set_result(done.result())


def test_nothing_is_lost_and_every_cursor_is_where_it_must_be(plane: Plane) -> None:
    sweeping.sweep_stores()
    topic = make_topic("raced", segments=2)
    with side_by_side() as run:
        reshaped = [run(reshape, topic, 0, 32767), run(reshape, topic, 32768, 65535)]
        for number in range(3):
            run(come_and_go, topic, f"subscription {number}")
        published = [run(publish, topic, hash16) for hash16 in (0, 20_000, 65_535)]
    assert [future.result() for future in reshaped] == [[Outcome.SUCCEEDED] * ROUNDS] * 2
    layout = layout_of(topic)
    assert (layout.epoch, len(layout.active)) == (2 * ROUNDS, 2)
    assert store_ids(topic) == set(layout.segments)
    for segment_id in layout.segments:
        cursors = segment_port().cursors(SegmentKey(topic.incarnation, segment_id))
        assert {cursor.subscription for cursor in cursors} == {f"subscription {n}" for n in range(3)}
    accepted = [value for future in published for value in future.result()]  # type: ignore[attr-defined]
    assert len(accepted) == 3 * 4 * ROUNDS
    assert sorted(read_all(topic)) == sorted(accepted)
    assert sweeping.sweep_stores() == ([], [])


def test_a_topic_deleted_in_the_middle_of_a_split_leaves_nothing(plane: Plane) -> None:
    sweeping.sweep_stores()
    for _ in range(ROUNDS):
        topic = make_topic("deleted")
        operation = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
        with side_by_side() as run:
            run(drive_operation_to_wherever, operation.operation_id)
            run(lambda doomed: topics.delete_topic(name=doomed.name, force=True, actor=ACTOR), topic)
        sweeping.sweep_stores()
        assert store_ids(topic) == set()


def test_children_open_when_the_last_acknowledgement_and_the_seal_race(plane: Plane) -> None:
    """Neither sees the other before it commits; no sweep comes to the rescue of the second."""
    topic = make_topic("settled", segments=1)
    group = Group(topic)
    group.join("a")
    for _ in range(2 * ROUNDS):
        (active, *others) = layout_of(topic).active
        append(topic, active.segment_id, "last")
        for other in others:
            group.drain(other.segment_id)
        operation = scaling.request_split(name=topic.name, segment_id=active.segment_id, actor=ACTOR)
        with side_by_side() as run:
            run(drive_operation_to_wherever, operation.operation_id)
            run(group.drain, active.segment_id)
        assert set(group.owners()) == {each.segment_id for each in layout_of(topic).active}


# Deletions, among those who are about to add what would be deleted with it. A deadlock or a broken reference
# is no error of the product, and ends the test.


def join_and_leave(group: Group, consumer: str) -> None:
    """Register and leave, again and again, on a subscription that may vanish and is made again."""
    for _ in range(ROUNDS):
        try:
            group.join(consumer)
            group.leave(consumer)
        except ScalableError:
            continue


def settle(topic: TopicView) -> None:
    """Decide anew who owns what, as operations and sweeps do."""
    for _ in range(2 * ROUNDS):
        settle_topic(topic_id=topic.incarnation)


def report_tiles(topic: TopicView) -> None:
    """Report ever new minutes of a segment."""
    newest = topic.created_at_ms // 60_000
    for minute in range(newest - 4 * ROUNDS, newest):
        tile = {"topic": str(topic.name), "incarnation": topic.incarnation, "segmentId": 0}
        figures = {"minuteMs": minute * 60_000, "mean": [1.0] * 32, "max": [1.0] * 32}
        loads.report_tiles(tiles=[{**tile, **figures}])


def delete_subscription(topic: TopicView) -> None:
    """Delete the group's subscription as often as it is made."""
    for _ in range(ROUNDS):
        try:
            subscriptions.delete_subscription(name=topic.name, subscription="s")
        except SubscriptionNotFound:
            continue


def test_a_subscription_is_deleted_among_its_consumers(plane: Plane) -> None:
    topic = make_topic("left", segments=4)
    group = Group(topic)
    with side_by_side() as run:
        for number in range(3):
            run(join_and_leave, group, f"consumer {number}")
        run(settle, topic)
        run(delete_subscription, topic)


def test_a_topic_is_deleted_among_its_consumers_and_reporters(plane: Plane) -> None:
    for _ in range(ROUNDS):
        topic = make_topic("doomed", segments=4)
        group = Group(topic)
        group.join("first")
        with side_by_side() as run:
            for number in range(2):
                run(join_and_leave, group, f"consumer {number}")
            run(settle, topic)
            run(report_tiles, topic)
            run(lambda doomed: topics.delete_topic(name=doomed.name, force=True, actor=ACTOR), topic)
        with pytest.raises(TopicNotFound):
            topics.get_topic(name=topic.name)
    sweeping.sweep_stores()
