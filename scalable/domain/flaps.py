"""Flaps: a split that a merge undoes within a while, or the reverse; a sign of thresholds too close."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Protocol

from scalable.domain.decision import Action, Merge, Rebucket, Split
from scalable.domain.layout import Layout
from scalable.domain.segment import Segment

Parents = Mapping[int, Collection[int]]


class Past(Protocol):
    """A segment that was sealed, pruned or not; pruned ones may no longer be named by their children."""

    @property
    def segment_id(self) -> int:
        """Name it."""

    @property
    def child_ids(self) -> Collection[int]:
        """Name all children that it had."""

    @property
    def created_at_ms(self) -> int:
        """Give when it came to be."""

    @property
    def sealed_at_ms(self) -> int:
        """Give when its children took over."""


def merged_for_ms(segments: Iterable[Segment], past: Iterable[Past]) -> dict[int, int]:
    """Give, for each segment that a split made of a merged one, for how long that one had lived.

    `past` holds the sealed ones among the segments' parents and grandparents, as far as they are remembered.
    """
    sealed = {each.segment_id: each for each in past}
    parents: dict[int, set[int]] = defaultdict(set)
    for each in sealed.values():
        for child_id in each.child_ids:
            parents[child_id].add(each.segment_id)
    lives: dict[int, int] = {}
    for segment in segments:
        for parent_id in parents[segment.segment_id]:
            parent = sealed[parent_id]
            if len(parent.child_ids) > 1 and len(parents[parent_id]) > 1:
                lives[segment.segment_id] = parent.sealed_at_ms - parent.created_at_ms
    return lives


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
