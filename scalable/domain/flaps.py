"""Flaps: a split that a merge undoes within a while, or the reverse; a sign of thresholds too close."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from scalable.domain.decision import Action, Merge, Split
from scalable.domain.layout import Layout
from scalable.domain.segment import Segment

Parents = Mapping[int, Collection[int]]


def undoes(layout: Layout, action: Action, parents: Parents, *, now_ms: int, window_ms: int) -> bool:
    """Tell whether an action takes back what was done within the window before it.

    `parents` are all that the action's segments had, those too that were pruned since: a parent that was read
    to its end goes within seconds. A merge does when it joins children of the same young split; a split, when
    it parts a young merge's child. A rebucket neither undoes nor is undone.
    """
    match action:
        case Merge(segment_ids):
            parts = [layout.segments[key] for key in segment_ids]
            return any(
                _siblings(one, other, parents) and _young(one, now_ms, window_ms)
                for one, other in pairwise(parts)
            )
        case Split(segment_id):
            segment = layout.segments[segment_id]
            return len(parents[segment_id]) > 1 and _young(segment, now_ms, window_ms)
        case _:
            return False


def _siblings(one: Segment, other: Segment, parents: Parents) -> bool:
    of_one, of_other = set(parents[one.segment_id]), set(parents[other.segment_id])
    return len(of_one) == 1 and of_one == of_other


def _young(segment: Segment, now_ms: int, window_ms: int) -> bool:
    return now_ms - segment.created_at_ms < window_ms
