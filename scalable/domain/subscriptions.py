"""Which segments of a topic a subscription may read now, and which of its consumers reads which.

A segment is open to a subscription when all its ancestors that are still kept are drained there: sealed,
and all of it acknowledged. Drained segments are owned by nobody. Who owns the open ones is decided by
`assign`; how a segment passes from one consumer to another is in `scalable.domain.ownership`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from scalable.domain.layout import Layout
from scalable.domain.segment import Segment

KeyT = TypeVar("KeyT", bound=Hashable)


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


def units_of(layout: Layout, segment_ids: Iterable[int], *, key_shared: bool) -> tuple[BucketKey, ...]:
    """Give what of these segments is assigned, in the order in which it is dealt out.

    Where keys are shared, the first buckets of all segments come before the second ones: so consumers that
    are no more than the segments share as few of them as the balance allows.
    """
    if not key_shared:
        return tuple(BucketKey(segment_id) for segment_id in segment_ids)
    keys = [key for segment_id in segment_ids for key in segment_units(layout.get(segment_id), key_shared)]
    return tuple(sorted(keys, key=lambda key: key.bucket))


def segment_units(segment: Segment, key_shared: bool) -> list[BucketKey]:
    """Give the units of one segment: itself, or its entry buckets."""
    count = segment.bucket_count if key_shared else 1
    return [BucketKey(segment.segment_id, bucket) for bucket in range(count)]


def parents_owners(
    layout: Layout, keys: Iterable[BucketKey], owners: Mapping[BucketKey, str], *, key_shared: bool = False
) -> dict[BucketKey, str]:
    """Name for each key the consumer that read its parent, of several parents the first that had one.

    Where keys are shared, that is the parent's bucket in which the child's begins.
    """
    found: dict[BucketKey, str] = {}
    for key in keys:
        segment = layout.get(key.segment_id)
        start = segment.entry_bucket_splits[key.bucket - 1] if key.bucket else 0
        for parent_id in segment.parent_ids:
            splits = layout.segments[parent_id].entry_bucket_splits if key_shared else ()
            parent = BucketKey(parent_id, bisect_right(splits, start))
            if parent in owners:
                found.setdefault(key, owners[parent])
    return found


def assign(
    keys: Sequence[KeyT],
    consumers: Collection[str],
    current: Mapping[KeyT, str],
    preferred: Mapping[KeyT, str] | None = None,
) -> dict[KeyT, str]:
    """Give each key to one consumer: evenly (spread at most 1), with the fewest changes of owner.

    `keys` stand in the order in which they are dealt out, as `units_of` gives it. Without history the result
    is round-robin by that order and by consumer name (PIP-468, Rebalancing). `preferred` names who should get
    a key where that costs nothing. The same arguments give the same result. Takes O(n log n).
    """
    names = sorted(set(consumers))
    if not names:
        return {}
    known = frozenset(names)
    wishes = {key: name for key, name in (preferred or {}).items() if name in known}
    held = _held(keys, names, current, wishes)
    wishing = [key for key in keys if key in wishes] if wishes else []
    wished = Counter(wishes[key] for key in wishing if current.get(key) not in known)
    quota = _quotas(len(keys), names, held, wished)
    result = {key: name for name in names for key in held[name][: quota[name]]}
    room = {name: quota[name] - min(quota[name], len(held[name])) for name in names}
    for key in wishing:
        if key not in result and room[wishes[key]]:
            result[key] = wishes[key]
            room[wishes[key]] -= 1
    result.update(_round_robin([key for key in keys if key not in result], room))
    return result


def _held(
    keys: Sequence[KeyT], names: Sequence[str], current: Mapping[KeyT, str], wishes: Mapping[KeyT, str]
) -> dict[str, list[KeyT]]:
    """List what each consumer holds, and last what it rather gives up since another is preferred."""
    held: dict[str, list[KeyT]] = {name: [] for name in names}
    yielding: list[tuple[str, KeyT]] = []
    for key in keys:
        owner = current.get(key)
        if owner not in held:
            continue
        if wishes and wishes.get(key, owner) != owner:
            yielding.append((owner, key))
        else:
            held[owner].append(key)
    for owner, key in yielding:
        held[owner].append(key)
    return held


def _quotas(
    count: int, names: Sequence[str], held: Mapping[str, Sequence[KeyT]], wished: Mapping[str, int]
) -> dict[str, int]:
    """Decide how many keys each consumer gets; the odd ones go where they keep most, then please most.

    `wished` counts by consumer what nobody holds and it is preferred for.
    """
    base, odd = divmod(count, len(names))

    def rank(name: str) -> tuple[bool, bool, str]:
        keeps_more = len(held[name]) > base
        pleases_more = len(held[name]) + wished.get(name, 0) > base
        return not keeps_more, not pleases_more, name

    lucky = set(sorted(names, key=rank)[:odd])
    return {name: base + (name in lucky) for name in names}


def _round_robin(keys: Sequence[KeyT], room: Mapping[str, int]) -> dict[KeyT, str]:
    """Deal the segments to the consumers that have room, one each per round, in the order of names."""
    result: dict[KeyT, str] = {}
    left, takers = dict(room), [name for name in room if room[name]]
    waiting = iter(keys)
    while takers:
        result.update({key: name for name, key in zip(takers, waiting, strict=False)})
        for name in takers:
            left[name] -= 1
        takers = [name for name in takers if left[name]]
    return result
