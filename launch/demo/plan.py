"""How the demo's stream is paced, and the policy whose thresholds make that stream hot, then cold."""

from dataclasses import dataclass
from typing import Any

from launch.demo.streams import FLIGHTS, Stream

SMALL_RUN_EVENTS = 5_000
"""Below this a run is too short for the autoscaler; splits and merges are not asked for."""
MAX_RATE = 3_000.0
SPLITS_WANTED = 3
MERGES_WANTED = 1


FAST_SHARE = 0.4
"""The share of the hot phase at its full rate; the rest waits for splits that are late."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A trickle until load is measured, a hot phase, then a cold tail; rates are per second."""

    events: int
    hot_rate: float
    cold_rate: float
    cold_events: int
    stream: Stream = FLIGHTS

    @property
    def wants_scaling(self) -> bool:
        """True when the run is long enough to demand splits and merges."""
        return self.events >= SMALL_RUN_EVENTS

    @property
    def trickle_rate(self) -> float:
        """Return the events per second before anybody measures them: few, they are missing later."""
        return self.hot_rate / 100

    @property
    def lasting_rate(self) -> float:
        """Return a rate that keeps hot what is to be split, and lasts longer than the full one."""
        return self.hot_rate * self.stream.lasting_share

    @property
    def policy(self) -> dict[str, Any]:
        """Return the topic's auto-scale override, with its own tick and windows.

        One segment carries the stream's share of the hot rate; the tail leaves each segment well below the
        merge thresholds, down to the fewest segments.
        """
        split_rate = max(2.0, round(self.hot_rate * self.stream.segment_share, 1))
        merge_rate = round(split_rate / 2, 1)
        return {
            "enabled": True,
            "minSegments": self.stream.min_segments,
            "maxSegments": 8,
            "splitCooldownSeconds": 3,
            "mergeCooldownSeconds": 3,
            "mergeWindowSeconds": 4,
            "splitMsgRateInThreshold": split_rate,
            "splitMsgRateOutThreshold": 5 * split_rate,
            "mergeMsgRateInThreshold": merge_rate,
            "mergeMsgRateOutThreshold": 5 * merge_rate,
            "autoScaleIntervalSeconds": 1,
            "loadReportIntervalSeconds": 1,
            "rateWindowSeconds": 5,
        }


def plan_for(events: int, stream: Stream = FLIGHTS) -> Plan:
    """Spread the events over half a minute, more than a minute for the usual number."""
    if events < SMALL_RUN_EVENTS:
        hot_seconds, cold_seconds = max(1.0, events / 500), 2.0
    else:
        hot_seconds, cold_seconds = min(75.0, max(24.0, events / 1_000)), 14.0
    # The tail runs at a fifteenth of the hot rate: 0.8 of a merge threshold over all segments together.
    hot_rate = min(MAX_RATE, events / (hot_seconds + cold_seconds / 15))
    cold_rate = hot_rate / 15
    return Plan(events, hot_rate, cold_rate, min(events // 2, int(cold_rate * cold_seconds)), stream)
