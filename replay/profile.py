"""The product's own rule: the very same `decide` that its service calls, fed from the history of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from replay.history import History
from replay.traces import Series
from replay.world import MILLISECONDS, World
from scalable.domain.autoscale import Snapshot, decide
from scalable.domain.autoscale_cuts import hottest_part
from scalable.domain.decision import Action, Decision
from scalable.domain.layout import Layout, Segment
from scalable.domain.load import LoadRecord, Peak, SegmentRates, Trend, is_material
from scalable.domain.policy import AutoScalePolicy, resolve


class Runs(NamedTuple):
    """Runs of neighbours in a layout: what each carries, the least of all, its fullest, its youngest."""

    layout: Layout
    shares: Series
    least: float
    largest: Series
    born: Series


class ProfileRules:
    """Asks `decide` at the policy's own interval."""

    def __init__(self, history: History, policy: AutoScalePolicy, *, every_tick: bool = False) -> None:
        self.history = history
        self.policy = policy
        self.every_tick = every_tick or history.setup.material_change > 0
        self.interval_seconds = policy.auto_scale_interval_seconds
        rate, ahead = history.rate, np.zeros_like(history.rate)
        if policy.look_ahead_seconds:
            ahead = history.seen + history.slope * policy.look_ahead_seconds
        self.demand = np.maximum(rate, ahead)
        self.peak = history.peak(policy.peak_seconds) if policy.peak_seconds else None
        self.rate, self.seen, self.slope = rate, history.seen, history.slope
        self.last_ms: dict[str, int] = {}
        self.records: dict[int, LoadRecord] = {}
        self.heat: dict[int, tuple[float, ...]] = {}
        self.dominated: dict[int, bool] = {}
        self.largest_dominated: tuple[Layout | None, float] = (None, 0.0)
        self.runs: Runs | None = None
        self.last_decision: Decision | None = None

    def actions(self, world: World, step: int, now_ms: int) -> tuple[Action, ...]:
        """Give what the policy does at a step; `decide` is not asked where nothing can come of it."""
        asked = self.every_tick or self._may_split(world, step, now_ms)
        if not (asked or self._may_merge(world, step, now_ms)):
            return ()
        decision = decide(self._snapshot(world, step, now_ms), now_ms)
        self.last_decision = decision
        if decision.kind:
            self.last_ms[decision.kind] = now_ms
        return decision.actions

    def _may_split(self, world: World, step: int, now_ms: int) -> bool:
        """Tell whether any segment is hot and may be cut, or room may be made for it at the cap."""
        if now_ms < self._splits_again_ms and len(world.shares) < self.policy.max_segments:
            return False
        demand, limit = self.demand[step], self.policy.split_msg_rate_in_threshold
        if world.largest_share * demand > limit:
            return True
        return self.policy.isolate_dominant_key and self._largest_dominated(world) * demand > limit / 2

    def _may_merge(self, world: World, step: int, now_ms: int) -> bool:
        """Tell whether any run that is long enough is cold, or fits into one segment, and old enough."""
        policy = self.policy
        if len(world.shares) <= policy.min_segments or now_ms < self._merges_again_ms:
            return False
        runs, highest = self._runs(world), self.demand[step]
        if not policy.merge_target_share:
            cold = runs.largest * highest < policy.merge_msg_rate_in_threshold
        else:
            highest = highest if self.peak is None else max(highest, self.peak[step])
            limit = policy.merge_target_share * policy.split_msg_rate_in_threshold * (1 + 1e-9)
            if runs.least * highest > limit:
                return False
            cold = runs.shares * highest <= limit
        return bool(np.any(cold & (now_ms / MILLISECONDS - runs.born >= policy.merge_min_age_seconds)))

    def _runs(self, world: World) -> Runs:
        """Give the shortest runs of neighbours that the policy merges."""
        if self.runs is None or self.runs.layout is not world.layout:
            policy, most = self.policy, len(world.shares) - self.policy.min_segments + 1
            windows = partial(
                sliding_window_view,
                window_shape=min(policy.min_merge_segments, policy.max_merge_segments, most),
            )
            shares = windows(world.shares)
            sums = shares.sum(axis=1)
            born = windows(world.created_seconds).max(axis=1)
            self.runs = Runs(world.layout, sums, float(sums.min()), shares.max(axis=1), born)
        return self.runs

    @property
    def _splits_again_ms(self) -> float:
        return self.last_ms.get("SPLIT", -np.inf) + self.policy.split_cooldown_seconds * MILLISECONDS

    @property
    def _merges_again_ms(self) -> float:
        return self.last_ms.get("MERGE", -np.inf) + self.policy.merge_cooldown_seconds * MILLISECONDS

    def _largest_dominated(self, world: World) -> float:
        """Give the largest share of a segment of which one part has most of the load."""
        layout, largest = self.largest_dominated
        if layout is not world.layout:
            heats = self._heats(world)
            shares = zip(world.layout.active, world.shares.tolist(), strict=True)
            largest = max(
                (
                    share
                    for each, share in shares
                    if each.hash_range.size > 1 and self._is_dominated(each, heats[each.segment_id])
                ),
                default=0.0,
            )
            self.largest_dominated = world.layout, largest
        return largest

    def _is_dominated(self, segment: Segment, heat: tuple[float, ...]) -> bool:
        if segment.segment_id not in self.dominated:
            hottest, whole = hottest_part(segment.hash_range, heat)[1], sum(heat)
            self.dominated[segment.segment_id] = hottest >= self.policy.dominant_key_share * whole > 0
        return self.dominated[segment.segment_id]

    def _snapshot(self, world: World, step: int, now_ms: int) -> Snapshot:
        shares = dict(
            zip((each.segment_id for each in world.layout.active), world.shares.tolist(), strict=True)
        )
        return Snapshot(
            layout=world.layout,
            policy=self.policy,
            loads=self._young(world, self._loads(shares, step, now_ms)),
            trends=self._trends(shares, step) if self.policy.look_ahead_seconds else {},
            peaks=self._peaks(shares, step, now_ms),
            merged_for_ms=world.merged_for_ms,
            heat=self._heats(world) if self._wants_heat else {},
            last_split_at_ms=self.last_ms.get("SPLIT"),
            last_merge_at_ms=self.last_ms.get("MERGE"),
            last_rebucket_at_ms=self.last_ms.get("REBUCKET"),
        )

    def _loads(self, shares: Mapping[int, float], step: int, now_ms: int) -> dict[int, LoadRecord]:
        """Give the load records; without the filter of small changes a record is as old as the calm.

        A record that is written at every step would never be old enough for the merge window. What PIP-483
        takes from its age, for how long the segment was below the merge threshold, is then worked out itself.
        """
        change = self.history.setup.material_change
        records: dict[int, LoadRecord] = {}
        for segment_id, rates in _rates(shares, float(self.rate[step])).items():
            before = self.records.get(segment_id)
            if not change:
                records[segment_id] = LoadRecord(rates, self._cold_since(shares[segment_id], step, now_ms))
            elif before is None or is_material(before.rates, rates, change):
                records[segment_id] = LoadRecord(rates, now_ms)
            else:
                records[segment_id] = before
        self.records = records
        return records

    def _young(self, world: World, loads: dict[int, LoadRecord]) -> dict[int, LoadRecord]:
        """Let no record be older than the first tick of its segment."""
        interval_ms = round(self.interval_seconds * MILLISECONDS)
        for each in world.layout.active:
            first_ms = each.created_at_ms + (interval_ms if each.created_at_ms else 0)
            record = loads[each.segment_id]
            if record.modified_at_ms < first_ms:
                loads[each.segment_id] = replace(record, modified_at_ms=first_ms)
        return loads

    def _cold_since(self, share: float, step: int, now_ms: int) -> int:
        """Give the first tick of those in a row, back from now, at which a segment was cold."""
        if not self.policy.merge_window_seconds:
            return now_ms
        limit, window = self.policy.merge_msg_rate_in_threshold, self.policy.merge_window_seconds
        every = max(1, round(self.interval_seconds / self.history.setup.step_seconds))
        ticks = int(window // self.interval_seconds) + 1
        back = self.rate[step::-every][: ticks + 1] * share < limit
        calm = len(back) if back.all() else int(back.argmin())
        return now_ms - round(max(0, calm - 1) * self.interval_seconds * MILLISECONDS)

    def _trends(self, shares: Mapping[int, float], step: int) -> dict[int, Trend]:
        now, slope = float(self.seen[step]), float(self.slope[step])
        return {
            segment_id: Trend(SegmentRates(now * share), (slope * share, 0.0, 0.0, 0.0))
            for segment_id, share in shares.items()
        }

    def _peaks(self, shares: Mapping[int, float], step: int, now_ms: int) -> dict[int, tuple[Peak]]:
        if self.peak is None:
            return {}
        until_ms = now_ms + round(self.policy.peak_seconds * MILLISECONDS)
        rates = _rates(shares, float(self.peak[step]))
        return {segment_id: (Peak(each, until_ms),) for segment_id, each in rates.items()}

    @property
    def _wants_heat(self) -> bool:
        return self.policy.load_balanced_split or self.policy.isolate_dominant_key

    def _heats(self, world: World) -> dict[int, tuple[float, ...]]:
        parts = self.history.setup.heat_parts
        self.heat = {
            each.segment_id: self.heat.get(each.segment_id)
            or tuple(world.keys.heat(each.hash_range, parts).tolist())
            for each in world.layout.active
        }
        return self.heat


def _rates(shares: Mapping[int, float], rate: float) -> dict[int, SegmentRates]:
    return {segment_id: SegmentRates(share * rate) for segment_id, share in shares.items()}


def policy_of(profile: str, override: Mapping[str, Any], max_segments: int) -> AutoScalePolicy:
    """Resolve a profile with an override's fields, and the replay's cap of segments where none is set."""
    return resolve({"maxSegments": max_segments, **override, "profile": profile}).policy
