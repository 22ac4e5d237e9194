"""Policies: reading, resolving and refusing; numbers are those of Pulsar's test vectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import PolicyInvalid, PolicyUnreadable, UnknownField
from scalable.domain.policy import (
    DEFAULTS,
    LONGEST_PEAK_SECONDS,
    AutoScalePolicy,
    PolicySource,
    parse_override,
    resolve,
    validate,
    violations,
)
from scalable.domain.profiles import PROFILES

DOCUMENTED_DEFAULTS = {
    "profile": "pip-483",
    "enabled": True,
    "maxSegments": 64,
    "minSegments": 1,
    "maxDagDepth": 10,
    "splitCooldownSeconds": 60,
    "mergeCooldownSeconds": 300,
    "mergeWindowSeconds": 300,
    "splitMsgRateInThreshold": 10_000,
    "splitBytesRateInThreshold": 50_000_000,
    "splitMsgRateOutThreshold": 50_000,
    "splitBytesRateOutThreshold": 250_000_000,
    "mergeMsgRateInThreshold": 1_000,
    "mergeBytesRateInThreshold": 5_000_000,
    "mergeMsgRateOutThreshold": 5_000,
    "mergeBytesRateOutThreshold": 25_000_000,
    "autoScaleIntervalSeconds": 60,
    "loadReportIntervalSeconds": 10,
    "rateWindowSeconds": 60,
    "entryBucketLane": False,
    "rebucketCooldownSeconds": 60,
    "splitVsRebucketMinMsgRateInThreshold": 1_000,
    "maxActionsPerTick": 1,
    "maxSplitChildren": 2,
    "splitTargetShare": 0.5,
    "loadBalancedSplit": False,
    "isolateDominantKey": False,
    "dominantKeyShare": 0.5,
    "lookAheadSeconds": 0,
    "maxMergeSegments": 2,
    "minMergeSegments": 2,
    "mergeTargetShare": 0,
    "mergePeakSeconds": 0,
    "mergeMinAgeSeconds": 0,
    "mergeRepeatSeconds": 0,
    "mergeKeepsConsumers": False,
    "mergeMakesRoom": False,
}
MERGE_THRESHOLDS = [name for name in DOCUMENTED_DEFAULTS if name.startswith("merge") and "Threshold" in name]
SPLIT_THRESHOLDS = [name.replace("merge", "split") for name in MERGE_THRESHOLDS]


def test_defaults_are_those_of_pip_483_and_valid() -> None:
    effective = resolve()
    assert effective.policy == AutoScalePolicy()
    assert effective.policy.to_json() == DOCUMENTED_DEFAULTS
    assert set(effective.sources.values()) == {PolicySource.DEFAULT}
    validate(effective.policy)


def test_each_field_comes_from_the_most_specific_level_that_sets_it() -> None:
    effective = resolve({"maxSegments": 8}, {"maxSegments": 16, "minSegments": 2})
    assert (effective.policy.max_segments, effective.policy.min_segments) == (8, 2)
    assert effective.sources["maxSegments"] is PolicySource.TOPIC
    assert effective.sources["minSegments"] is PolicySource.NAMESPACE
    assert effective.sources["enabled"] is PolicySource.DEFAULT
    assert effective.to_json()["sources"]["maxSegments"] == "topic"
    assert effective.to_json()["violations"] == []


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_gives_the_defaults_of_fields_that_no_level_sets(profile: str) -> None:
    effective = resolve({"profile": profile, "maxSegments": 8}, {"minSegments": 2})
    validate(effective.policy)
    assert effective.sources["maxSegments"] is PolicySource.TOPIC
    assert effective.sources["minSegments"] is PolicySource.NAMESPACE
    for name, value in PROFILES[profile].items():
        assert effective.policy.to_json()[name] == value
        assert effective.sources[name] is PolicySource.PROFILE
    assert parse_override(PROFILES[profile]) == PROFILES[profile]


def test_a_topic_chooses_its_profile_over_its_namespace() -> None:
    effective = resolve({"profile": "pip-483"}, {"profile": "recommended", "splitCooldownSeconds": 7})
    assert effective.policy == AutoScalePolicy(split_cooldown_seconds=7)
    assert resolve(namespace={"profile": "recommended"}).policy.profile == "recommended"


def test_an_override_as_pulsar_writes_it_can_be_read() -> None:
    upstream = {
        "enabled": True,
        "maxSegments": 64,
        "minSegments": 1,
        "maxDagDepth": 10,
        "splitCooldownSeconds": 60,
        "rebucketCooldownSeconds": 60,
        "mergeCooldownSeconds": 300,
        "mergeWindowSeconds": 300,
        "splitVsRebucketMinMsgRateInThreshold": 1000.0,
        "splitMsgRateInThreshold": 10000.0,
        "splitMsgRateOutThreshold": 50000.0,
        "mergeMsgRateInThreshold": 1000.0,
        "mergeMsgRateOutThreshold": 5000.0,
        "splitBytesRateInThreshold": 50_000_000,
        "splitBytesRateOutThreshold": 250_000_000,
        "mergeBytesRateInThreshold": 5_000_000,
        "mergeBytesRateOutThreshold": None,
    }
    assert resolve(parse_override(upstream)).policy == AutoScalePolicy()


def test_vector_83_levels_valid_alone_and_contradictory_together() -> None:
    namespace, topic = {"mergeMsgRateInThreshold": 5_000}, {"splitMsgRateInThreshold": 2_000}
    validate(resolve(namespace=namespace).policy)
    validate(resolve(topic).policy)
    with pytest.raises(PolicyInvalid) as caught:
        validate(resolve(topic, namespace).policy)
    assert "splitMsgRateInThreshold (2000)" in caught.value.problem
    assert "mergeMsgRateInThreshold (5000)" in caught.value.problem


@pytest.mark.parametrize(
    "override",
    [
        pytest.param({"minSegments": 1_000_000}, id="vector 84a"),
        pytest.param({"splitMsgRateInThreshold": 0}, id="vector 84b"),
        pytest.param({"splitCooldownSeconds": -1}, id="vector 84c"),
        {"mergeCooldownSeconds": -1},
        {"mergeWindowSeconds": -0.5},
        {"minSegments": 0},
        {"maxSegments": 0},
        {"maxSegments": 65_537},
        {"maxDagDepth": -1},
        {"autoScaleIntervalSeconds": 0},
        {"loadReportIntervalSeconds": 0},
        {"rateWindowSeconds": 9},
        {"rebucketCooldownSeconds": -1},
        {"splitVsRebucketMinMsgRateInThreshold": -1},
        {"maxActionsPerTick": 0},
        {"maxActionsPerTick": 257},
        {"maxSplitChildren": 1},
        {"maxSplitChildren": 257},
        {"maxMergeSegments": 1},
        {"splitTargetShare": 0},
        {"splitTargetShare": 1.5},
        {"dominantKeyShare": 0},
        {"lookAheadSeconds": -1},
        {"mergeTargetShare": 1.1},
        {"mergePeakSeconds": -1},
        {"mergeMinAgeSeconds": -1},
        {"mergeRepeatSeconds": -1},
        *({name: 0} for name in SPLIT_THRESHOLDS),
        *({name: -1} for name in [*SPLIT_THRESHOLDS, *MERGE_THRESHOLDS]),
    ],
    ids=str,
)
@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_contradictory_policies_are_refused_on_every_level(override: dict[str, Any], level: str) -> None:
    policy = resolve(**{level: parse_override(override)}).policy
    with pytest.raises(PolicyInvalid) as caught:
        validate(policy)
    assert next(iter(override)) in caught.value.problem


def test_a_least_length_of_runs_above_the_most_is_refused_where_one_override_has_both() -> None:
    with pytest.raises(PolicyInvalid, match=r"minMergeSegments \(5\) is above maxMergeSegments \(3\)"):
        parse_override({"minMergeSegments": 5, "maxMergeSegments": 3})
    for least, most in ((3, 3), (2, 3)):
        assert parse_override({"minMergeSegments": least, "maxMergeSegments": most})
    for alone in ({"profile": "recommended", "maxMergeSegments": 2}, {"minMergeSegments": 5}):
        validate(resolve(parse_override(alone)).policy)  # what is inherited counts as far as it fits


def test_a_peak_longer_than_any_that_counts_is_refused_but_holds_nothing_that_is_stored() -> None:
    assert parse_override({"mergePeakSeconds": LONGEST_PEAK_SECONDS}) == {"mergePeakSeconds": 3_600}
    for seconds in (3_600.5, 3_601, 315_360_000):
        with pytest.raises(PolicyInvalid, match=rf"mergePeakSeconds \({seconds}\) is above 3600"):
            parse_override({"profile": "recommended", "mergePeakSeconds": seconds})
        stored = resolve({"maxSegments": 8}, {"mergePeakSeconds": seconds}).policy
        validate(stored)
        assert stored.peak_seconds == LONGEST_PEAK_SECONDS
    for profile in PROFILES:
        policy = resolve({"profile": profile}).policy
        assert policy.peak_seconds == policy.merge_peak_seconds


def test_vector_84d_all_merge_thresholds_may_be_zero() -> None:
    validate(resolve(parse_override(dict.fromkeys(MERGE_THRESHOLDS, 0))).policy)


def test_equal_split_and_merge_thresholds_are_refused() -> None:
    with pytest.raises(PolicyInvalid):
        validate(resolve({"mergeBytesRateOutThreshold": 250_000_000}).policy)


def test_namespace_maximum_below_topic_minimum_names_both() -> None:
    with pytest.raises(PolicyInvalid) as caught:
        validate(resolve({"minSegments": 8}, {"maxSegments": 4}).policy)
    assert caught.value.violations == ["maxSegments (4) is below minSegments (8)"]


def test_all_violations_are_named_at_once() -> None:
    assert (
        len(violations(resolve({"minSegments": 0, "maxDagDepth": -1, "splitCooldownSeconds": -1}).policy))
        == 3
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", 1),
        ("enabled", "true"),
        ("maxSegments", True),
        ("maxSegments", 8.0),
        ("maxSegments", "8"),
        ("maxSegments", 10**400),
        ("splitCooldownSeconds", "1m"),
        ("splitCooldownSeconds", float("nan")),
        ("splitMsgRateInThreshold", float("nan")),
        ("splitMsgRateInThreshold", float("inf")),
        ("mergeMsgRateInThreshold", -float("inf")),
        ("splitMsgRateInThreshold", True),
        ("splitMsgRateInThreshold", [1]),
        ("profile", "pulsar-6"),
        ("profile", 483),
        ("profile", ["pip-483"]),
    ],
)
def test_unreadable_values_name_their_field(name: str, value: object) -> None:
    with pytest.raises(PolicyUnreadable) as caught:
        parse_override({name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("body", [None, [], "{}", 1, True])
def test_a_body_that_is_no_object_is_unreadable(body: object) -> None:
    with pytest.raises(PolicyUnreadable):
        parse_override(body)


def test_unknown_fields_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownField) as caught:
        parse_override({"maxSegment": 3})
    assert caught.value.field == "maxSegment"
    assert set(caught.value.known) == set(DOCUMENTED_DEFAULTS)


def test_null_means_inherit() -> None:
    assert parse_override({"maxSegments": None, "enabled": False}) == {"enabled": False}
    assert resolve(parse_override({"maxSegments": None}), {"maxSegments": 3}).policy.max_segments == 3


@given(st.sets(st.sampled_from(sorted(DEFAULTS))), st.sets(st.sampled_from(sorted(DEFAULTS))))
def test_an_override_of_defaults_changes_sources_alone(topic: set[str], namespace: set[str]) -> None:
    topic_override = parse_override({name: DEFAULTS[name] for name in topic})
    namespace_override = parse_override({name: DEFAULTS[name] for name in namespace})
    effective = resolve(topic_override, namespace_override)
    assert effective.policy == AutoScalePolicy()
    for name, source in effective.sources.items():
        assert (source is PolicySource.TOPIC) == (name in topic)
        assert (source is PolicySource.DEFAULT) == (name not in topic | namespace)
