"""The autoscaler around the decision: who is due, what it is told, what it does and writes down."""

import logging
from collections.abc import Callable, Mapping

import pytest
from django.utils import timezone

from scalable.domain.names import TopicName
from scalable.domain.operations import Outcome
from scalable.models import (
    ConsumerRegistration,
    Evaluation,
    Subscription,
    Topic,
)
from scalable.services import autoscaling, controller, loads, scaling, topics
from scalable.services.autoscaling import evaluate_due_topics, evaluate_topic
from scalable.services.controller import Leader
from scalable.services.topics import TopicView
from scalable.store import evaluations
from scalable.store.clock import milliseconds
from tests.services.group import leader_of
from tests.topology import ACTOR, drive, layout_of, make_topic

pytestmark = pytest.mark.django_db

EAGER = {"splitCooldownSeconds": 0, "mergeCooldownSeconds": 0, "mergeWindowSeconds": 0}
COLD = {"msgRateIn": 0.0, "bytesRateIn": 0.0, "msgRateOut": 0.0, "bytesRateOut": 0.0}
HOT = {**COLD, "msgRateIn": 10_001.0}


def ruled(name: str = "scaled", *, segments: int = 1, **policy: object) -> TopicView:
    """Make a topic with a policy of its own."""
    topic = make_topic(name, segments=segments)
    topics.set_auto_scale_policy(name=topic.name, override={**EAGER, **policy}, actor=ACTOR)
    return topics.get_topic(name=topic.name)


def report(topic: TopicView, rates: Mapping[int, Mapping[str, float]]) -> None:
    """Let the load pipeline report rates by segment, as of now."""
    entries = [
        {
            "topic": str(topic.name),
            "incarnation": topic.incarnation,
            "segmentId": segment_id,
            **segment_rates,
        }
        for segment_id, segment_rates in rates.items()
    ]
    now_ms = milliseconds(timezone.now())
    loads.report_loads(reporter="test", watermark_ms=now_ms, loads=entries)


def new_group(topic: TopicView) -> tuple[Leader, int]:
    """Make a STREAM subscription and give the topic's leader with the subscription's id."""
    found = controller.find_or_create(name=topic.name, subscription="group")
    return leader_of(topic), found.subscription_id


def subscribe(topic: TopicView, name: str, *, kind: str = "STREAM", consumers: int = 0) -> None:
    """Make a subscription with registered consumers."""
    now = timezone.now()
    row = Subscription.objects.create(topic_id=topic.incarnation, name=name, type=kind, created_at=now)
    for number in range(consumers):
        ConsumerRegistration.objects.create(subscription=row, name=f"consumer {number}", created_at=now)


def let_time_come(*views: TopicView) -> None:
    """Make the evaluations of these topics due."""
    keys = [topic.incarnation for topic in views]
    Evaluation.objects.filter(pk__in=keys).update(due_at="2000-01-01T00:00:00Z")


def due_in_seconds(topic: TopicView) -> float:
    """Give in how many seconds a topic is evaluated next; less than none: it is due."""
    due_at = Evaluation.objects.get(pk=topic.incarnation).due_at
    return (due_at - timezone.now()).total_seconds()


def rules(topic: TopicView) -> list[str]:
    """Give the rules of the journal, newest first."""
    return [row.rule for row in autoscaling.list_decisions(name=topic.name, limit=99)]


def operations(topic: TopicView) -> list[tuple[str, str, tuple[int, ...]]]:
    """Give (actor, reason, parents) of a topic's operations, newest first."""
    found = scaling.list_operations(name=topic.name, limit=99)
    return [(operation.actor, operation.reason, operation.plan.parent_ids) for operation in found]


def test_a_hot_segment_is_split_through_the_common_way_in() -> None:
    topic = ruled(segments=2)
    report(topic, {0: COLD, 1: HOT})
    decision = evaluate_topic(incarnation=topic.incarnation)
    assert decision is not None
    assert operations(topic) == [("autoscaler", "msgRateIn", (1,))]
    kept = autoscaling.list_decisions(name=topic.name, limit=9)
    (operation,) = scaling.list_operations(name=topic.name, limit=9)
    assert [(row.action, row.rule, row.segment_ids, row.operation_id) for row in kept] == [
        ("SPLIT", "msgRateIn", (1,), operation.operation_id)
    ]
    assert drive(operation).outcome is Outcome.SUCCEEDED


def test_cold_neighbours_are_merged_down_to_the_minimum() -> None:
    topic = ruled(segments=4, minSegments=2)
    report(topic, dict.fromkeys(range(4), COLD))
    for _ in range(4):
        evaluate_topic(incarnation=topic.incarnation)
        for operation in scaling.list_operations(name=topic.name, limit=1, unfinished_only=True):
            drive(operation)
        report(topic, {segment.segment_id: COLD for segment in layout_of(topic).active})
    assert len(layout_of(topic).active) == 2
    assert {(actor, reason) for actor, reason, _ in operations(topic)} == {("autoscaler", "cold")}
    assert autoscaling.list_decisions(name=topic.name, limit=1)[0].rule == "MIN_SEGMENTS"


def test_more_stream_consumers_than_segments_split_the_busiest_though_loads_are_unknown() -> None:
    topic = ruled(segments=2)
    subscribe(topic, "stream", consumers=3)
    subscribe(topic, "queue", kind="QUEUE", consumers=9)
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic) == [("autoscaler", "consumer-count", (0,))]


def test_queue_consumers_do_not_count() -> None:
    topic = ruled()
    subscribe(topic, "queue", kind="QUEUE", consumers=9)
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic) == []


def test_nothing_is_decided_while_an_operation_is_in_flight() -> None:
    topic = ruled(segments=2)
    report(topic, {0: HOT, 1: HOT})
    manual = scaling.request_split(name=topic.name, segment_id=1, actor=ACTOR)
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic) == [(ACTOR, "manual", (1,))]
    assert autoscaling.list_decisions(name=topic.name, limit=1)[0].rule == "OPERATION_IN_FLIGHT"
    drive(manual)
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic)[0] == ("autoscaler", "msgRateIn", (0,))


@pytest.mark.parametrize("merge", [False, True])
def test_cooldowns_count_from_manual_operations_and_survive_in_the_rows(merge: bool) -> None:
    topic = ruled(segments=4, splitCooldownSeconds=60, mergeCooldownSeconds=60, minSegments=1)
    name = topic.name
    if merge:
        drive(scaling.request_merge(name=name, segment_ids=[0, 1], actor=ACTOR))
    else:
        drive(scaling.request_split(name=name, segment_id=0, actor=ACTOR))
    rates = COLD if merge else HOT
    report(topic, {segment.segment_id: rates for segment in layout_of(topic).active})
    evaluate_topic(incarnation=topic.incarnation)
    expected = "MERGE_COOLDOWN" if merge else "SPLIT_COOLDOWN"
    assert autoscaling.list_decisions(name=name, limit=1)[0].rule == expected
    assert len(operations(topic)) == 1


def test_a_failed_operation_burns_no_cooldown() -> None:
    topic = ruled(splitCooldownSeconds=60)
    operation = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    scaling.abort_operation(name=topic.name, operation_id=operation.operation_id, actor=ACTOR)
    report(topic, {0: HOT})
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic)[0][0] == "autoscaler"


def test_the_journal_keeps_a_decision_only_when_it_says_something_new() -> None:
    topic = ruled(enabled=False)
    revision = topics.get_topic(name=topic.name).revision
    for _ in range(3):
        evaluate_topic(incarnation=topic.incarnation)
    assert [row.rule for row in autoscaling.list_decisions(name=topic.name, limit=9)] == ["DISABLED"]
    assert topics.get_topic(name=topic.name).revision == revision + 1
    topics.set_auto_scale_policy(name=topic.name, override=EAGER, actor=ACTOR)
    evaluate_topic(incarnation=topic.incarnation)
    assert [row.rule for row in autoscaling.list_decisions(name=topic.name, limit=9)] == [
        "LOAD_UNKNOWN",
        "DISABLED",
    ]


def test_the_journal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalable.store.decisions.KEPT_DECISIONS", 5)
    topic = make_topic("flapping")
    for number in range(12):
        override = {"enabled": bool(number % 2)}
        topics.set_auto_scale_policy(name=topic.name, override=override, actor=ACTOR)
        evaluate_topic(incarnation=topic.incarnation)
    assert len(autoscaling.list_decisions(name=topic.name, limit=99)) == 5


def test_system_topics_are_left_alone() -> None:
    samples = topics.get_topic(name=TopicName("system", "load", "samples"))
    subscribe(samples, "many", consumers=5)
    assert not Evaluation.objects.filter(pk=samples.incarnation).exists()
    assert evaluate_due_topics() == []
    assert evaluate_topic(incarnation=samples.incarnation) is None
    assert operations(samples) == []


@pytest.mark.parametrize(
    "broken", [{"maxSegments": "many"}, {"autoScaleIntervalSeconds": "often"}, "gibberish"]
)
def test_a_topic_that_cannot_be_evaluated_holds_up_no_other(broken: object) -> None:
    first, ill, last = (ruled(name) for name in ("first", "ill", "last"))
    for topic in (first, last):
        report(topic, {0: HOT})
    Topic.objects.filter(pk=ill.incarnation).update(auto_scale_policy=broken)
    for _ in range(2):
        let_time_come(first, ill, last)
        assert set(evaluate_due_topics()) == {first.incarnation, last.incarnation}
    assert Evaluation.objects.get(pk=ill.incarnation).failures == 2
    assert due_in_seconds(ill) > 0
    assert [operations(topic)[0][1] for topic in (first, last)] == ["msgRateIn", "msgRateIn"]
    topics.set_auto_scale_policy(name=ill.name, override=EAGER, actor=ACTOR)
    report(ill, {0: HOT})
    evaluate_due_topics()
    assert operations(ill)[0][1] == "msgRateIn", "the next tick evaluates it again"


def test_a_topic_that_is_deleted_before_its_evaluation_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The task about a group of consumers that changed is still queued when the topic goes."""
    topic = make_topic("gone")
    evaluations.mark(topic.incarnation)
    assert evaluations.due_now(topic.incarnation)
    topics.delete_topic(name=topic.name, actor=ACTOR)
    assert not autoscaling.evaluate_if_due(incarnation=topic.incarnation)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_contradictory_policy_holds_everything_still_and_says_so() -> None:
    topic = ruled()
    Topic.objects.filter(pk=topic.incarnation).update(auto_scale_policy={"minSegments": 99})
    report(topic, {0: HOT})
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic) == []
    assert autoscaling.list_decisions(name=topic.name, limit=1)[0].rule == "POLICY_INVALID"


@pytest.mark.django_db(transaction=True)
def test_a_locked_topic_is_passed_over_until_the_next_tick(second_connection: Callable[[str], None]) -> None:
    busy, free = ruled("busy"), ruled("free")
    evaluate_due_topics()
    let_time_come(busy, free)
    second_connection(f"SELECT FROM scalable_topic WHERE id = {busy.incarnation} FOR UPDATE")
    assert evaluate_due_topics() == [free.incarnation]
    second_connection("ROLLBACK")
    assert evaluate_due_topics() == [busy.incarnation]
