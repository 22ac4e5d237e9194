"""When topics are looked at: what marks them, what a mark costs, and what the clock alone brings about."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scalable.domain.autoscale import Decision, Snapshot, decide
from scalable.models import (
    Evaluation,
    LoadWatermark,
    SegmentLoad,
    Topic,
)
from scalable.services import autoscaling, controller, namespace_policies, scaling, topics
from scalable.services.autoscaling import evaluate_due_topics, evaluate_if_due
from scalable.store import evaluations
from scalable.store import operations as operation_rows
from tests.services.test_autoscaling import (
    COLD,
    HOT,
    due_in_seconds,
    let_time_come,
    new_group,
    operations,
    report,
    ruled,
    rules,
    subscribe,
)
from tests.topology import ACTOR, drive, make_topic

pytestmark = pytest.mark.django_db


def test_a_topic_is_first_evaluated_one_interval_after_its_creation() -> None:
    topic = make_topic("fresh")
    assert evaluate_due_topics() == []
    assert 25 < due_in_seconds(topic) <= 60
    let_time_come(topic)
    assert evaluate_due_topics() == [topic.incarnation]
    assert evaluate_due_topics() == []


def test_a_changed_policy_is_judged_by_at_once() -> None:
    topic = ruled(autoScaleIntervalSeconds=3600)
    assert evaluate_due_topics() == [topic.incarnation]
    topics.set_auto_scale_policy(name=topic.name, override={"enabled": False}, actor=ACTOR)
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic)[0] == "DISABLED"
    topics.remove_auto_scale_policy(name=topic.name, actor=ACTOR)
    assert evaluate_due_topics() == [topic.incarnation]


def test_the_policy_of_a_namespace_is_judged_by_at_once_in_all_its_topics() -> None:
    both = [make_topic(name) for name in ("one", "other")]
    namespace_policies.set_auto_scale_policy(
        tenant="public", namespace="default", override={"enabled": False}, actor=ACTOR
    )
    assert set(evaluate_due_topics()) == {topic.incarnation for topic in both}
    assert [rules(topic) for topic in both] == [["DISABLED"], ["DISABLED"]]
    namespace_policies.remove_auto_scale_policy(tenant="public", namespace="default", actor=ACTOR)
    assert set(evaluate_due_topics()) == {topic.incarnation for topic in both}


def test_changed_loads_are_judged_in_the_rhythm_of_the_policy() -> None:
    topic = ruled(segments=2, autoScaleIntervalSeconds=3600)
    report(topic, {0: COLD, 1: COLD})
    assert evaluate_due_topics() == [topic.incarnation]
    report(topic, {0: HOT})
    assert evaluate_due_topics() == []
    Evaluation.objects.update(not_before="2000-01-01T00:00:00Z")
    report(topic, {1: HOT})
    assert evaluate_due_topics() == [topic.incarnation]


def test_a_topic_of_which_nothing_changes_is_not_looked_at() -> None:
    topic = ruled(segments=2, minSegments=2)
    report(topic, {0: COLD, 1: COLD})
    evaluate_due_topics()
    report(topic, {0: COLD, 1: COLD})
    assert evaluate_due_topics() == []
    assert due_in_seconds(topic) > 1_000


def test_the_end_of_a_cooldown_is_the_next_look() -> None:
    topic = ruled(splitCooldownSeconds=600)
    drive(scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR))
    subscribe(topic, "stream", consumers=5)
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic)[0] == "SPLIT_COOLDOWN"
    assert 500 < due_in_seconds(topic) <= 600
    Topic.objects.filter(pk=topic.incarnation).update(last_split_at="2000-01-01T00:00:00Z")
    let_time_come(topic)
    evaluate_due_topics()
    assert operations(topic)[0][:2] == ("autoscaler", "consumer-count")


@pytest.mark.parametrize("end", ["success", "failure", "abort"])
def test_the_end_of_an_operation_frees_the_guard_and_has_the_topic_looked_at(end: str) -> None:
    topic = ruled(segments=2)
    report(topic, {0: HOT})
    manual = scaling.request_split(name=topic.name, segment_id=1, actor=ACTOR)
    evaluate_due_topics()
    assert rules(topic)[0] == "OPERATION_IN_FLIGHT"
    assert evaluate_due_topics() == []
    if end == "success":
        drive(manual)
    elif end == "abort":
        scaling.abort_operation(name=topic.name, operation_id=manual.operation_id, actor=ACTOR)
    else:
        lease = operation_rows.take_lease(manual.operation_id, runner="test", seconds=60)
        assert lease is not None
        operation_rows.fail(lease, {"code": "internal"})
    if end != "success":
        assert evaluate_due_topics() == [], "nothing changed: its interval comes first"
        assert due_in_seconds(topic) <= 60
        let_time_come(topic)
    assert evaluate_due_topics() == [topic.incarnation]
    assert operations(topic)[0] == ("autoscaler", "msgRateIn", (0,))


def test_registrations_at_once_have_the_topic_evaluated_once() -> None:
    topic = ruled()
    evaluate_due_topics()
    leader, subscription = new_group(topic)
    for number in range(5):
        controller.register_consumer(
            leader=leader, subscription_id=subscription, consumer=f"consumer {number}"
        )
    looks = [evaluate_if_due(incarnation=topic.incarnation) for _ in range(5)]
    assert looks == [True, False, False, False, False]
    assert operations(topic) == [("autoscaler", "consumer-count", (0,))]


def test_a_consumer_that_leaves_has_the_topic_evaluated() -> None:
    topic = ruled(maxSegments=1)
    leader, subscription = new_group(topic)
    for name in ("one", "two"):
        controller.register_consumer(leader=leader, subscription_id=subscription, consumer=name)
    assert evaluate_if_due(incarnation=topic.incarnation)
    assert rules(topic)[0] == "MAX_SEGMENTS"
    controller.remove_consumers(leader=leader, subscription_id=subscription, consumers=["two"])
    assert evaluate_if_due(incarnation=topic.incarnation)
    assert "MAX_SEGMENTS" not in rules(topic)[0]
    controller.remove_consumers(leader=leader, subscription_id=subscription, consumers=["two"])
    assert not evaluate_if_due(incarnation=topic.incarnation), "it was not there"


def test_what_changes_during_an_evaluation_has_exactly_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ruled()

    def decide_while_others_join(snapshot: Snapshot, now_ms: int) -> Decision:
        for _ in range(3):
            evaluations.mark(topic.incarnation)
        monkeypatch.undo()
        return decide(snapshot, now_ms)

    monkeypatch.setattr(autoscaling, "decide", decide_while_others_join)
    looks = [evaluate_if_due(incarnation=topic.incarnation) for _ in range(3)]
    assert looks == [True, True, False]


def test_loads_that_become_unknown_by_the_clock_alone_are_noticed() -> None:
    topic = ruled(segments=2, minSegments=2)
    report(topic, {0: COLD, 1: COLD})
    evaluate_due_topics()
    assert "LOAD_UNKNOWN" not in rules(topic)
    LoadWatermark.objects.update(watermark=timezone.now() - timedelta(seconds=181))
    assert evaluate_due_topics() == [topic.incarnation]
    (held,) = [
        guard
        for guard in autoscaling.list_decisions(name=topic.name, limit=1)[0].explanation["heldBy"]
        if guard["guard"] == "LOAD_UNKNOWN"
    ]
    assert "since" in held["detail"]
    assert evaluate_due_topics() == []
    report(topic, {})
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic)[0] != "LOAD_UNKNOWN"


def test_a_steady_segment_is_fresh_however_long_ago_its_load_was_written() -> None:
    topic = ruled(segments=1, splitCooldownSeconds=0)
    report(topic, {0: HOT})
    SegmentLoad.objects.update(modified_at="2000-01-01T00:00:00Z")
    evaluate_due_topics()
    assert operations(topic) == [("autoscaler", "msgRateIn", (0,))]


def test_a_batch_costs_a_constant_number_of_statements() -> None:
    few = [ruled(f"few {number}", segments=2) for number in range(2)]
    evaluate_due_topics()
    let_time_come(*few)
    with CaptureQueriesContext(connection) as small:
        assert len(evaluate_due_topics()) == len(few)
    many = [ruled(f"many {number}", segments=2) for number in range(12)]
    evaluate_due_topics()
    let_time_come(*many)
    with CaptureQueriesContext(connection) as large:
        assert len(evaluate_due_topics()) == len(many)
    assert len(large) == len(small)
