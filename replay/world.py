"""The topic of a replay: its layout, and what each segment's share of the load is."""

from __future__ import annotations

import numpy as np

from replay.keys import KeySpread
from replay.setup import Setup
from scalable.domain.decision import Action, Merge, Rebucket, Split
from scalable.domain.layout import Layout, ReshapePlan

MILLISECONDS = 1_000


class World:
    """A topic under a virtual clock. Operations are instantaneous; sealed segments are pruned at once."""

    def __init__(self, setup: Setup, keys: KeySpread) -> None:
        self.setup = setup
        self.keys = keys
        self.layout = Layout.initial(setup.initial_segments, 0)
        self.merged_for_ms: dict[int, int] = {}
        self._merged_at_ms: dict[int, int] = {}
        self._look()

    def _look(self) -> None:
        active = self.layout.active
        starts = np.array([segment.hash_range.start for segment in active] + [len(self.keys.below) - 1])
        self.shares = np.diff(self.keys.below[starts])
        self.created_seconds = np.array([segment.created_at_ms for segment in active]) / MILLISECONDS
        self.largest_share, self.smallest_share = float(self.shares.max()), float(self.shares.min())

    @property
    def room(self) -> int:
        """Count the segments that may still be added."""
        return self.setup.max_segments - len(self.layout.active)

    def act(self, action: Action, now_ms: int) -> int:
        """Carry out an action and give the number of new segments."""
        added = 0
        for plan in self._plans(action):
            self.layout = self.layout.apply(plan, now_ms)
            self._remember(plan, now_ms)
            for parent_id in plan.parent_ids:
                self.layout = self.layout.prune(parent_id)
            added += len(plan.children)
        self._look()
        return added

    def _remember(self, plan: ReshapePlan, now_ms: int) -> None:
        """Keep what `scalable.domain.flaps.merged_for_ms` works out where sealed segments are remembered."""
        merged_at_ms = [self._merged_at_ms.pop(parent_id, None) for parent_id in plan.parent_ids]
        for parent_id in plan.parent_ids:
            self.merged_for_ms.pop(parent_id, None)
        children = plan.child_ids
        if len(plan.parent_ids) > 1:
            self._merged_at_ms[children[0]] = now_ms
        elif len(children) > 1 and merged_at_ms[0] is not None:
            self.merged_for_ms.update(dict.fromkeys(children, now_ms - merged_at_ms[0]))

    def _plans(self, action: Action) -> list[ReshapePlan]:
        if isinstance(action, Split):
            return [self.layout.plan_split(action.segment_id, action.cuts or None)]
        if isinstance(action, Merge):
            return [self.layout.plan_merge(action.segment_ids)]
        assert isinstance(action, Rebucket)
        plans = []
        layout = self.layout
        for segment_id in action.segment_ids:
            plans.append(layout.plan_rebucket(segment_id, action.bucket_count))
            layout = layout.reserve(plans[-1])
        return plans
