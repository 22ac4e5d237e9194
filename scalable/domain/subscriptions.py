"""Which segments of a topic a subscription may read now, and which of its consumers reads which.

A segment is open to a subscription when all its ancestors that are still kept are drained there: sealed,
and all of it acknowledged. Drained segments are owned by nobody. Who owns the open ones is decided by
`assign`; how a segment passes from one consumer to another is in `scalable.domain.ownership`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from scalable.domain.layout import Layout


class SubscriptionType(StrEnum):
    """How a subscription hands out messages (PIP-468, Consumer Assignment)."""

    STREAM = "STREAM"
    QUEUE = "QUEUE"
    CHECKPOINT = "CHECKPOINT"


class BucketKey(NamedTuple):
    """What one consumer owns: a whole segment (bucket 0), or one of its entry buckets where keys are shared.

    Ordered by segment, then bucket.
    """

    segment_id: int
    bucket: int = 0


def assignable(layout: Layout, drained: Collection[int]) -> tuple[int, ...]:
    """Name every undrained segment whose kept ancestors are all drained, ordered by start, end and id.

    Of `drained` only sealed segments count. Parents have lower ids than their children, so that one pass in
    the order of ids sees every ancestor first.
    """
    finished = _finished(layout, drained)
    open_ids: set[int] = set()
    for segment_id in sorted(layout.segments):
        parent_ids = layout.segments[segment_id].parent_ids
        if all(parent_id in open_ids and parent_id in finished for parent_id in parent_ids):
            open_ids.add(segment_id)
    ranges = {segment_id: layout.segments[segment_id].hash_range for segment_id in open_ids - finished}
    return tuple(sorted(ranges, key=lambda segment_id: (ranges[segment_id], segment_id)))


def waits_for(layout: Layout, drained: Collection[int], segment_id: int) -> tuple[int, ...]:
    """Name the undrained ancestors that keep a segment shut, in the order of ids; raises SegmentNotFound."""
    return tuple(sorted(layout.ancestors(segment_id) - _finished(layout, drained)))


def _finished(layout: Layout, drained: Collection[int]) -> frozenset[int]:
    return frozenset(
        segment_id
        for segment_id in drained
        if segment_id in layout.segments and not layout.segments[segment_id].is_active
    )


def parents_owners(layout: Layout, segment_ids: Iterable[int], owners: Mapping[int, str]) -> dict[int, str]:
    """Name for each segment the consumer that read its parent, of several parents the first that had one."""
    found: dict[int, str] = {}
    for segment_id in segment_ids:
        for parent_id in layout.get(segment_id).parent_ids:
            if parent_id in owners:
                found.setdefault(segment_id, owners[parent_id])
    return found


def assign(
    segment_ids: Sequence[int],
    consumers: Collection[str],
    current: Mapping[int, str],
    preferred: Mapping[int, str] | None = None,
) -> dict[int, str]:
    """Give each segment to one consumer: evenly (spread at most 1), with the fewest changes of owner.

    `segment_ids` stand in the order of `assignable`. Without history the result is round-robin by that
    order and by consumer name (PIP-468, Rebalancing). `preferred` names who should get a segment where that
    costs nothing. The same arguments give the same result. Takes O(n log n).
    """
    names = sorted(set(consumers))
    if not names:
        return {}
    known = frozenset(names)
    wishes = {key: name for key, name in (preferred or {}).items() if name in known}
    held = _held(segment_ids, names, current, wishes)
    quota = _quotas(segment_ids, names, held, wishes)
    result = {segment_id: name for name in names for segment_id in held[name][: quota[name]]}
    room = {name: quota[name] - min(quota[name], len(held[name])) for name in names}
    for segment_id in segment_ids:
        wish = wishes.get(segment_id)
        if segment_id not in result and wish is not None and room[wish]:
            result[segment_id] = wish
            room[wish] -= 1
    return result | _round_robin([key for key in segment_ids if key not in result], room)


def _held(
    segment_ids: Sequence[int], names: Sequence[str], current: Mapping[int, str], wishes: Mapping[int, str]
) -> dict[str, list[int]]:
    """List what each consumer holds, and last what it rather gives up since another is preferred."""
    held: dict[str, list[int]] = {name: [] for name in names}
    yielding: dict[str, list[int]] = {name: [] for name in names}
    for segment_id in segment_ids:
        owner = current.get(segment_id)
        if owner in held:
            leaning = wishes.get(segment_id, owner) != owner
            (yielding if leaning else held)[owner].append(segment_id)
    return {name: held[name] + yielding[name] for name in names}


def _quotas(
    segment_ids: Sequence[int],
    names: Sequence[str],
    held: Mapping[str, Sequence[int]],
    wishes: Mapping[int, str],
) -> dict[str, int]:
    """Decide how many segments each consumer gets; the odd ones go where they keep most, then please most."""
    base, odd = divmod(len(segment_ids), len(names))
    kept = {segment_id for name in names for segment_id in held[name]}
    wished = Counter(wishes[key] for key in segment_ids if key in wishes and key not in kept)

    def rank(name: str) -> tuple[bool, bool, str]:
        keeps_more = len(held[name]) > base
        pleases_more = len(held[name]) + wished[name] > base
        return not keeps_more, not pleases_more, name

    lucky = set(sorted(names, key=rank)[:odd])
    return {name: base + (name in lucky) for name in names}


def _round_robin(segment_ids: Sequence[int], room: Mapping[str, int]) -> dict[int, str]:
    """Deal the segments to the consumers that have room, one each per round, in the order of names."""
    result: dict[int, str] = {}
    left, takers = dict(room), [name for name in room if room[name]]
    waiting = iter(segment_ids)
    while takers:
        result.update({segment_id: name for name, segment_id in zip(takers, waiting, strict=False)})
        for name in takers:
            left[name] -= 1
        takers = [name for name in takers if left[name]]
    return result
