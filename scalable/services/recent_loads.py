"""The last minutes of load, for the policies that look at them (beyond PIP-483)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from scalable.domain.keyspace import HashRange
from scalable.domain.load import LoadRecord
from scalable.domain.policy import AutoScalePolicy
from scalable.domain.recent import HEAT_MINUTES, MINUTE_MS, TREND_MINUTES, Minute, Recent, recent
from scalable.store import history
from scalable.store import loads as store
from scalable.store.clock import moment
from scalable.store.topics import TopicView


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
    """Read the last minutes of the topics whose policies look at them: of each as long as its own asks for.

    Segments that were pruned meanwhile count with the range that they had.
    """
    wanting = {each.incarnation: each for each in topics if wants_recent(policies[each.incarnation])}
    if not wanting:
        return {}
    peak_seconds = {key: policies[key].peak_seconds for key in wanting}
    minutes = _read_minutes(wanting, peak_seconds, now_ms)
    past = _read_past_ranges(wanting, minutes)
    return {
        key: recent(
            topic.layout,
            minutes[key],
            loads[key],
            past=past[key],
            now_ms=now_ms,
            peak_seconds=peak_seconds[key],
        )
        for key, topic in wanting.items()
    }


def _read_minutes(
    topics: Mapping[int, TopicView], peak_seconds: Mapping[int, float], now_ms: int
) -> dict[int, list[Minute]]:
    spans_ms = {key: max(round(peak_seconds[key] * 1000), TREND_MINUTES * MINUTE_MS) for key in topics}
    tiles = store.recent_tiles(
        {key: _moment(now_ms - span_ms - MINUTE_MS) for key, span_ms in spans_ms.items()},
        active=[(key, each.segment_id) for key, topic in topics.items() for each in topic.layout.active],
        parts_since=_moment(now_ms - HEAT_MINUTES * MINUTE_MS),
    )
    minutes: dict[int, list[Minute]] = {key: [] for key in topics}
    for key, tile in tiles:
        minutes[key].append(Minute(tile.segment_id, tile.minute_ms, tile.mean, tile.observed_ms))
    return minutes


def _moment(at_ms: int) -> datetime:
    return moment(max(0, at_ms))


def _read_past_ranges(
    topics: Mapping[int, TopicView], minutes: Mapping[int, list[Minute]]
) -> dict[int, dict[int, HashRange]]:
    """Give the ranges of segments that had messages and are no longer in their layouts."""
    missing = {
        (key, each.segment_id)
        for key, topic in topics.items()
        for each in minutes[key]
        if each.segment_id not in topic.layout.segments
    }
    past: dict[int, dict[int, HashRange]] = {key: {} for key in topics}
    for (key, segment_id), hash_range in history.ranges(missing).items():
        past[key][segment_id] = hash_range
    return past
