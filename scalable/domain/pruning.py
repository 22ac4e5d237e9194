"""Which segments leave a layout: sealed ones, oldest first, as far as somebody lets them go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from scalable.domain.layout import Layout
from scalable.domain.segment import Segment

LONGEST_PAUSE = 16
"""So many intervals at most lie between two sweeps of a topic that keeps quiet."""
SHARE_OF_RETENTION = 0.1
"""Where age lets messages go, none stays longer for a pause than this share of what it may stay."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The layout without the segments that leave it, and these as they were, oldest first."""

    layout: Layout
    segments: tuple[Segment, ...]


def prune_oldest(layout: Layout, may_go: Callable[[Segment], bool], *, limit: int) -> Pruning:
    """Prune the sealed segments that may go and of which no parent is kept, one epoch each.

    A chain goes at once: with its last parent gone a segment is asked about too. At most `limit` segments.
    """
    waiting = deque(sorted(segment.segment_id for segment in layout.segments.values() if _is_oldest(segment)))
    gone: list[Segment] = []
    while waiting and len(gone) < limit:
        segment = layout.segments[waiting.popleft()]
        if not may_go(segment):
            continue
        layout = layout.prune(segment.segment_id)
        gone.append(segment)
        waiting.extend(key for key in segment.child_ids if _is_oldest(layout.segments[key]))
    return Pruning(layout, tuple(gone))


def pause_seconds(*, quiet_sweeps: int, interval_seconds: float, retention_seconds: int) -> float:
    """Give how long a topic is left alone after so many sweeps in a row for which there was nothing to do.

    It doubles from the interval on.
    """
    longest = interval_seconds * LONGEST_PAUSE
    if retention_seconds > 0:
        longest = min(longest, max(interval_seconds, retention_seconds * SHARE_OF_RETENTION))
    return min(interval_seconds * 2.0 ** min(quiet_sweeps, LONGEST_PAUSE), longest)


def _is_oldest(segment: Segment) -> bool:
    return not segment.is_active and not segment.parent_ids
