"""The last minutes of load, for the policies that look at them (beyond PIP-483)."""

from collections.abc import Mapping, Sequence

from scalable.domain.load import LoadRecord
from scalable.domain.policy import AutoScalePolicy
from scalable.domain.recent import MINUTE_MS, TREND_MINUTES, Minute, Recent, recent
from scalable.store import loads as store
from scalable.store.clock import moment
from scalable.store.topics import TopicView

LONGEST_PEAK_SECONDS = 3_600
TILES_LIMIT = 50_000


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
    """Read the last minutes of the topics whose policies look at them, an hour at most, in one statement."""
    wanting = {each.incarnation: each for each in topics if wants_recent(policies[each.incarnation])}
    if not wanting:
        return {}
    peak_seconds = {key: min(policies[key].merge_peak_seconds, LONGEST_PEAK_SECONDS) for key in wanting}
    span_ms = max(round(max(peak_seconds.values()) * 1000), TREND_MINUTES * MINUTE_MS) + MINUTE_MS
    minutes: dict[int, list[Minute]] = {key: [] for key in wanting}
    for key, tile in store.recent_tiles(wanting, since=moment(max(0, now_ms - span_ms)), limit=TILES_LIMIT):
        minutes[key].append(Minute(tile.segment_id, tile.minute_ms, tile.mean))
    return {
        key: recent(topic.layout, minutes[key], loads[key], now_ms=now_ms, peak_seconds=peak_seconds[key])
        for key, topic in wanting.items()
    }
