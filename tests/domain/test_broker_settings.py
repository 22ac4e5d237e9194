"""The settings of PIP-483 by their names and in their units."""

from typing import Any

import pytest

from scalable.domain.broker_settings import SETTINGS, change_threshold, policy_defaults
from scalable.domain.errors import PolicyInvalid, PolicyUnreadable
from scalable.domain.policy import PolicySource, resolve
from scalable.domain.profiles import RECOMMENDED

PIP_483 = {
    "scalableTopicAutoScaleEnabled": ("true", "enabled", True),
    "scalableTopicAutoScaleInterval": ("60s", "autoScaleIntervalSeconds", 60),
    "scalableTopicMaxSegments": ("64", "maxSegments", 64),
    "scalableTopicMinSegments": ("1", "minSegments", 1),
    "scalableTopicMaxDagDepth": ("10", "maxDagDepth", 10),
    "scalableTopicSplitCooldown": ("1m", "splitCooldownSeconds", 60),
    "scalableTopicMergeCooldown": ("5m", "mergeCooldownSeconds", 300),
    "scalableTopicMergeWindow": ("5m", "mergeWindowSeconds", 300),
    "scalableTopicSplitMsgRateInThreshold": ("10000", "splitMsgRateInThreshold", 10_000),
    "scalableTopicSplitBytesRateInThreshold": ("50MB", "splitBytesRateInThreshold", 50_000_000),
    "scalableTopicSplitMsgRateOutThreshold": ("50000", "splitMsgRateOutThreshold", 50_000),
    "scalableTopicSplitBytesRateOutThreshold": ("250MB", "splitBytesRateOutThreshold", 250_000_000),
    "scalableTopicMergeMsgRateInThreshold": ("1000", "mergeMsgRateInThreshold", 1_000),
    "scalableTopicMergeBytesRateInThreshold": ("5MB", "mergeBytesRateInThreshold", 5_000_000),
    "scalableTopicMergeMsgRateOutThreshold": ("5000", "mergeMsgRateOutThreshold", 5_000),
    "scalableTopicMergeBytesRateOutThreshold": ("25MB", "mergeBytesRateOutThreshold", 25_000_000),
    "scalableTopicLoadReportInterval": ("10s", "loadReportIntervalSeconds", 10),
}


@pytest.mark.parametrize(("name", "written"), PIP_483.items())
def test_each_setting_of_the_proposal_is_known_and_read_as_it_is_written(
    name: str, written: tuple[str, str, Any]
) -> None:
    text, field, value = written
    assert SETTINGS[name] == field
    assert policy_defaults({name: text}) == {field: value}


def test_the_defaults_of_the_proposal_are_those_without_any_setting() -> None:
    written = {name: text for name, (text, _, _) in PIP_483.items()}
    assert resolve(defaults=policy_defaults(written)).policy == resolve().policy


def test_a_setting_is_a_default_and_gives_way_to_all_else() -> None:
    defaults = policy_defaults({"scalableTopicMaxSegments": "128", "scalableTopicSplitCooldown": "2m"})
    effective = resolve(namespace={"maxSegments": 9}, defaults=defaults)
    assert (effective.policy.max_segments, effective.policy.split_cooldown_seconds) == (9, 120)
    assert effective.sources["splitCooldownSeconds"] is PolicySource.DEFAULT
    assert (
        resolve({"profile": "recommended"}, defaults=defaults).policy.split_cooldown_seconds
        == RECOMMENDED["splitCooldownSeconds"]
    )


@pytest.mark.parametrize("text", ["many", "1.5", "10 parsecs", "nan", "true"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PolicyUnreadable, match="maxSegments"):
        policy_defaults({"scalableTopicMaxSegments": text})


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(PolicyInvalid, match="minSegments"):
        policy_defaults({"scalableTopicMaxSegments": "2", "scalableTopicMinSegments": "4"})


def test_the_change_that_is_worth_a_write() -> None:
    assert change_threshold({}) == 0.25
    assert change_threshold({"scalableTopicLoadReportRateChangeThreshold": "10%"}) == 0.1
    assert change_threshold({"scalableTopicLoadReportRateChangeThreshold": "0.5"}) == 0.5


@pytest.mark.parametrize("text", ["a lot", "-5%", "true", "25 percent"])
def test_a_change_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PolicyUnreadable, match="scalableTopicLoadReportRateChangeThreshold"):
        change_threshold({"scalableTopicLoadReportRateChangeThreshold": text})
