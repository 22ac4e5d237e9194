"""Messages in and out: what is refused, by which name, and what a refusal tells."""

from collections.abc import Iterator
from functools import partial

import pytest

from scalable import announce
from scalable.announce import Notice, SegmentAppended
from scalable.domain.errors import (
    BatchInvalid,
    PositionInvalid,
    SegmentNotFound,
    SegmentTerminated,
    TopicDeleted,
    TopicNotFound,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.domain.operations import OperationKind
from scalable.segments.memory import MemorySegments
from scalable.segments.port import AppendResult
from scalable.segments.registry import use_port
from scalable.services import messages, scaling, topics
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, encode_batch
from tests.services.group import Group
from tests.topology import ACTOR, drive, make_topic, request, topic_name

pytestmark = pytest.mark.django_db


def batch(first_sequence: int = 0, count: int = 1) -> bytes:
    """An encoded keyless batch."""
    records = [Record(None, b"value", first_sequence + index, 0) for index in range(count)]
    return encode_batch(records, published_at_ms=0)


def append(topic: TopicView, segment_id: int, *batches: bytes, producer: str = "p") -> list[AppendResult]:
    """Append as a producer."""
    return messages.append(
        name=topic.name,
        incarnation=topic.incarnation,
        segment_id=segment_id,
        batches=batches,
        producer=producer,
    )


@pytest.fixture
def notices() -> Iterator[list[Notice]]:
    """What is announced during the test."""
    heard: list[Notice] = []
    announce.listen(heard.append)
    yield heard
    announce.silence(heard.append)


@pytest.mark.django_db(transaction=True)
def test_an_append_is_announced_once_and_a_repeat_not_at_all(notices: list[Notice]) -> None:
    topic = make_topic(segments=1)
    notices.clear()
    assert append(topic, 0, batch(0, 2), batch(2)) == [AppendResult(0, False), AppendResult(2, False)]
    assert notices == [SegmentAppended(topic.incarnation, 0)]
    assert append(topic, 0, batch(2)) == [AppendResult(2, True)]
    assert notices == [SegmentAppended(topic.incarnation, 0)]


def test_a_sealed_segment_names_the_epoch_of_its_children() -> None:
    topic = make_topic(segments=2)
    drive(request(OperationKind.SPLIT, topic))
    with pytest.raises(SegmentTerminated) as refused:
        append(topic, 0, batch())
    assert refused.value.epoch == topics.get_topic(name=topic.name).epoch == 1


def refusal(topic: TopicView, segment_id: int) -> SegmentTerminated:
    """Why a segment takes no batch."""
    with pytest.raises(SegmentTerminated) as refused:
        append(topic, segment_id, batch())
    return refused.value


def named(error: SegmentTerminated) -> list[tuple[int, str]]:
    """The successors that a refusal names, with their states."""
    return [(each["segmentId"], each["state"]) for each in error.successors]


def test_a_sealed_segment_names_all_that_came_of_it() -> None:
    topic = make_topic(segments=2)
    drive(scaling.request_merge(name=topic.name, segment_ids=[0, 1], actor=ACTOR))
    assert named(refusal(topic, 1)) == [(2, "ACTIVE")]
    drive(scaling.request_split(name=topic.name, segment_id=2, actor=ACTOR))
    error = refusal(topic, 1)
    assert (error.epoch, named(error)) == (2, [(2, "SEALED"), (3, "ACTIVE"), (4, "ACTIVE")])
    assert named(refusal(topic, 2)) == [(3, "ACTIVE"), (4, "ACTIVE")]


@pytest.mark.parametrize(("more", "told"), [(0, messages.MAX_SUCCESSORS), (1, 0)])
def test_a_refusal_names_successors_up_to_its_bound_and_no_crowd(more: int, told: int) -> None:
    topic = make_topic(segments=1)
    parts = FULL_RANGE.parts(messages.MAX_SUCCESSORS + more)
    boundaries = [part.start for part in parts][1:]
    drive(scaling.request_split(name=topic.name, segment_id=0, boundaries=boundaries, actor=ACTOR))
    error = refusal(topic, 0)
    assert (error.epoch, len(error.successors)) == (1, told)


def test_a_segment_that_is_terminated_before_its_layout_names_the_next_epoch() -> None:
    with use_port(MemorySegments()) as port:
        topic = make_topic(segments=1)
        port.terminate(Group(topic).key(0), fence=None)
        with pytest.raises(SegmentTerminated) as refused:
            append(topic, 0, batch())
    assert (refused.value.epoch, refused.value.successors) == (topic.epoch + 1, [])


def test_what_is_not_there_is_named() -> None:
    topic = make_topic(segments=1)
    with pytest.raises(SegmentNotFound):
        append(topic, 9, batch())
    with pytest.raises(BatchInvalid):
        append(topic, 0, b"noise")
    with pytest.raises(TopicNotFound):
        messages.positions(name=topic_name("none"))
    topics.delete_topic(name=topic.name, actor=ACTOR)
    with pytest.raises(TopicDeleted):
        append(topic, 0, batch())
    with pytest.raises(TopicDeleted):
        messages.read(
            name=topic.name, incarnation=topic.incarnation, segment_id=0, offset=0, max_bytes=1, max_batches=1
        )


def test_messages_of_a_former_topic_are_not_read_from_its_successor() -> None:
    former = make_topic(segments=1)
    topics.delete_topic(name=former.name, actor=ACTOR)
    topic = make_topic(segments=1)
    append(topic, 0, batch())
    wanted = partial(
        messages.read_by_name, name=topic.name, segment_id=0, offset=0, max_bytes=10_000, max_batches=9
    )
    assert len(wanted().batches) == len(wanted(incarnation=topic.incarnation).batches) == 1
    with pytest.raises(TopicDeleted):
        wanted(incarnation=former.incarnation)


def test_a_topic_made_again_takes_nothing_meant_for_the_former() -> None:
    former = make_topic(segments=1)
    topics.delete_topic(name=former.name, actor=ACTOR)
    make_topic(segments=1)
    with pytest.raises(TopicDeleted):
        append(former, 0, batch())


def test_a_producer_learns_its_highest_sequence_across_segments() -> None:
    topic = make_topic(segments=2)
    append(topic, 0, batch(4))
    append(topic, 1, batch(9))
    assert messages.producer_state(name=topic.name, producer="p").last_sequence == 9
    assert messages.producer_state(name=topic.name, producer="q").last_sequence == -1
    assert messages.producer_state(name=topic.name, producer=None).incarnation == topic.incarnation


def test_positions_tell_where_each_segment_ends() -> None:
    topic = make_topic(segments=2)
    append(topic, 0, batch(count=3))
    drive(request(OperationKind.SPLIT, topic))
    body = messages.positions(name=topic.name).to_json()
    assert (body["incarnation"], body["epoch"]) == (topic.incarnation, 1)
    assert body["segments"]["0"] == {
        "startOffset": 0,
        "endOffset": 3,
        "state": "SEALED",
        "terminated": True,
        "parentIds": [],
        "childIds": [2, 3],
    }
    assert body["segments"]["2"]["parentIds"] == [0]
    assert sorted(body["segments"]) == ["0", "1", "2", "3"]


def test_acknowledgements_go_forward_and_never_beyond_the_end() -> None:
    group = Group(make_topic(segments=1))
    group.join("a")
    append(group.topic, 0, batch(count=5))
    group.acknowledge(0, 3)
    group.acknowledge(0, 2)
    assert group.view("a").segments[0].position == 3
    with pytest.raises(PositionInvalid):
        group.acknowledge(0, 6)
