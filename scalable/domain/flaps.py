"""Flaps: a split that a merge undoes within a while, or the reverse; a sign of thresholds too close."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from scalable.domain.decision import Action, Merge, Rebucket, Split
from scalable.domain.layout import Layout
from scalable.domain.segment import Segment

Parents = Mapping[int, Collection[int]]


def undoes(layout: Layout, action: Action, parents: Parents, *, now_ms: int, window_ms: int) -> bool:
    """Tell whether an action takes back what was done within the window before it.

    `parents` are all that its `recent` segments had, those too that were pruned since: a parent that was read
    to its end goes within seconds. A merge does when it joins children of the same young split; a split, when
    it parts a young merge's child. A rebucket neither undoes nor is undone.
    """
    young = {segment.segment_id for segment in recent(layout, action, now_ms=now_ms, window_ms=window_ms)}
    match action:
        case Merge(segment_ids):
            return any(young >= {*pair} and _siblings(*pair, parents) for pair in pairwise(segment_ids))
        case Split(segment_id):
            return segment_id in young and len(parents[segment_id]) > 1
        case _:
            return False


def recent(layout: Layout, action: Action, *, now_ms: int, window_ms: int) -> list[Segment]:
    """Give the segments of a split or merge that came within the window; siblings come together."""
    if isinstance(action, Rebucket):
        return []
    segments = (layout.segments[key] for key in action.segment_ids)
    return [segment for segment in segments if now_ms - segment.created_at_ms < window_ms]


def _siblings(one: int, other: int, parents: Parents) -> bool:
    of_one, of_other = set(parents[one]), set(parents[other])
    return len(of_one) == 1 and of_one == of_other
