"""What Prometheus is told of the installation, and the alerts that are made of it."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from django.test import override_settings

from scalable.api import metrics
from scalable.api.figures import COUNTED, FigureCollector
from scalable.domain.operations import OperationKind, Outcome
from scalable.models import ControllerLease, Evaluation, Node, Operation, PrunedSegment, Segment, Subscription
from scalable.services import controller, pruning, scaling, subscriptions, topics
from scalable.services.autoscaling import evaluate_due_topics, evaluate_topic
from scalable.services.topics import TopicView
from scalable.store import clock, operations, retention
from tests.services.group import leader_of
from tests.services.test_autoscaling import COLD, EAGER, HOT, report, ruled, subscribe
from tests.topology import ACTOR, append_everywhere, drive, layout_of, make_topic

pytestmark = pytest.mark.django_db

RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus/scalable-topics.rules.yml"
NAME = re.compile(r"\b(?:pulsar_)?scalable_\w+")


def samples() -> dict[tuple[str, tuple[str, ...]], float]:
    """Read all figures now, by name and values of labels."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for metric in FigureCollector().collect()
        for sample in metric.samples
    }


def test_a_topics_figures_have_the_names_of_pip_483() -> None:
    topic = ruled("busy", segments=2, minSegments=3, maxSegments=3)
    subscribe(topic, "group", consumers=2)
    append_everywhere(topic, "waits")
    report(topic, {0: HOT, 1: COLD})
    evaluate_topic(incarnation=topic.incarnation)
    for operation in scaling.list_operations(name=topic.name, limit=9):
        drive(operation)
    report(topic, {2: HOT, 3: COLD})
    evaluate_topic(incarnation=topic.incarnation)
    found, name = samples(), str(topic.name)
    assert found["pulsar_scalable_topic_active_segments", (name,)] == 3
    assert found["pulsar_scalable_topic_auto_splits_total", (name,)] == 1
    assert found["pulsar_scalable_topic_auto_merges_total", (name,)] == 0
    assert found["pulsar_scalable_topic_split_suppressed_max_segments_total", (name,)] == 1
    assert found["pulsar_scalable_topic_merge_suppressed_max_depth_total", (name,)] == 0
    assert found["scalable_segment_msg_rate_in", (name, "2")] == HOT["msgRateIn"]
    assert found["scalable_subscription_consumers", (name, "group", "STREAM")] == 2
    assert found["scalable_subscription_assignable_segments", (name, "group", "STREAM")] == 2
    assert found["scalable_operations_total", ("SPLIT", "SUCCEEDED")] == 1
    assert found["scalable_segment_seals_total", ()] == 1
    assert 0 <= found["scalable_load_watermark_age_seconds", ()] < 60


@pytest.mark.parametrize("enabled", [True, False])
def test_a_cap_holds_nothing_back_where_the_autoscaler_is_off(enabled: bool) -> None:
    topic = ruled("capped", segments=2, maxSegments=2, maxDagDepth=0, enabled=enabled)
    report(topic, {0: COLD, 1: COLD})
    evaluate_topic(incarnation=topic.incarnation)
    report(topic, {0: HOT})
    evaluate_topic(incarnation=topic.incarnation)
    found, name = samples(), str(topic.name)
    assert found["pulsar_scalable_topic_split_suppressed_max_segments_total", (name,)] == enabled
    assert found["pulsar_scalable_topic_merge_suppressed_max_depth_total", (name,)] == enabled
    assert found["scalable_topic_split_capped", (name,)] == enabled


def test_what_is_told_does_not_grow_with_the_topics() -> None:
    for number in range(4):
        topic = make_topic(f"one of many {number}", segments=3)
        report(topic, dict.fromkeys(range(3), HOT))
    with override_settings(SCALABLE_METRICS_TOPICS=2, SCALABLE_METRICS_SEGMENTS=4):
        found = samples()
    names = [name for name, _ in found]
    assert names.count("pulsar_scalable_topic_active_segments") == 2
    assert names.count("scalable_segment_msg_rate_in") == 4
    assert found["scalable_topics", ()] >= 4


def test_figures_are_not_read_again_for_a_while() -> None:
    collector = FigureCollector()

    def topics() -> float:
        (told,) = [metric for metric in collector.collect() if metric.name == "scalable_topics"]
        return told.samples[0].value

    before = topics()
    make_topic("later")
    assert topics() == before
    with override_settings(SCALABLE_METRICS_CACHE_SECONDS=0):
        assert topics() == before + 1


def test_an_operation_that_waits_is_told_with_its_age() -> None:
    assert samples()["scalable_operation_oldest_unfinished_seconds", ()] == 0
    scaling.request_split(name=make_topic("waiting").name, segment_id=0, actor=ACTOR)
    assert samples()["scalable_operation_oldest_unfinished_seconds", ()] > 0


@pytest.mark.parametrize("read_only", [False, True])
def test_nothing_is_overdue_where_nobody_is_to_evaluate(read_only: bool) -> None:
    topic = make_topic("due")
    Evaluation.objects.filter(topic=topic.incarnation).update(due_at=clock.moment(0))
    with override_settings(SCALABLE_READ_ONLY=read_only):
        assert (samples()["scalable_autoscale_overdue_seconds", ()] > 60) is not read_only


# Counters, as Prometheus reckons with them.

NEVER_FALL = {
    *("scalable_segment_seals_total", "scalable_assignment_changes_total", "scalable_leader_failovers_total"),
    *("scalable_autoscale_flaps_total", "scalable_operations_total"),
}
Scrape = dict[tuple[str, tuple[str, ...]], float]


def counters() -> Scrape:
    """Scrape what is told of the installation as counters."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for metric in FigureCollector().collect()
        if metric.type == "counter"
        for sample in metric.samples
        if "topic" not in sample.labels
    }


def increase(scrapes: list[Scrape]) -> Scrape:
    """Do what Prometheus does with scrapes: a counter that fell began anew, and all of it is an increase."""
    found: Scrape = {}
    for before, after in pairwise(scrapes):
        for series, value in after.items():
            if series in before:  # a series that was not there before has no increase yet
                began = value if value < before[series] else value - before[series]
                found[series] = found.get(series, 0) + began
    return found


def live(name: str) -> TopicView:
    """Let a topic split and merge, undo both, change owners, pass to another leader, and fail."""
    topic = ruled(name, segments=1, minSegments=1)
    leader = leader_of(topic)
    found = controller.find_or_create(name=topic.name, subscription="group")
    controller.register_consumer(leader=leader, subscription_id=found.subscription_id, consumer="reader")
    for rates in (HOT, COLD, HOT):
        report(topic, {segment.segment_id: rates for segment in layout_of(topic).active})
        evaluate_topic(incarnation=topic.incarnation)
        for operation in scaling.list_operations(name=topic.name, limit=9, unfinished_only=True):
            drive(operation)
    for _ in range(3):
        Node.objects.filter(pk=leader.node_id).delete()
        leader = leader_of(topic)
    active = layout_of(topic).active[0].segment_id
    aborted = scaling.request_split(name=topic.name, segment_id=active, actor=ACTOR)
    scaling.abort_operation(name=topic.name, operation_id=aborted.operation_id, actor=ACTOR)
    lease = operations.take_lease(
        scaling.request_split(name=topic.name, segment_id=active, actor=ACTOR).operation_id,
        runner="test",
        seconds=60,
    )
    assert lease is not None
    operations.fail(lease, {"code": "internal"})
    return topic


def delete_topic(topic: TopicView) -> None:
    topics.delete_topic(name=topic.name, force=True, actor=ACTOR)


def delete_subscription(topic: TopicView) -> None:
    subscriptions.delete_subscription(name=topic.name, subscription="group")


def forget_what_is_old(topic: TopicView) -> None:
    delete_subscription(topic)
    Segment.objects.filter(state="SEALED").update(sealed_at="2000-01-01T00:00:00Z")
    pruning.sweep_topic(incarnation=topic.incarnation)
    gone = PrunedSegment.objects.filter(topic_id=topic.incarnation)
    assert gone.exists()
    gone.delete()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("going", [delete_topic, delete_subscription, forget_what_is_old])
def test_nothing_that_goes_is_an_increase(
    going: Callable[[TopicView], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that is a sum over rows falls with them, and what is left looks like so many new events."""
    monkeypatch.setattr(retention, "KEPT_OPERATIONS", 1)
    for name in ("stays", "goes too"):
        live(name)
    topic = live("goes")
    before = counters()
    assert {name for (name, _), value in before.items() if value >= 2} == NEVER_FALL
    rows = counted_rows()
    going(topic)
    assert counted_rows() != rows
    after = counters()
    assert {series: n for series, n in increase([before, after]).items() if n} == {}
    assert after == before


def counted_rows() -> list[int]:
    """Count the rows that counters are sums over."""
    return [table.objects.count() for table in (Operation, PrunedSegment, Subscription, ControllerLease)]


def test_the_first_failure_is_an_increase() -> None:
    """A series that comes into being with its first event never rises by it."""
    before = counters()
    for kind in OperationKind:
        for outcome in Outcome:
            assert before["scalable_operations_total", (kind.value, outcome.value)] >= 0
    live("fails")
    risen = {series for series, n in increase([before, counters()]).items() if n}
    assert ("scalable_operations_total", ("SPLIT", "FAILED")) in risen
    assert ("scalable_operations_total", ("SPLIT", "ABORTED")) in risen


def test_what_runs_is_no_counter() -> None:
    topic = make_topic("running")
    running = ("scalable_operations_running", ("SPLIT",))
    scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    assert samples()[running] == 1
    delete_topic(topic)
    assert samples()[running] == 0
    assert all("RUNNING" not in labels for _, labels in samples())


# Alerts.

ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
SIMPLE = re.compile(r"max by \(topic\) \((?P<name>\w+)\) == 1")


def fires(alert: str, topic: TopicView) -> bool:
    """Tell whether an alert's expression, which asks whether a gauge of a topic is 1, holds now."""
    asked = SIMPLE.fullmatch(ALERTS[alert]["expr"])
    assert asked
    return samples()[asked["name"], (str(topic.name),)] == 1


def test_a_steady_topic_at_its_cap_is_told_for_as_long_as_it_is() -> None:
    topic = ruled("at its cap", maxSegments=1)
    report(topic, {0: HOT})
    assert not fires("ScalableTopicCapped", topic)
    evaluate_due_topics()
    for _ in range(3):
        assert evaluate_due_topics() == [], "nothing changes, so nobody looks"
        assert fires("ScalableTopicCapped", topic)
    topics.set_auto_scale_policy(name=topic.name, override={"enabled": False, "maxSegments": 1}, actor=ACTOR)
    evaluate_due_topics()
    assert not fires("ScalableTopicCapped", topic), "it would not be split anyway"
    topics.set_auto_scale_policy(name=topic.name, override={**EAGER, "maxSegments": 2}, actor=ACTOR)
    evaluate_due_topics()
    assert not fires("ScalableTopicCapped", topic)


def test_a_steady_topic_of_deep_lineage_is_told_for_as_long_as_it_is() -> None:
    topic = ruled("deep", segments=2, maxDagDepth=0)
    report(topic, {0: COLD, 1: COLD})
    evaluate_due_topics()
    assert fires("ScalableTopicDeep", topic)
    assert evaluate_due_topics() == []
    assert fires("ScalableTopicDeep", topic)
    topics.set_auto_scale_policy(name=topic.name, override={**EAGER, "maxDagDepth": 1}, actor=ACTOR)
    evaluate_due_topics()
    assert not fires("ScalableTopicDeep", topic)


def test_no_alert_counts_evaluations() -> None:
    """Where nothing changes a topic is looked at once an hour: a number of looks tells nothing of it."""
    counted_by_looks = {f"{COUNTED[name][0]}_total" for name in ("splits_capped", "merges_capped")}
    for alert, rule in ALERTS.items():
        assert counted_by_looks.isdisjoint(NAME.findall(rule["expr"])), alert


def test_every_increase_is_of_a_counter() -> None:
    types = {f"{metric.name}_total" for metric in FigureCollector().collect() if metric.type == "counter"}
    told = [name for rule in ALERTS.values() for name in re.findall(r"increase\((\w+)", rule["expr"])]
    assert told
    assert set(told) <= types


def test_every_alert_names_figures_that_exist() -> None:
    assert len(ALERTS) > 8
    told = {match[0] for match in NAME.finditer(metrics.exposition().decode())}
    for alert, rule in ALERTS.items():
        named = set(NAME.findall(rule["expr"]))
        assert named, alert
        assert named <= told, (alert, named - told)
        assert rule["annotations"]["summary"]
