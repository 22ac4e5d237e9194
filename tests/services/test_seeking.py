"""Seek, skip and clear: all segments or none, a preview that is true, and owners who begin anew."""

import time
from collections.abc import Callable
from typing import Literal

import pytest

from scalable.domain.errors import (
    GenerationSuperseded,
    InvalidParameter,
    PositionInvalid,
    SegmentNotFound,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    Unavailable,
)
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Segment
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import CursorState, SegmentKey, SegmentPort
from scalable.segments.registry import segment_port, use_port
from scalable.services import pruning, seeking, subscriptions
from scalable.services.positions import AtPositions, AtTime, Start
from scalable.services.seeking import Moved
from scalable.services.topics import TopicView
from scalable.store import clock
from scalable.store.clock import database_now, milliseconds
from tests.services.group import Group
from tests.services.test_subscriptions import backlog, create, grow, waits
from tests.topology import append, append_everywhere, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db


def seek(topic: TopicView, start: Start, *, preview: bool = False) -> Moved:
    """Seek the subscription `s`."""
    return seeking.seek(name=topic.name, subscription="s", start=start, preview=preview)


def positions(topic: TopicView) -> dict[int, list[int]]:
    """Give where all cursors of the topic stand."""
    return {
        key.segment_id: [each.position for each in segment_port().cursors(key)]
        for key in segment_port().keys(incarnation=topic.incarnation)
    }


def moment() -> int:
    """Wait for the server's next millisecond and give it: what was done is earlier, what follows is not."""
    before = milliseconds(database_now())
    while milliseconds(database_now()) <= before + 1:
        time.sleep(0.001)
    return before + 1


# To a time.


def test_vector_80_a_time_is_told_apart_three_ways(db: None) -> None:
    with use_port(EmbeddedSegments()):
        topic = make_topic(segments=2)
        create(topic)
        append_everywhere(topic, "early")
        drive(request(OperationKind.SPLIT, topic))  # 0 is sealed
        moment()
        then = moment()
        append_everywhere(topic, "later")
        moved = seek(topic, AtTime(then))
        assert {each.segment_id: each.to_position for each in moved.segments} == {0: 1, 1: 1, 2: 0, 3: 0}
        assert backlog(topic) == {0: 0, 1: 1, 2: 1, 3: 1}
        seek(topic, AtTime(0))
        assert backlog(topic) == {0: 1, 1: 2, 2: 1, 3: 1}
        seek(topic, AtTime(moment() + 3_600_000))
        assert backlog(topic) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_what_came_until_the_log_was_sealed_is_not_passed_by(port: SegmentPort) -> None:
    """The layout is written a moment before the parents are sealed, so that their producers wait less."""
    topic = make_topic(segments=1)
    create(topic)
    moment()
    then = moment()
    append(topic, 0, "late")
    drive(request(OperationKind.SPLIT, topic))
    Segment.objects.filter(topic_id=topic.incarnation, segment_id=0).update(sealed_at=clock.moment(then))
    seek(topic, AtTime(then))
    assert backlog(topic) == {0: 1, 1: 0, 2: 0}


# To positions.


def test_positions_are_taken_as_a_checkpoint(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic, start="latest")
    grow(topic)
    seek(topic, AtPositions({0: 7, 1: 2}))
    assert backlog(topic) == {0: 3, 1: 3, 2: 5}
    assert waits(topic) == {1: [(0, 3)], 2: [(0, 3)]}


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (AtPositions({7: 0}), SegmentNotFound),
        (AtPositions({0: 11}), PositionInvalid),
        (AtPositions({0: 3}), PositionInvalid),
        (AtPositions({0: 5}, incarnation=1), InvalidParameter),
    ],
)
@pytest.mark.parametrize("preview", [True, False])
def test_positions_that_are_not_there_are_refused_and_nothing_moves(
    port: SegmentPort, start: Start, error: type[Exception], preview: bool
) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    create(topic, start="latest")
    segment_port().trim(SegmentKey(topic.incarnation, 0), before_offset=4, max_batches=100)
    before = positions(topic)
    with pytest.raises(error):
        seek(topic, start, preview=preview)
    assert positions(topic) == before


@pytest.mark.django_db(transaction=True)
def test_a_pruned_position_is_refused(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic, start="latest")
    drive(request(OperationKind.SPLIT, topic))
    assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    with pytest.raises(SegmentNotFound):
        seek(topic, AtPositions({0: 0}))
    assert backlog(topic) == {1: 0, 2: 0}


# Preview.


@pytest.mark.parametrize("key_shared", [False, True])
def test_a_preview_changes_nothing_and_comes_true(port: SegmentPort, key_shared: bool) -> None:
    topic = make_topic(segments=1)
    create(topic, key_shared=key_shared)
    grow(topic)
    moves: list[Callable[[bool], Moved]] = [
        lambda preview: seeking.skip(name=topic.name, subscription="s", count=12, preview=preview),
        lambda preview: seek(topic, AtPositions({0: 5}), preview=preview),
        lambda preview: seeking.clear_backlog(name=topic.name, subscription="s", preview=preview),
    ]
    for move in moves:
        before, left = positions(topic), backlog(topic)
        told = move(True)
        assert positions(topic) == before
        assert {each.segment_id: each.backlog_before for each in told.segments} == left
        done = move(False)
        assert (told.applied, done.applied) == (False, True)
        assert (told.segments, told.epoch) == (done.segments, done.epoch)
        assert {each.segment_id: each.backlog_after for each in done.segments} == backlog(topic)
        assert {each.segment_id: each.to_position for each in done.segments} == {
            key: min(found) for key, found in positions(topic).items()
        }


# Owners.


def test_a_seek_back_withdraws_what_came_after_and_refuses_old_acknowledgements(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "b")
    grow(topic)
    group.drain(0)
    assert set(group.owners()) == {1, 2}
    generations = {key: group.generation(key) for key in (0, 1, 2)}
    seek(topic, "earliest")
    assert set(group.owners()) == {0}
    for segment_id in (0, 1, 2):
        with pytest.raises(GenerationSuperseded):
            group.acknowledge(segment_id, 5, generation=generations[segment_id])
    assert backlog(topic) == {0: 10, 1: 5, 2: 5}
    owner = group.owners()[0]
    assert [(each.position, each.generation) for each in group.view(owner).segments] == [
        (0, group.generation(0))
    ]
    group.drain(0)
    assert set(group.owners()) == {1, 2}


def test_a_seek_within_a_segment_keeps_its_owner_under_a_new_generation(port: SegmentPort) -> None:
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a", "b")
    append_everywhere(topic, "one")
    append_everywhere(topic, "two")
    owners, former = group.owners(), group.generation(0)
    seek(topic, AtPositions({0: 1, 1: 1}))
    assert group.owners() == owners
    assert group.generation(0) > former
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 2, generation=former)
    group.acknowledge(0, 2)
    assert backlog(topic) == {0: 0, 1: 1}


def test_clearing_the_backlog_opens_the_children(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    grow(topic)
    assert set(group.owners()) == {0}
    seeking.clear_backlog(name=topic.name, subscription="s")
    assert set(group.owners()) == {1, 2}
    assert backlog(topic) == {0: 0, 1: 0, 2: 0}
    append_everywhere(topic, "afterwards")
    assert backlog(topic) == {0: 0, 1: 1, 2: 1}


# Skip.


def test_ancestors_are_skipped_first_and_no_more_than_there_is(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    grow(topic)
    seeking.skip(name=topic.name, subscription="s", count=7)
    assert backlog(topic) == {0: 3, 1: 5, 2: 5}
    seeking.skip(name=topic.name, subscription="s", count=7)
    assert backlog(topic) == {0: 0, 1: 3, 2: 3}
    seeking.skip(name=topic.name, subscription="s", count=1_000_000)
    assert backlog(topic) == {0: 0, 1: 0, 2: 0}
    done = seeking.skip(name=topic.name, subscription="s", count=1)
    assert (done.backlog_before, done.backlog_after) == (0, 0)


def test_what_a_queue_acknowledged_one_by_one_is_not_skipped_again(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic, kind=SubscriptionType.QUEUE)
    for number in range(10):
        append(topic, 0, str(number))
    key = SegmentKey(topic.incarnation, 0)
    ranges = [(1, 3), (6, 8)]
    segment_port().acknowledge_ranges(key, subscription="s", generation=None, ranges=ranges)
    done = seeking.skip(name=topic.name, subscription="s", count=3)
    assert [each.to_position for each in done.segments] == [5]
    assert backlog(topic) == {0: 3}


# All or none.


class _Interrupted(MemorySegments):
    """Loses its connection at one segment, when told to."""

    at: int | None = None

    def seek(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        self._lose(key)
        return super().seek(key, subscription=subscription, position=position)

    def skip_to(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        self._lose(key)
        return super().skip_to(key, subscription=subscription, position=position)

    def _lose(self, key: SegmentKey) -> None:
        if key.segment_id == self.at:
            self.at = None
            raise Unavailable(reference="lost")


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_seek_that_fails_in_one_segment_moves_none(at: int, start: Literal["earliest", "latest"]) -> None:
    with use_port(_Interrupted()) as port:
        assert isinstance(port, _Interrupted)
        topic = make_topic(segments=1)
        create(topic)
        grow(topic)
        seek(topic, AtPositions({0: 4, 1: 2, 2: 1}))
        before = positions(topic)
        port.at = at
        with pytest.raises(Unavailable):
            seek(topic, start)
        assert positions(topic) == before
        seek(topic, start)
        assert sum(backlog(topic).values()) == (20 if start == "earliest" else 0)


# Refusals.


def test_a_checkpoint_group_is_not_moved_from_outside(port: SegmentPort) -> None:
    topic = make_topic()
    create(topic, kind=SubscriptionType.CHECKPOINT)
    with pytest.raises(SubscriptionTypeMismatch):
        seek(topic, "latest")
    with pytest.raises(SubscriptionTypeMismatch):
        seeking.clear_backlog(name=topic.name, subscription="s")
    with pytest.raises(SubscriptionTypeMismatch):
        seeking.skip(name=topic.name, subscription="s", count=1, preview=True)


def test_an_unknown_subscription_is_refused(port: SegmentPort) -> None:
    topic = make_topic()
    with pytest.raises(SubscriptionNotFound):
        seek(topic, "latest")
    subscriptions.create_subscription(name=topic.name, subscription="t", kind=SubscriptionType.QUEUE)
    with pytest.raises(SubscriptionNotFound):
        seek(topic, "latest", preview=True)
    assert set(layout_of(topic).segments) == {0, 1}
