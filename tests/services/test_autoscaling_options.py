"""What the autoscaler does beyond one split or merge: wide splits, runs, buckets, flaps, and the dry run."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scalable.domain.errors import PolicyInvalid, PolicyUnreadable, SegmentsFixed, TopicNotFound
from scalable.domain.names import TopicName
from scalable.domain.operations import Outcome
from scalable.models import Evaluation, Segment, Subscription
from scalable.services import (
    autoscaling,
    evaluation_inputs,
    loads,
    namespace_policies,
    pruning,
    scaling,
    subscriptions,
    topics,
)
from scalable.services.autoscaling import evaluate_due_topics, evaluate_topic, preview_decision
from scalable.services.topics import TopicView
from scalable.store.clock import milliseconds
from tests.services.ageing import FOR_EVER, keep
from tests.services.test_autoscaling import (
    COLD,
    EAGER,
    HOT,
    let_time_come,
    operations,
    report,
    ruled,
    rules,
    subscribe,
)
from tests.topology import ACTOR, drive, layout_of, make_topic, topic_name

pytestmark = pytest.mark.django_db


def report_minutes(topic: TopicView, parts: dict[int, list[float]], *, minutes: int = 1) -> None:
    """Let the load pipeline report the last minutes of segments, all alike."""
    this_minute_ms = milliseconds(timezone.now()) // 60_000 * 60_000
    tiles = [
        {
            "topic": str(topic.name),
            "incarnation": topic.incarnation,
            "segmentId": segment_id,
            "minuteMs": this_minute_ms - back * 60_000,
            "mean": rates,
            "max": rates,
        }
        for segment_id, rates in parts.items()
        for back in range(minutes)
    ]
    loads.report_tiles(tiles=tiles)


def finish(topic: TopicView) -> None:
    """Drive what the autoscaler asked for to its end."""
    for operation in scaling.list_operations(name=topic.name, limit=99, unfinished_only=True):
        assert drive(operation).outcome is Outcome.SUCCEEDED


def test_recommended_splits_a_hot_segment_at_once_into_as_many_parts_as_it_needs_with_equal_loads() -> None:
    topic = make_topic("live", segments=1)
    topics.set_auto_scale_policy(name=topic.name, override={"profile": "recommended"}, actor=ACTOR)
    parts = [1_600.0] * 16 + [100.0] * 16  # the lower half of the range has sixteen times the load
    report_minutes(topic, {0: parts}, minutes=6)
    report(topic, {0: {**COLD, "msgRateIn": sum(parts), "msgRateOut": sum(parts)}})
    assert evaluate_due_topics() == [topic.incarnation]
    finish(topic)
    active = layout_of(topic).active
    assert len(active) > 2
    inside = [sum(rate * _share(segment, part) for part, rate in enumerate(parts)) for segment in active]
    assert max(inside) < 2 * sum(parts) / len(active)
    assert min(segment.hash_range.size for segment in active) < 65_536 / len(active) / 1.5


def _share(segment: Any, part: int) -> float:
    """Give how much of a 32nd of the hash space lies in a segment."""
    start, end = part * 2_048, (part + 1) * 2_048
    common = min(segment.hash_range.end + 1, end) - max(segment.hash_range.start, start)
    return float(max(0, common) / 2_048)


def test_recommended_is_woken_by_the_minutes_of_load_and_others_are_not() -> None:
    quiet = ruled("quiet", autoScaleIntervalSeconds=0.1)
    looking = make_topic("looking", segments=1)
    override = {"profile": "recommended", "autoScaleIntervalSeconds": 0.1}
    topics.set_auto_scale_policy(name=looking.name, override=override, actor=ACTOR)
    evaluate_due_topics()
    Evaluation.objects.update(not_before="2000-01-01T00:00:00Z")
    for topic in (quiet, looking):
        report_minutes(topic, {0: [1.0] * 32})
    assert evaluate_due_topics() == [looking.incarnation]


def test_several_actions_are_taken_at_once_and_told_in_one_decision() -> None:
    topic = ruled(segments=4, maxActionsPerTick=3)
    report(topic, dict.fromkeys(range(4), HOT))
    evaluate_topic(incarnation=topic.incarnation)
    assert len(operations(topic)) == 3
    (entry,) = autoscaling.list_decisions(name=topic.name, limit=9)
    told = {operation.operation_id for operation in scaling.list_operations(name=topic.name, limit=9)}
    assert set(entry.explanation["operationIds"]) == told
    assert len(entry.segment_ids) == 3
    finish(topic)
    assert len(layout_of(topic).active) == 7
    assert Evaluation.objects.get(pk=topic.incarnation).auto_splits == 3


def test_an_action_that_is_refused_stops_no_other_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ruled(segments=2, maxActionsPerTick=2)
    report(topic, dict.fromkeys(range(2), HOT))
    asked = scaling.request_split

    def refuse_the_first(**request: Any) -> Any:
        if request["segment_id"] == 0:
            raise SegmentsFixed(topic="test")
        return asked(**request)

    monkeypatch.setattr(autoscaling, "request_split", refuse_the_first)
    evaluate_topic(incarnation=topic.incarnation)
    assert [parents for _, _, parents in operations(topic)] == [(1,)]
    (entry,) = autoscaling.list_decisions(name=topic.name, limit=9)
    assert [error["code"] for error in entry.explanation["refused"]] == ["segments_fixed"]


def test_runs_of_cold_neighbours_merge_in_one_operation() -> None:
    topic = ruled(segments=6, maxMergeSegments=4)
    report(topic, dict.fromkeys(range(6), COLD))
    evaluate_topic(incarnation=topic.incarnation)
    assert len(operations(topic)[0][2]) > 2
    finish(topic)
    assert len(layout_of(topic).active) < 5


def test_the_lane_of_entry_buckets_serves_consumers_of_a_cold_topic_without_a_split() -> None:
    topic = ruled(segments=2, profile="pulsar-5.0", rebucketCooldownSeconds=600)
    report(topic, {key: {**COLD, "msgRateIn": 1.0} for key in range(2)})
    subscribe(topic, "stream", consumers=8)
    Subscription.objects.filter(topic_id=topic.incarnation).update(key_shared=True)
    evaluate_topic(incarnation=topic.incarnation)
    found = scaling.list_operations(name=topic.name, limit=9)
    assert [(operation.kind.value, operation.reason) for operation in found] == [
        ("REBUCKET", "below-split-rate-floor")
    ] * 2
    assert len(autoscaling.list_decisions(name=topic.name, limit=9)[0].explanation["operationIds"]) == 2
    finish(topic)
    assert [len(segment.entry_bucket_splits) + 1 for segment in layout_of(topic).active] == [4, 4]
    assert topics.get_topic(name=topic.name).last_rebucket_at_ms is not None
    assert Evaluation.objects.get(pk=topic.incarnation).auto_rebuckets == 2


def test_checkpoint_groups_count_as_stream_subscriptions_do() -> None:
    topic = ruled()
    subscribe(topic, "group", kind="CHECKPOINT", consumers=2)
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic) == [("autoscaler", "consumer-count", (0,))]


def test_a_deleted_subscription_counts_no_longer() -> None:
    topic = ruled(maxSegments=1)
    subscribe(topic, "stream", consumers=2)
    evaluate_topic(incarnation=topic.incarnation)
    assert rules(topic)[0] == "MAX_SEGMENTS"
    subscriptions.delete_subscription(name=topic.name, subscription="stream")
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic)[0] != "MAX_SEGMENTS"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("read_to_the_end", [False, True])
def test_a_merge_that_undoes_a_split_is_a_flap_for_an_hour(read_to_the_end: bool) -> None:
    topic = ruled(segments=1)
    keep(topic, 0 if read_to_the_end else FOR_EVER)
    drive(scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR))
    assert bool(pruning.prune_topic(incarnation=topic.incarnation)) == read_to_the_end
    report(topic, {1: COLD, 2: COLD})
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic)[0][1] == "cold"
    finish(topic)
    assert bool(pruning.prune_topic(incarnation=topic.incarnation)) == read_to_the_end
    (child,) = [segment.segment_id for segment in layout_of(topic).active]
    report(topic, {child: HOT})
    evaluate_topic(incarnation=topic.incarnation)
    counted = Evaluation.objects.get(pk=topic.incarnation)
    assert (counted.auto_splits, counted.auto_merges, counted.flaps) == (1, 1, 2)
    assert autoscaling.list_decisions(name=topic.name, limit=1)[0].explanation["flaps"] == 1


def test_an_old_split_may_be_merged_without_being_a_flap() -> None:
    topic = ruled(segments=1)
    drive(scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR))
    Segment.objects.filter(topic_id=topic.incarnation).update(created_at=timezone.now() - timedelta(hours=2))
    report(topic, {1: COLD, 2: COLD})
    with CaptureQueriesContext(connection) as asked:
        evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic)[0][1] == "cold"
    assert Evaluation.objects.get(pk=topic.incarnation).flaps == 0
    assert not any("&&" in each["sql"] for each in asked), (
        "the history of parents is asked for the young alone"
    )


def test_the_dry_run_tells_what_would_be_done_and_does_nothing() -> None:
    topic = ruled(segments=1)
    report(topic, {0: HOT})
    before = topics.get_topic(name=topic.name)
    decision, effective = preview_decision(name=topic.name)
    assert (decision.kind, decision.rule, effective.policy.split_cooldown_seconds) == (
        "SPLIT",
        "msgRateIn",
        0,
    )
    decision, effective = preview_decision(name=topic.name, override={"maxSegments": 1})
    assert (decision.kind, decision.rule, effective.policy.max_segments) == (None, "MAX_SEGMENTS", 1)
    assert topics.get_topic(name=topic.name) == before
    assert operations(topic) == []
    assert autoscaling.list_decisions(name=topic.name, limit=9) == []


def test_the_dry_run_refuses_what_a_policy_refuses() -> None:
    topic = make_topic("asked")
    with pytest.raises(PolicyInvalid, match="minSegments"):
        preview_decision(name=topic.name, override={"minSegments": 9, "maxSegments": 8})
    with pytest.raises(PolicyUnreadable):
        preview_decision(name=topic.name, override={"maxSegments": float("nan")})
    with pytest.raises(SegmentsFixed):
        preview_decision(name=TopicName("system", "load", "samples"))
    with pytest.raises(TopicNotFound):
        preview_decision(name=topic_name("nobody"))


def test_the_journal_is_read_page_by_page() -> None:
    topic = make_topic("flapping")
    for number in range(7):
        override = {"enabled": bool(number % 2)}
        topics.set_auto_scale_policy(name=topic.name, override=override, actor=ACTOR)
        evaluate_topic(incarnation=topic.incarnation)
    whole = autoscaling.list_decisions(name=topic.name, limit=99)
    pages, before = [], None
    while page := autoscaling.list_decisions(name=topic.name, limit=3, before=before):
        pages += page
        before = page[-1].decision_id
    assert pages == whole
    assert len(whole) == 7


def test_what_becomes_invalid_by_inheritance_holds_still_visibly_and_heals() -> None:
    topic = make_topic("heir", segments=2)
    topics.set_auto_scale_policy(name=topic.name, override={**EAGER, "minSegments": 8}, actor=ACTOR)
    subscribe(topic, "stream", consumers=9)
    where = {"tenant": "public", "namespace": "default"}
    namespace_policies.set_auto_scale_policy(**where, override={"maxSegments": 4}, actor=ACTOR)
    assert evaluate_due_topics() == [topic.incarnation]
    assert rules(topic) == ["POLICY_INVALID"]
    (guard,) = autoscaling.list_decisions(name=topic.name, limit=1)[0].explanation["heldBy"]
    assert "4" in guard["detail"]
    assert "8" in guard["detail"]
    assert operations(topic) == []
    namespace_policies.remove_auto_scale_policy(**where, actor=ACTOR)
    evaluate_due_topics()
    assert operations(topic) == [("autoscaler", "consumer-count", (0,))]


@pytest.mark.parametrize("bound", ["min", "max"])
def test_at_its_bounds_a_topic_still_goes_the_other_way(bound: str) -> None:
    if bound == "min":
        topic = ruled(segments=2, minSegments=2)
        report(topic, {0: HOT, 1: COLD})
        expected = "msgRateIn"
    else:
        topic = ruled(segments=2, maxSegments=2)
        report(topic, {0: COLD, 1: COLD})
        expected = "cold"
    evaluate_topic(incarnation=topic.incarnation)
    assert operations(topic)[0][1] == expected


def test_policy_and_properties_outlive_splits_merges_and_a_change_beside_them() -> None:
    topic = make_topic("kept", segments=2, colour="red")
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 9}, actor=ACTOR)
    split = scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR)
    topics.set_properties(name=topic.name, properties={"colour": "blue"}, actor=ACTOR)
    drive(split)
    merge = scaling.request_merge(
        name=topic.name, segment_ids=[segment.segment_id for segment in layout_of(topic).active], actor=ACTOR
    )
    drive(merge)
    kept = topics.get_topic(name=topic.name)
    assert (kept.properties, kept.auto_scale_policy) == ({"colour": "blue"}, {"maxSegments": 9})


def test_a_load_that_swings_about_its_threshold_is_no_reason_to_flap() -> None:
    topic = make_topic("swinging", segments=1)
    override = {"splitCooldownSeconds": 0, "mergeCooldownSeconds": 0}
    topics.set_auto_scale_policy(name=topic.name, override=override, actor=ACTOR)
    for swing in range(10):
        total = 10_000.0 * (0.8 if swing % 2 else 1.2)
        active = layout_of(topic).active
        report(topic, {each.segment_id: {**COLD, "msgRateIn": total / len(active)} for each in active})
        let_time_come(topic)
        evaluate_due_topics()
        finish(topic)
    assert len(operations(topic)) == 1
    assert Evaluation.objects.get(pk=topic.incarnation).flaps == 0


def test_the_settings_of_the_installation_rule_where_nothing_else_does(settings: Any) -> None:
    settings.SCALABLE_POLICY_DEFAULTS = {"maxSegments": 1}
    topic = make_topic("default", segments=1)
    report(topic, {0: HOT})
    evaluate_topic(incarnation=topic.incarnation)
    assert rules(topic)[0] == "MAX_SEGMENTS"
    assert topics.effective_policy(name=topic.name).policy.max_segments == 1


def test_the_settings_say_which_change_is_written(settings: Any) -> None:
    settings.SCALABLE_LOAD_CHANGE_THRESHOLD = 0.5
    topic = make_topic("wobbling", segments=1)
    report(topic, {0: {**COLD, "msgRateIn": 100.0}})
    report(topic, {0: {**COLD, "msgRateIn": 149.0}})
    assert loads.topic_loads(name=topic.name).loads[0].rates.msg_rate_in == 100
    report(topic, {0: {**COLD, "msgRateIn": 151.0}})
    assert loads.topic_loads(name=topic.name).loads[0].rates.msg_rate_in == 151


def test_one_failure_to_read_is_made_up_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ruled(segments=1)
    report(topic, {0: HOT})
    read = evaluation_inputs.read_inputs

    def fail_once(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(autoscaling, "read_inputs", read)
        raise RuntimeError("the loads cannot be read")

    monkeypatch.setattr(autoscaling, "read_inputs", fail_once)
    assert evaluate_due_topics() == [topic.incarnation]
    assert operations(topic) == [("autoscaler", "msgRateIn", (0,))]
    assert Evaluation.objects.get(pk=topic.incarnation).evaluated_at is not None
