"""What a split, merge or rebucket would do: rates of the children, and which consumers would get what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout
from scalable.domain.load import SegmentRates
from scalable.domain.subscriptions import BucketKey, assign, assignable, parents_owners, units_of


class Passing(NamedTuple):
    """A segment or entry bucket that another consumer would read; None is nobody."""

    key: BucketKey
    before: str | None
    after: str


def share_of(child: HashRange, parent: HashRange, parts: Sequence[float]) -> float:
    """Estimate which share of a parent's traffic a child takes, between 0 and 1.

    `parts` is what was measured in equally wide parts of the parent's range; without any, or where nothing
    came, traffic is taken to be even.
    """
    common = child.intersection(parent)
    if common is None:
        return 0.0
    total = sum(parts)
    if total <= 0:
        return common.size / parent.size
    width = parent.size / len(parts)
    first, end = common.start - parent.start, common.end + 1 - parent.start
    inside = sum(
        rate * max(0.0, min(end, (number + 1) * width) - max(first, number * width)) / width
        for number, rate in enumerate(parts)
    )
    return min(1.0, inside / total)


def scaled(rates: SegmentRates, share: float) -> SegmentRates:
    """Give a share of rates."""
    return SegmentRates(*(rate * share for rate in rates.by_metric().values()))


def added(many: Collection[SegmentRates]) -> SegmentRates:
    """Add rates up."""
    columns = zip(*(rates.by_metric().values() for rates in many), strict=True)
    return SegmentRates(*(sum(column) for column in columns)) if many else SegmentRates()


def passing(
    after: Layout,
    *,
    drained: Collection[int],
    owners: Mapping[BucketKey, str],
    consumers: Collection[str],
    key_shared: bool,
) -> tuple[Passing, ...]:
    """Tell what would pass to another consumer once the change's parents, among `drained`, are drained.

    A child counts as its parent's until then: one that the parent's consumer gets does not pass.
    """
    keys = units_of(after, assignable(after, drained), key_shared=key_shared)
    inherited = parents_owners(after, keys, owners, key_shared=key_shared)
    before = {key: owners.get(key, inherited.get(key)) for key in keys}
    wanted = assign(keys, consumers, owners, inherited)
    return tuple(
        Passing(key, before[key], wanted[key]) for key in sorted(wanted) if wanted[key] != before[key]
    )
