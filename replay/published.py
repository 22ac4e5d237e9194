"""Published scaling rules of other systems, for comparison.

Pravega's auto-scaling by event rate: means over 2, 5, 10 and 20 minutes, and ages of 10 and 20 minutes. YDB's
splitting of tables by load: above 90 % of what a partition can take for a while, below 30 % to merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from replay.history import History
from replay.world import World
from scalable.domain.autoscale_cuts import even_cuts
from scalable.domain.decision import Action, Merge, Split

PRAVEGA_TARGET = 10_000.0
PRAVEGA_SPLIT_AGE_SECONDS = 600
PRAVEGA_MERGE_AGE_SECONDS = 1_200
YDB_SPLIT_SHARE, YDB_MERGE_SHARE, YDB_SECONDS = 0.9, 0.3, 300
Mask = npt.NDArray[np.bool_]


class PravegaRules:
    """Splits into as many parts as the target rate asks for, and merges pairs, each step."""

    interval_seconds = 0.0

    def __init__(self, history: History) -> None:
        self.means = {minutes: history.mean(minutes * 60.0) for minutes in (2, 5, 10, 20)}

    def actions(self, world: World, step: int, now_ms: int) -> list[Action]:
        """Give what the rules do at a step; most need no look at each segment."""
        if not (self._may_split(world, step) or self._may_merge(world, step)):
            return []
        two, five, ten, twenty = (world.shares * self.means[minutes][step] for minutes in (2, 5, 10, 20))
        age = now_ms / 1000 - world.created_seconds
        target = PRAVEGA_TARGET
        hot = (age > PRAVEGA_SPLIT_AGE_SECONDS) & ((two > 5 * target) | (five > 2 * target) | (ten > target))
        largest = np.maximum(np.maximum(two, five), ten)
        cold = (age > PRAVEGA_MERGE_AGE_SECONDS) & (largest < target) & (twenty < target / 2)
        return list(_scaled(world, hot, cold, lambda index: max(2, int(largest[index] / target))))

    def _may_split(self, world: World, step: int) -> bool:
        two, five, ten = (world.largest_share * self.means[minutes][step] for minutes in (2, 5, 10))
        return bool(two > 5 * PRAVEGA_TARGET or five > 2 * PRAVEGA_TARGET or ten > PRAVEGA_TARGET)

    def _may_merge(self, world: World, step: int) -> bool:
        *means, twenty = (world.smallest_share * self.means[minutes][step] for minutes in (2, 5, 10, 20))
        return bool(max(means) < PRAVEGA_TARGET and twenty < PRAVEGA_TARGET / 2)


class YdbRules:
    """Halves what stayed hot, and merges pairs that stayed cold."""

    interval_seconds = 0.0

    def __init__(self, history: History) -> None:
        self.lowest, self.highest = history.lowest(YDB_SECONDS), history.peak(YDB_SECONDS)
        self.capacity = history.setup.capacity

    def actions(self, world: World, step: int, now_ms: int) -> list[Action]:
        """Give what the rules do at a step; a segment that is too young has not stayed anything."""
        hottest, coldest = world.largest_share * self.lowest[step], world.smallest_share * self.highest[step]
        if hottest <= YDB_SPLIT_SHARE * self.capacity and coldest >= YDB_MERGE_SHARE * self.capacity:
            return []
        old = now_ms / 1000 - world.created_seconds >= YDB_SECONDS
        hot = old & (world.shares * self.lowest[step] > YDB_SPLIT_SHARE * self.capacity)
        cold = old & (world.shares * self.highest[step] < YDB_MERGE_SHARE * self.capacity)
        return list(_scaled(world, hot, cold, lambda index: 2))


def _scaled(world: World, hot: Mask, cold: Mask, children: Callable[[int], int]) -> Iterator[Action]:
    """Split every hot segment while there is room, and merge cold neighbours in pairs, lowest range first."""
    active, room = world.layout.active, world.room
    for index in np.flatnonzero(hot).tolist():
        segment = active[index]
        count = min(children(index), room + 1, segment.hash_range.size)
        if count >= 2:
            room -= count - 1
            yield Split(segment.segment_id, even_cuts(segment.hash_range, count))
    index = 0
    while index < len(active) - 1:
        if cold[index] and cold[index + 1]:
            yield Merge((active[index].segment_id, active[index + 1].segment_id))
            index += 1
        index += 1
