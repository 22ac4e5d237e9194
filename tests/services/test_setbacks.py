"""What the autoscaler asked for in vain: not asked for again at once, ever later; others have their turn."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from scalable.domain.operations import Outcome
from scalable.domain.setbacks import Setback
from scalable.models import Evaluation, Operation, Subscription
from scalable.services import autoscaling, scaling
from scalable.services.autoscaling import evaluate_due_topics
from scalable.services.scaling import OperationView
from scalable.services.topics import TopicView
from scalable.store import operations as rows
from tests.services.test_autoscaling import (
    COLD,
    HOT,
    due_in_seconds,
    let_time_come,
    operations,
    report,
    ruled,
    rules,
    subscribe,
)
from tests.topology import ACTOR, drive

pytestmark = pytest.mark.django_db

CONTINUOUS: dict[str, Any] = {"autoScaleIntervalSeconds": 0.001}
FIRST_WAITS = {Outcome.FAILED: 60, Outcome.ABORTED: 600}


def abort(operation: OperationView) -> None:
    """Let an operator end it."""
    scaling.abort_operation(name=operation.topic, operation_id=operation.operation_id, actor=ACTOR)


def fail(operation: OperationView) -> None:
    """Let its driver find out that it is hopeless."""
    lease = rows.take_lease(operation.operation_id, runner="test", seconds=60)
    assert lease is not None
    rows.fail(lease, {"code": "internal"})


ENDS = {Outcome.FAILED: fail, Outcome.ABORTED: abort}


def hot(name: str = "hot", *, segments: int = 1) -> TopicView:
    """Make a topic whose first segment is to be split."""
    topic = ruled(name, segments=segments, minSegments=segments, **CONTINUOUS)
    report(topic, {key: HOT if key == 0 else COLD for key in range(segments)})
    return topic


def crowded() -> TopicView:
    """Make a topic with more consumers than segments."""
    topic = ruled("crowded", **CONTINUOUS)
    subscribe(topic, "group", consumers=2)
    return topic


def cold() -> TopicView:
    """Make a topic that is to be merged."""
    topic = ruled("cold", segments=2, **CONTINUOUS)
    report(topic, {0: COLD, 1: COLD})
    return topic


def short_of_buckets() -> TopicView:
    """Make a topic whose consumers need more entry buckets."""
    topic = ruled("short", maxSegments=1, profile="pulsar-5.0", **CONTINUOUS)
    subscribe(topic, "group", consumers=9)
    Subscription.objects.filter(topic_id=topic.incarnation).update(key_shared=True)
    return topic


def unfinished(topic: TopicView) -> OperationView:
    """Evaluate, and give the one operation that came of it."""
    let_time_come(topic)
    evaluate_due_topics()
    (operation,) = scaling.list_operations(name=topic.name, limit=9, unfinished_only=True)
    return operation


def tick(topic: TopicView, times: int = 5) -> None:
    """Let so many intervals pass."""
    for _ in range(times):
        let_time_come(topic)
        evaluate_due_topics()


def let_pass(topic: TopicView, seconds: float) -> None:
    """Let everything that ended have ended so much earlier."""
    ended = Operation.objects.filter(topic_id=topic.incarnation).exclude(outcome=None)
    ended.update(finished_at=F("finished_at") - timedelta(seconds=seconds))


@pytest.mark.parametrize("outcome", ENDS, ids=str)
@pytest.mark.parametrize("make", [hot, crowded, cold, short_of_buckets])
def test_what_came_to_nothing_is_asked_for_again_only_later(
    make: Callable[[], TopicView], outcome: Outcome
) -> None:
    topic, wait = make(), FIRST_WAITS[outcome]
    for tries in (1, 2, 3):
        ENDS[outcome](unfinished(topic))
        tick(topic)
        assert len(operations(topic)) == tries
        assert rules(topic)[0] == f"OPERATION_{outcome}"
        assert wait - 30 < due_in_seconds(topic) <= wait, "it is looked at when the wait is over"
        let_pass(topic, wait - 30)
        tick(topic)
        assert len(operations(topic)) == tries
        let_pass(topic, 31)
        wait *= 2


@pytest.mark.parametrize("outcome", ENDS, ids=str)
def test_the_guard_tells_what_ended_how_often_and_until_when(outcome: Outcome) -> None:
    topic = hot()
    ENDS[outcome](unfinished(topic))
    tick(topic, 1)
    told = autoscaling.list_decisions(name=topic.name, limit=1)[0]
    (guard,) = told.explanation["heldBy"]
    assert (guard["guard"], guard["segmentIds"]) == (f"OPERATION_{outcome}", [0])
    assert guard["threshold"] == FIRST_WAITS[outcome]
    assert guard["nextEligibleAtMs"] > told.at_ms
    assert told.explanation["nextEligibleAtMs"] == guard["nextEligibleAtMs"]


@pytest.mark.parametrize("outcome", ENDS, ids=str)
def test_it_has_the_topic_looked_at_in_its_rhythm_alone(outcome: Outcome) -> None:
    topic = ruled(autoScaleIntervalSeconds=3_600)
    report(topic, {0: HOT})
    ENDS[outcome](unfinished(topic))
    assert evaluate_due_topics() == []
    Evaluation.objects.update(not_before="2000-01-01T00:00:00Z")
    manual = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    abort(manual)
    assert evaluate_due_topics() == [topic.incarnation]


def test_another_segment_has_its_turn() -> None:
    topic = ruled(segments=3, minSegments=3, **CONTINUOUS)
    report(topic, {0: {**HOT, "msgRateIn": 50_000.0}, 1: COLD, 2: HOT})
    first = unfinished(topic)
    assert first.plan.parent_ids == (0,)
    fail(first)
    second = unfinished(topic)
    assert second.plan.parent_ids == (2,)
    assert drive(second).outcome is Outcome.SUCCEEDED


def test_other_neighbours_are_merged() -> None:
    topic = ruled(segments=4, **CONTINUOUS)
    report(topic, dict.fromkeys(range(4), COLD))
    first = unfinished(topic)
    fail(first)
    assert set(unfinished(topic).plan.parent_ids).isdisjoint(first.plan.parent_ids)


def test_the_consumers_get_another_segment() -> None:
    topic = ruled(segments=2, **CONTINUOUS)
    subscribe(topic, "group", consumers=3)
    first = unfinished(topic)
    fail(first)
    assert unfinished(topic).plan.parent_ids != first.plan.parent_ids


def test_what_somebody_else_asked_for_holds_nothing_back() -> None:
    topic = hot()
    abort(scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR))
    assert unfinished(topic).actor == "autoscaler"


def test_waits_grow_up_to_an_hour() -> None:
    waits = [Setback(Outcome.FAILED, count, 0).wait_seconds for count in range(1, 2_000)]
    assert waits[:7] == [60, 120, 240, 480, 960, 1_920, 3_600]
    assert set(waits[6:]) == {3_600}
