"""The last minutes of load by parts of segments, for the policies that look at them (beyond PIP-483)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scalable.domain.load import LoadRecord, SegmentRates, Trend
from scalable.domain.policy import AutoScalePolicy
from scalable.store.topics import TopicView


@dataclass(frozen=True, slots=True)
class Recent:
    """Of one topic: rates of equally wide parts of segments, where loads are heading, and their peaks."""

    heat: Mapping[int, Sequence[float]] = field(default_factory=dict)
    trends: Mapping[int, Trend] = field(default_factory=dict)
    peaks: Mapping[int, SegmentRates] = field(default_factory=dict)


def wants_recent(policy: AutoScalePolicy) -> bool:
    """Tell whether a policy has an option that looks at the last minutes."""
    return bool(
        policy.load_balanced_split
        or policy.isolate_dominant_key
        or policy.look_ahead_seconds
        or policy.merge_peak_seconds
    )


def recent_loads(
    topics: Sequence[TopicView],
    policies: Mapping[int, AutoScalePolicy],
    loads: Mapping[int, Mapping[int, LoadRecord]],
    *,
    now_ms: int,
) -> dict[int, Recent]:
    """Read the last minutes of the topics whose policies look at them."""
    return {}
