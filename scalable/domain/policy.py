"""The auto-scale policy: its fields, how overrides are read and resolved, and what contradicts itself.

An override sets some fields; the rest fall through from topic to namespace to the chosen profile (PIP-483,
Policy resolution). JSON names are the attribute names in camel case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from scalable.domain.errors import PolicyInvalid, PolicyUnreadable, UnknownField
from scalable.domain.keyspace import KEYSPACE_SIZE, MAX_PARTS
from scalable.domain.profiles import PROFILES

MAX_ACTIONS_PER_TICK = 256
MAX_INTEGER = 2**53
MAX_SECONDS = 315_360_000
"""Ten years: longer than any time of use, and short enough to be added to any instant."""
LONGEST_PEAK_SECONDS = 3_600
"""Peaks that are longer ago count for no policy: the minutes of load are not kept for ever."""
MAX_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScalePolicy:
    """A resolved policy; the defaults are those of PIP-483. Rates are per second, byte rates in bytes.

    What PIP-483 does not have is off by default; docs/autoscale.md tells what each option does.
    """

    profile: str = "pip-483"
    enabled: bool = True
    max_segments: int = 64
    min_segments: int = 1
    max_dag_depth: int = 10
    split_cooldown_seconds: float = 60.0
    merge_cooldown_seconds: float = 300.0
    merge_window_seconds: float = 300.0
    split_msg_rate_in_threshold: float = 10_000.0
    split_bytes_rate_in_threshold: float = 50_000_000.0
    split_msg_rate_out_threshold: float = 50_000.0
    split_bytes_rate_out_threshold: float = 250_000_000.0
    merge_msg_rate_in_threshold: float = 1_000.0
    merge_bytes_rate_in_threshold: float = 5_000_000.0
    merge_msg_rate_out_threshold: float = 5_000.0
    merge_bytes_rate_out_threshold: float = 25_000_000.0
    auto_scale_interval_seconds: float = 60.0
    load_report_interval_seconds: float = 10.0
    rate_window_seconds: float = 60.0
    entry_bucket_lane: bool = False
    rebucket_cooldown_seconds: float = 60.0
    split_vs_rebucket_min_msg_rate_in_threshold: float = 1_000.0
    max_actions_per_tick: int = 1
    max_split_children: int = 2
    split_target_share: float = 0.5
    load_balanced_split: bool = False
    isolate_dominant_key: bool = False
    dominant_key_share: float = 0.5
    look_ahead_seconds: float = 0.0
    max_merge_segments: int = 2
    min_merge_segments: int = 2
    merge_target_share: float = 0.0
    merge_peak_seconds: float = 0.0
    merge_min_age_seconds: float = 0.0
    merge_repeat_seconds: float = 0.0
    merge_keeps_consumers: bool = False
    merge_makes_room: bool = False

    @property
    def split_thresholds(self) -> dict[str, float]:
        """Give the split thresholds by the load's metric names."""
        return {metric: getattr(self, f"split_{name}_threshold") for metric, name in AXES.items()}

    @property
    def merge_thresholds(self) -> dict[str, float]:
        """Give the merge thresholds by the load's metric names."""
        return {metric: getattr(self, f"merge_{name}_threshold") for metric, name in AXES.items()}

    @property
    def peak_seconds(self) -> float:
        """Give for how long peaks count in merges, also where an older version let more be set."""
        return min(max(self.merge_peak_seconds, 0.0), LONGEST_PEAK_SECONDS)

    def to_json(self) -> dict[str, Any]:
        """Give all fields by their JSON names; whole numbers without a fraction."""
        return {name: _plain(getattr(self, attribute)) for name, attribute in ATTRIBUTES.items()}


AXES = {
    "msgRateIn": "msg_rate_in",
    "bytesRateIn": "bytes_rate_in",
    "msgRateOut": "msg_rate_out",
    "bytesRateOut": "bytes_rate_out",
}


def _camel(attribute: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), attribute)


def _plain(value: Any) -> Any:
    whole = isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER
    return int(value) if whole else value


ABOVE_ZERO_SECONDS = ("autoScaleIntervalSeconds", "loadReportIntervalSeconds")
COUNTS = {
    "maxActionsPerTick": (1, MAX_ACTIONS_PER_TICK),
    "maxSplitChildren": (2, MAX_PARTS),
    "maxMergeSegments": (2, MAX_PARTS),
    "minMergeSegments": (2, MAX_PARTS),
}
ATTRIBUTES: dict[str, str] = {_camel(field.name): field.name for field in fields(AutoScalePolicy)}
DEFAULTS: dict[str, Any] = {_camel(field.name): field.default for field in fields(AutoScalePolicy)}
TIMES = tuple(name for name in DEFAULTS if name.endswith("Seconds"))


class PolicySource(StrEnum):
    """Where a field of the effective policy comes from."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    PROFILE = "profile"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """A resolved policy with the source of each field by its JSON name; it may be contradictory."""

    policy: AutoScalePolicy
    sources: Mapping[str, PolicySource]

    def to_json(self) -> dict[str, Any]:
        """Give the policy's fields, their sources, and which rules it breaks (none, when it is valid)."""
        sources = {name: source.value for name, source in self.sources.items()}
        return {"policy": self.policy.to_json(), "sources": sources, "violations": violations(self.policy)}


def parse_override(body: object) -> dict[str, Any]:
    """Read an override: a JSON object of some policy fields; null means inherit and is left out.

    Raises UnknownField; PolicyUnreadable for what has the wrong type, is not finite, or names no profile; and
    PolicyInvalid for what nobody may set any more, but may have (it does not hold what was stored still), and
    for a least length of runs above the most.
    """
    if not isinstance(body, Mapping):
        raise PolicyUnreadable(field="body", value=_shown(body), problem="it must be an object")
    override: dict[str, Any] = {}
    for name, value in body.items():
        if name not in DEFAULTS:
            raise UnknownField(field=str(name)[:MAX_SHOWN_CHARACTERS], known=list(DEFAULTS))
        if value is not None:
            override[name] = _readable(name, value)
    broken = list(_override_violations(override))
    if broken:
        raise _invalid(broken)
    return override


def _override_violations(override: Mapping[str, Any]) -> Iterator[str]:
    """Name what one who sets it contradicts; what is inherited beside it only counts as far as it fits."""
    peak_seconds = override.get("mergePeakSeconds", 0)
    if peak_seconds > LONGEST_PEAK_SECONDS:
        yield f"mergePeakSeconds ({peak_seconds}) is above {LONGEST_PEAK_SECONDS}, which is an hour"
    longest = override.get("maxMergeSegments", MAX_PARTS)
    shortest = override.get("minMergeSegments", longest)
    if shortest > longest:
        yield f"minMergeSegments ({shortest}) is above maxMergeSegments ({longest})"


def _readable(name: str, value: object) -> Any:
    expected = type(DEFAULTS[name])
    problem = _PROBLEMS[expected](value)
    if problem:
        raise PolicyUnreadable(field=name, value=_shown(value), problem=problem)
    return _plain(value)


def _boolean_problem(value: object) -> str | None:
    return None if isinstance(value, bool) else "it must be true or false"


def _integer_problem(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "it must be a whole number"
    return None if abs(value) <= MAX_INTEGER else "it is out of all proportion"


def _number_problem(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "it must be a number"
    try:
        finite = math.isfinite(float(value))
    except OverflowError:  # an integer may be larger than any number with a fraction
        finite = False
    return None if finite else "it must be finite"


def _profile_problem(value: object) -> str | None:
    known = isinstance(value, str) and value in PROFILES
    return None if known else f"known profiles are {', '.join(PROFILES)}"


_PROBLEMS = {bool: _boolean_problem, int: _integer_problem, float: _number_problem, str: _profile_problem}


def _shown(value: object) -> str:
    return repr(value)[:MAX_SHOWN_CHARACTERS]


def resolve(
    topic: Mapping[str, Any] | None = None,
    namespace: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> EffectivePolicy:
    """Combine two parsed overrides with the profile and the defaults, field by field, the topic's first.

    The profile is the topic's, else the namespace's, else `pip-483`; what a level sets wins over it. A field
    in which the profile does not differ from the defaults comes from those. Nothing is raised for a
    contradictory result: see `validate` for writing and `violations` for acting. `defaults` are what the
    installation sets in place of PIP-483's.
    """
    topic, namespace = topic or {}, namespace or {}
    base = {**DEFAULTS, **(defaults or {})}
    profile = topic.get("profile", namespace.get("profile", base["profile"]))
    levels: tuple[tuple[PolicySource, Mapping[str, Any]], ...] = (
        (PolicySource.TOPIC, topic),
        (PolicySource.NAMESPACE, namespace),
        (PolicySource.PROFILE, PROFILES.get(profile, {})),
        (PolicySource.DEFAULT, base),
    )
    values: dict[str, Any] = {}
    sources: dict[str, PolicySource] = {}
    for name, default in DEFAULTS.items():
        source, level = next((source, level) for source, level in levels if name in level)
        values[ATTRIBUTES[name]] = type(default)(level[name])
        sources[name] = source
    return EffectivePolicy(AutoScalePolicy(**values), sources)


def validate(policy: AutoScalePolicy) -> None:
    """Raise PolicyInvalid when the resolved policy contradicts itself."""
    broken = violations(policy)
    if broken:
        raise _invalid(broken)


def _invalid(broken: list[str]) -> PolicyInvalid:
    return PolicyInvalid(problem="; ".join(broken), violations=broken)


def violations(policy: AutoScalePolicy) -> list[str]:
    """Name every rule that the policy breaks, with the values at odds."""
    return [
        *_count_violations(policy),
        *_time_violations(policy),
        *_threshold_violations(policy),
        *_option_violations(policy),
    ]


def _count_violations(policy: AutoScalePolicy) -> Iterator[str]:
    if policy.min_segments < 1:
        yield f"minSegments ({policy.min_segments}) is below 1"
    if policy.max_segments < policy.min_segments:
        yield f"maxSegments ({policy.max_segments}) is below minSegments ({policy.min_segments})"
    if policy.max_segments > KEYSPACE_SIZE:
        yield f"maxSegments ({policy.max_segments}) is above {KEYSPACE_SIZE}"
    if policy.max_dag_depth < 0:
        yield f"maxDagDepth ({policy.max_dag_depth}) is negative"


def bounded_seconds(seconds: float) -> float:
    """Give a policy's time as it can be reckoned with, also where the policy is contradictory."""
    return min(max(seconds, 0.0), MAX_SECONDS)


def _time_violations(policy: AutoScalePolicy) -> Iterator[str]:
    for name in TIMES:
        seconds = getattr(policy, ATTRIBUTES[name])
        if name in ABOVE_ZERO_SECONDS and seconds <= 0:
            yield f"{name} ({_plain(seconds)}) is not above 0"
        elif seconds < 0:
            yield f"{name} ({_plain(seconds)}) is negative"
        if seconds > MAX_SECONDS:
            yield f"{name} ({_plain(seconds)}) is above {MAX_SECONDS}, which are ten years"
    window, interval = policy.rate_window_seconds, policy.load_report_interval_seconds
    if window < interval:
        yield (
            f"rateWindowSeconds ({_plain(window)}) is below loadReportIntervalSeconds ({_plain(interval)})"
        )


def _threshold_violations(policy: AutoScalePolicy) -> Iterator[str]:
    merge_thresholds = policy.merge_thresholds
    for metric, split in policy.split_thresholds.items():
        axis, merge = metric[0].upper() + metric[1:], merge_thresholds[metric]
        if split <= 0:
            yield f"split{axis}Threshold ({_plain(split)}) is not above 0"
        if merge < 0:
            yield f"merge{axis}Threshold ({_plain(merge)}) is negative"
        if split <= merge:
            yield (
                f"split{axis}Threshold ({_plain(split)}) is not above merge{axis}Threshold ({_plain(merge)})"
            )


def _option_violations(policy: AutoScalePolicy) -> Iterator[str]:
    for name, (least, most) in COUNTS.items():
        count = getattr(policy, ATTRIBUTES[name])
        if not least <= count <= most:
            yield f"{name} ({count}) is not within {least}..{most}"
    for name in ("splitTargetShare", "dominantKeyShare"):
        share = getattr(policy, ATTRIBUTES[name])
        if not 0 < share <= 1:
            yield f"{name} ({_plain(share)}) is not above 0 and at most 1"
    if not 0 <= policy.merge_target_share <= 1:
        yield f"mergeTargetShare ({_plain(policy.merge_target_share)}) is not within 0..1"
    floor = policy.split_vs_rebucket_min_msg_rate_in_threshold
    if floor < 0:
        yield f"splitVsRebucketMinMsgRateInThreshold ({_plain(floor)}) is negative"
