"""What a subscription has still to receive: which messages come next, and which segments wait for which.

Segments are told by id, `pending` says how many messages of each are not acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from scalable.domain.layout import Layout
from scalable.domain.subscriptions import assignable


class Wait(NamedTuple):
    """An ancestor that keeps a segment shut, and how many of its messages are not acknowledged."""

    segment_id: int
    unacknowledged: int


def drained_segments(layout: Layout, pending: Mapping[int, int]) -> frozenset[int]:
    """Name the sealed segments of which nothing is pending."""
    return frozenset(
        key for key, count in pending.items() if not count and not layout.segments[key].is_active
    )


def next_messages(layout: Layout, pending: Mapping[int, int], count: int) -> dict[int, int]:
    """Say how many of the next `count` messages come from each segment, those that come first foremost.

    Segments that are open at the same time give equally many, as long as they have any; a child gives
    nothing before all its ancestors have given all.
    """
    taken: dict[int, int] = {}
    drained = set(drained_segments(layout, pending))
    while count > 0:
        opened = {
            key: pending[key]
            for key in assignable(layout, drained)
            if pending.get(key) and key not in taken  # else an active one has given all it has
        }
        if not opened:
            break
        shares = even_shares(opened, count)
        taken |= shares
        count -= sum(shares.values())
        drained |= opened.keys()
    return taken


def even_shares(amounts: Mapping[int, int], count: int) -> dict[int, int]:
    """Divide `count` evenly over amounts of which none can give more than it has, in their order."""
    given: dict[int, int] = {}
    ascending = sorted(amounts, key=lambda key: amounts[key])
    for index, key in enumerate(ascending):
        # The largest come last, so that what the small ones cannot give falls to those who can.
        given[key] = min(amounts[key], count // (len(ascending) - index))
        count -= given[key]
    return {key: given[key] for key in amounts if given[key]}


def waits(
    layout: Layout, pending: Mapping[int, int], drained: Collection[int], *, limit: int
) -> dict[int, tuple[Wait, ...]]:
    """Name for each segment that is shut the undrained ancestors it waits for, the oldest `limit` of them."""
    finished = {key for key in drained if key in layout.segments and not layout.segments[key].is_active}
    blockers: dict[int, frozenset[int]] = {}
    for segment_id in sorted(layout.segments):
        parents = [key for key in layout.segments[segment_id].parent_ids if key in layout.segments]
        undrained = frozenset(parents) - finished
        blockers[segment_id] = undrained.union(*(blockers[key] for key in parents))
    return {
        segment_id: tuple(Wait(key, pending.get(key, 0)) for key in sorted(found)[:limit])
        for segment_id, found in blockers.items()
        if found
    }


def position_behind(position: int, acknowledged: Iterable[tuple[int, int]], count: int) -> int:
    """Give the position behind the next `count` messages, of which those in the ranges do not count."""
    for first, end in sorted(acknowledged):
        if end <= position:
            continue
        between = max(0, first - position)
        if count < between:
            break
        position, count = end, count - between
    return position + count
