"""Requests for splits and merges: planned whole, joined, refused, aborted; a refusal changes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks

from scalable import announce
from scalable.announce import Notice, OperationRequested
from scalable.domain.errors import (
    EpochMoved,
    InvalidBoundaries,
    OperationNotAbortable,
    OperationNotFound,
    ScalableError,
    SegmentClaimed,
    SegmentNotActive,
    SegmentNotFound,
    SegmentsFixed,
    SegmentsNotAdjacent,
    SegmentTooNarrow,
    TopicNotFound,
)
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.services import autoscaling, scaling, topics
from scalable.services.topics import TopicView
from tests.topology import ACTOR, drive, layout_of, make_topic, request, store_ids, topic_name

pytestmark = pytest.mark.django_db


def test_a_request_writes_the_full_plan_and_burns_its_ids() -> None:
    topic = make_topic(segments=3)
    split = scaling.request_split(
        name=topic.name, segment_id=0, boundaries=[256, 512], actor="me", reason="because"
    )
    merge = scaling.request_merge(name=topic.name, segment_ids=[2, 1], actor="you")
    assert [(child.segment_id, child.hash_range.hex) for child in split.plan.children] == [
        (3, "0000-00ff"),
        (4, "0100-01ff"),
        (5, "0200-5554"),
    ]
    assert (merge.plan.parent_ids, merge.plan.child_ids) == ((2, 1), (6,))
    assert (split.actor, split.reason, split.phase, split.outcome) == ("me", "because", Phase.PLANNED, None)
    layout = layout_of(topic)
    assert (layout.epoch, layout.next_segment_id, len(layout.segments)) == (0, 7, 3)
    assert scaling.list_operations(name=topic.name, limit=9, unfinished_only=True) == [merge, split]


def test_an_equal_request_joins_and_another_is_refused_with_the_id_of_the_first() -> None:
    topic = make_topic(segments=3)
    merge = scaling.request_merge(name=topic.name, segment_ids=[0, 1], actor="first")
    joined = scaling.request_merge(name=topic.name, segment_ids=[1, 0], actor="second")
    assert joined == merge
    attempts: list[Callable[[], object]] = [
        lambda: scaling.request_split(name=topic.name, segment_id=1, actor=ACTOR),
        lambda: scaling.request_merge(name=topic.name, segment_ids=[1, 2], actor=ACTOR),
        lambda: scaling.request_merge(name=topic.name, segment_ids=[0, 1, 2], actor=ACTOR),
    ]
    for attempt in attempts:
        with pytest.raises(SegmentClaimed) as refusal:
            attempt()
        assert refusal.value.operation_id == merge.operation_id
    assert scaling.list_operations(name=topic.name, limit=9) == [merge]


def test_a_split_at_the_midpoint_equals_one_at_that_boundary_and_no_other() -> None:
    topic = make_topic(segments=1)
    first = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    assert scaling.request_split(name=topic.name, segment_id=0, boundaries=[32768], actor=ACTOR) == first
    with pytest.raises(SegmentClaimed):
        scaling.request_split(name=topic.name, segment_id=0, boundaries=[32767], actor=ACTOR)


def test_disjoint_operations_run_side_by_side_and_in_any_order() -> None:
    topic = make_topic(segments=4)
    first = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    second = scaling.request_merge(name=topic.name, segment_ids=[2, 3], actor=ACTOR)
    assert [drive(second).epoch, drive(first).epoch] == [1, 2]
    assert {segment.segment_id for segment in layout_of(topic).active} == {1, *first.plan.child_ids, 6}


REFUSALS: dict[str, tuple[type[ScalableError], Callable[[TopicView], object]]] = {
    "unknown segment": (
        SegmentNotFound,
        lambda t: scaling.request_split(name=t.name, segment_id=9, actor=ACTOR),
    ),
    "sealed segment": (
        SegmentNotActive,
        lambda t: scaling.request_split(name=t.name, segment_id=0, actor=ACTOR),
    ),
    "one hash wide": (
        SegmentTooNarrow,
        lambda t: scaling.request_split(name=t.name, segment_id=2, actor=ACTOR),
    ),
    "boundary outside": (
        InvalidBoundaries,
        lambda t: scaling.request_split(name=t.name, segment_id=1, boundaries=[1], actor=ACTOR),
    ),
    "boundaries that descend": (
        InvalidBoundaries,
        lambda t: scaling.request_split(name=t.name, segment_id=1, boundaries=[50000, 40000], actor=ACTOR),
    ),
    "no boundary": (
        InvalidBoundaries,
        lambda t: scaling.request_split(name=t.name, segment_id=1, boundaries=[], actor=ACTOR),
    ),
    "not neighbours": (
        SegmentsNotAdjacent,
        lambda t: scaling.request_merge(name=t.name, segment_ids=[2, 1], actor=ACTOR),
    ),
    "merge with itself": (
        SegmentsNotAdjacent,
        lambda t: scaling.request_merge(name=t.name, segment_ids=[1, 1], actor=ACTOR),
    ),
    "merge of one": (
        SegmentsNotAdjacent,
        lambda t: scaling.request_merge(name=t.name, segment_ids=[1], actor=ACTOR),
    ),
    "merge of a sealed one": (
        SegmentNotActive,
        lambda t: scaling.request_merge(name=t.name, segment_ids=[0, 1], actor=ACTOR),
    ),
    "an epoch that moved on": (
        EpochMoved,
        lambda t: scaling.request_split(name=t.name, segment_id=1, expected_epoch=0, actor=ACTOR),
    ),
    "a topic of the system": (
        SegmentsFixed,
        lambda t: scaling.request_split(
            name=TopicName("system", "load", "samples"), segment_id=0, actor=ACTOR
        ),
    ),
    "unknown topic": (
        TopicNotFound,
        lambda t: scaling.request_split(name=topic_name("nobody"), segment_id=1, actor=ACTOR),
    ),
}


@pytest.mark.parametrize(("error", "attempt"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refused_request_changes_nothing(
    error: type[ScalableError], attempt: Callable[[TopicView], object]
) -> None:
    topic = make_topic(segments=2)
    drive(scaling.request_split(name=topic.name, segment_id=0, boundaries=[1], actor=ACTOR))
    before = topics.get_topic(name=topic.name)
    with pytest.raises(error):
        attempt(topic)
    assert topics.get_topic(name=topic.name) == before
    assert scaling.list_operations(name=topic.name, limit=9, unfinished_only=True) == []


def test_the_epoch_that_the_caller_saw_is_accepted() -> None:
    topic = make_topic()
    operation = scaling.request_split(name=topic.name, segment_id=0, expected_epoch=0, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("kind", OperationKind)
def test_an_abort_leaves_a_gap_of_ids_and_frees_the_segments(kind: OperationKind) -> None:
    topic = make_topic()
    operation = request(kind, topic)
    aborted = scaling.abort_operation(name=topic.name, operation_id=operation.operation_id, actor=ACTOR)
    assert (aborted.outcome, aborted.phase) == (Outcome.ABORTED, Phase.PLANNED)
    assert aborted.finished_at_ms is not None
    again = scaling.abort_operation(name=topic.name, operation_id=operation.operation_id, actor=ACTOR)
    assert again == aborted
    assert drive(operation) == aborted
    repeated = request(kind, topic)
    assert set(repeated.plan.child_ids).isdisjoint(operation.plan.child_ids)
    assert drive(repeated).outcome is Outcome.SUCCEEDED
    assert store_ids(topic) == set(layout_of(topic).segments)


def test_what_is_done_cannot_be_aborted() -> None:
    topic = make_topic()
    operation = drive(request(OperationKind.SPLIT, topic))
    with pytest.raises(OperationNotAbortable):
        scaling.abort_operation(name=topic.name, operation_id=operation.operation_id, actor=ACTOR)
    assert scaling.get_operation(name=topic.name, operation_id=operation.operation_id) == operation


@pytest.mark.parametrize("operation_id", ["no-uuid", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_operation_is_not_found(operation_id: str) -> None:
    topic = make_topic()
    with pytest.raises(OperationNotFound):
        scaling.get_operation(name=topic.name, operation_id=operation_id)
    with pytest.raises(OperationNotFound):
        scaling.abort_operation(name=topic.name, operation_id=operation_id, actor=ACTOR)


def test_an_operation_belongs_to_its_topic() -> None:
    operation = request(OperationKind.SPLIT, make_topic("one"))
    other = make_topic("other")
    with pytest.raises(OperationNotFound):
        scaling.get_operation(name=other.name, operation_id=operation.operation_id)
    with pytest.raises(OperationNotFound):
        scaling.abort_operation(name=other.name, operation_id=operation.operation_id, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED


def test_lists_of_an_unknown_topic_are_refused_and_of_a_quiet_one_empty() -> None:
    quiet = make_topic("quiet")
    assert scaling.list_operations(name=quiet.name, limit=1) == []
    assert autoscaling.list_decisions(name=quiet.name, limit=1) == []
    with pytest.raises(TopicNotFound):
        scaling.list_operations(name=topic_name("nobody"), limit=1)
    with pytest.raises(TopicNotFound):
        autoscaling.list_decisions(name=topic_name("nobody"), limit=1)


def test_a_request_is_announced_once_it_is_committed(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    heard: list[Notice] = []
    topic = make_topic()
    announce.listen(heard.append)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            operation = request(OperationKind.SPLIT, topic)
            assert heard == []
    finally:
        announce.silence(heard.append)
    assert OperationRequested(operation.operation_id) in heard


@pytest.mark.django_db(transaction=True)
def test_twenty_equal_requests_at_once_are_one_operation() -> None:
    topic = make_topic()

    def ask(_: int) -> str:
        try:
            return request(OperationKind.MERGE, topic).operation_id
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        ids = set(pool.map(ask, range(20)))
    assert len(ids) == 1
    assert len(scaling.list_operations(name=topic.name, limit=99)) == 1
    assert layout_of(topic).next_segment_id == 3
