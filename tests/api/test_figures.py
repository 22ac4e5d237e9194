"""What Prometheus is told of the installation, and the alerts that are made of it."""

import re
from pathlib import Path

import pytest
import yaml
from django.test import override_settings

from scalable.api import metrics
from scalable.api.figures import FigureCollector
from scalable.services import scaling
from scalable.services.autoscaling import evaluate_topic
from tests.services.test_autoscaling import COLD, HOT, report, ruled, subscribe
from tests.topology import ACTOR, append_everywhere, drive, make_topic

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


def test_every_alert_names_figures_that_exist() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    told = {match[0] for match in NAME.finditer(metrics.exposition().decode())}
    for rule in rules:
        named = set(NAME.findall(rule["expr"]))
        assert named, rule["alert"]
        assert named <= told, (rule["alert"], named - told)
        assert rule["annotations"]["summary"]
