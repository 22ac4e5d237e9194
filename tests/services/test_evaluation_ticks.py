"""What a tick must not lose or be held up by: changes meanwhile, locked or failing topics, new settings."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from scalable.models import Evaluation, LoadWatermark, Topic
from scalable.services import autoscaling, namespace_policies
from scalable.services.autoscaling import evaluate_due_topics
from scalable.services.topics import TopicView
from tests.locks import until_somebody_waits_for_a_lock
from tests.services.test_autoscaling import (
    COLD,
    due_in_seconds,
    let_time_come,
    report,
    ruled,
    rules,
)
from tests.topology import ACTOR, make_topic

UNREADABLE = {"maxSegments": "many"}


def evaluated_elsewhere(topic: TopicView) -> None:
    try:
        autoscaling.evaluate_topic(incarnation=topic.incarnation)
    finally:
        connections.close_all()


def test_what_changes_while_an_evaluation_waits_for_its_topic_is_not_lost(
    second_connection: Callable[[str], None],
) -> None:
    """The evaluation sees the namespace as it was before it waited, and the marks must be as old."""
    topic = make_topic("watched")
    second_connection(f"SELECT FROM scalable_topic WHERE id = {topic.incarnation} FOR UPDATE")
    with ThreadPoolExecutor(1) as pool:
        evaluation = pool.submit(evaluated_elsewhere, topic)
        until_somebody_waits_for_a_lock()
        namespace_policies.set_auto_scale_policy(
            tenant="public", namespace="default", override={"enabled": False}, actor=ACTOR
        )
        second_connection("ROLLBACK")
        evaluation.result()
    assert rules(topic)[0] != "DISABLED", "it was judged by what it had read"
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic)[0] == "DISABLED"


def test_one_tick_takes_all_that_are_due_past_those_that_cannot_be_evaluated(
    second_connection: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoscaling, "TOPICS_PER_BATCH", 3)
    made = [make_topic(f"one of ten {number}") for number in range(10)]
    locked, ill, *well = made
    Topic.objects.filter(pk=ill.incarnation).update(auto_scale_policy=UNREADABLE)
    let_time_come(*made)
    second_connection(f"SELECT FROM scalable_topic WHERE id = {locked.incarnation} FOR UPDATE")
    assert sorted(evaluate_due_topics()) == sorted(topic.incarnation for topic in well)
    second_connection("ROLLBACK")
    assert evaluate_due_topics() == [locked.incarnation]


def grow_stale() -> None:
    """Let the load pipeline have reported long ago."""
    LoadWatermark.objects.update(watermark=timezone.now() - timedelta(seconds=600))


@pytest.mark.django_db
def test_a_failing_topic_waits_though_its_load_became_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscaling, "TURNED_PER_TICK", 1)
    ill, well = (ruled(name, segments=2, minSegments=2) for name in ("ill", "well"))
    for topic in (ill, well):
        report(topic, {0: COLD, 1: COLD})
    assert set(evaluate_due_topics()) == {ill.incarnation, well.incarnation}
    Topic.objects.filter(pk=ill.incarnation).update(auto_scale_policy=UNREADABLE)
    grow_stale()
    assert evaluate_due_topics() == []
    assert evaluate_due_topics() == [well.incarnation], "the failing one takes nobody's place"
    assert evaluate_due_topics() == []
    assert Evaluation.objects.get(pk=ill.incarnation).failures == 1
    assert due_in_seconds(ill) > 0


def let_rhythm_come() -> None:
    """Let an interval pass since the last evaluation of each topic."""
    Evaluation.objects.update(not_before="2000-01-01T00:00:00Z")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changed",
    [
        {"SCALABLE_POLICY_DEFAULTS": {"enabled": False}},
        {"SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT": 16},
    ],
    ids=str,
)
def test_changed_settings_are_judged_by_in_the_next_ticks(
    settings: Any, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(autoscaling, "TURNED_PER_TICK", 2)
    made = [make_topic(f"one of five {number}") for number in range(5)]
    let_time_come(*made)
    assert len(evaluate_due_topics()) == 5
    let_rhythm_come()
    assert evaluate_due_topics() == []
    for name, value in changed.items():
        setattr(settings, name, value)
    ticks = [evaluate_due_topics() for _ in range(4)]
    assert [len(tick) for tick in ticks] == [2, 2, 1, 0]
    assert sorted(chain(*ticks)) == sorted(topic.incarnation for topic in made)
    assert all("DISABLED" in rules(topic) for topic in made) is ("SCALABLE_POLICY_DEFAULTS" in changed)


@pytest.mark.django_db
def test_changed_settings_wait_for_the_rhythm_and_skip_what_fails_or_is_new(settings: Any) -> None:
    early, ill = make_topic("early"), make_topic("ill")
    let_time_come(early, ill)
    assert len(evaluate_due_topics()) == 2
    new = make_topic("new")
    settings.SCALABLE_POLICY_DEFAULTS = {"enabled": False}
    assert evaluate_due_topics() == []
    assert 50 < due_in_seconds(early) <= 60, "it comes with the end of its interval"
    Topic.objects.filter(pk=ill.incarnation).update(auto_scale_policy=UNREADABLE)
    let_time_come(ill)
    assert evaluate_due_topics() == []
    let_rhythm_come()
    marks = Evaluation.objects.get(pk=ill.incarnation).marks
    evaluate_due_topics()
    assert Evaluation.objects.get(pk=ill.incarnation).marks == marks
    assert due_in_seconds(new) > 30
