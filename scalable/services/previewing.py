"""What a split, merge or rebucket would do, without doing it: children, their rates, who would get what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalable.domain.errors import SegmentsFixed
from scalable.domain.forecast import Passing, added, passing, scaled, share_of
from scalable.domain.layout import Layout, PlannedSegment, ReshapePlan, Segment
from scalable.domain.load import SegmentRates
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import SubscriptionType
from scalable.services.loads import loads_for_decision
from scalable.services.scaling import Planner, planner_of_merge, planner_of_rebucket, planner_of_split
from scalable.store import loads, subscriptions, topics
from scalable.store.clock import database_now, milliseconds, moment
from scalable.store.decisions import SYSTEM_TENANT
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

SUBSCRIPTIONS_LIMIT = 100
"""Of so many subscriptions, the first by name, it is told whose work would move."""
TILES_MINUTES = 15
TILES_LIMIT = 2_000


@dataclass(frozen=True, slots=True)
class Child:
    """A segment that would be, with the rates that it would probably have (None: nothing is known)."""

    planned: PlannedSegment
    rates: SegmentRates | None


@dataclass(frozen=True, slots=True)
class Preview:
    """A change on paper; `basis` tells where the rates come from: tiles, width, or unknown.

    `moves` has for each subscription with consumers what would pass to another one.
    """

    epoch: int
    plan: ReshapePlan
    children: tuple[Child, ...]
    basis: str
    moves: tuple[tuple[SubscriptionView, tuple[Passing, ...]], ...]
    subscriptions_total: int


def preview_split(
    *,
    name: TopicName,
    segment_id: int,
    boundaries: Sequence[int] | None = None,
    expected_epoch: int | None = None,
) -> Preview:
    """Tell what a split would do; raises as `request_split`, but for SegmentClaimed."""
    return _preview(name, planner_of_split(segment_id, boundaries), expected_epoch)


def preview_merge(
    *, name: TopicName, segment_ids: Sequence[int], expected_epoch: int | None = None
) -> Preview:
    """Tell what a merge would do; raises as `request_merge`, but for SegmentClaimed."""
    return _preview(name, planner_of_merge(segment_ids), expected_epoch)


def preview_rebucket(
    *, name: TopicName, segment_id: int, bucket_count: int, expected_epoch: int | None = None
) -> Preview:
    """Tell what a rebucket would do; raises as `request_rebucket`, but for SegmentClaimed."""
    return _preview(name, planner_of_rebucket(segment_id, bucket_count), expected_epoch)


def _preview(name: TopicName, plan_on: Planner, expected_epoch: int | None) -> Preview:
    topic = topics.read(name)
    if name.tenant == SYSTEM_TENANT:
        raise SegmentsFixed(topic=str(name))
    topic.check_epoch(expected_epoch)
    plan, now_ms = plan_on(topic.layout), milliseconds(database_now())
    after = topic.layout.apply(plan, now_ms)
    children, basis = _children(topic, plan, now_ms)
    found = [each for each in subscriptions.of_topic(topic.incarnation) if _is_assigned(each)]
    moves = tuple((each, _passing(each, after, plan)) for each in found[:SUBSCRIPTIONS_LIMIT])
    return Preview(topic.epoch, plan, children, basis, moves, len(found))


def _is_assigned(subscription: SubscriptionView) -> bool:
    return subscription.type is not SubscriptionType.QUEUE


def _children(topic: TopicView, plan: ReshapePlan, now_ms: int) -> tuple[tuple[Child, ...], str]:
    parents = [topic.layout.segments[key] for key in plan.parent_ids]
    known = loads_for_decision(incarnation=topic.incarnation, rate_window_seconds=0, now_ms=now_ms).loads
    if not all(parent.segment_id in known for parent in parents):
        return tuple(Child(child, None) for child in plan.children), "unknown"
    parts = _measured(topic, parents, now_ms)
    children = tuple(
        Child(
            child,
            added(
                [scaled(known[parent.segment_id].rates, _share(child, parent, parts)) for parent in parents]
            ),
        )
        for child in plan.children
    )
    return children, "tiles" if parts else "width"


def _share(child: PlannedSegment, parent: Segment, parts: Mapping[int, Sequence[float]]) -> float:
    return share_of(child.hash_range, parent.hash_range, parts.get(parent.segment_id, ()))


def _measured(topic: TopicView, parents: Sequence[Segment], now_ms: int) -> dict[int, tuple[float, ...]]:
    """Give the newest tile of each parent with any traffic, of the last quarter of an hour."""
    first = moment(max(0, now_ms - TILES_MINUTES * 60_000))
    wanted = {parent.segment_id for parent in parents}
    tiles = loads.read_tiles(topic.incarnation, first=first, last=moment(now_ms), limit=TILES_LIMIT)
    return {tile.segment_id: tile.mean for tile in tiles if tile.segment_id in wanted and sum(tile.mean) > 0}


def _passing(subscription: SubscriptionView, after: Layout, plan: ReshapePlan) -> tuple[Passing, ...]:
    known = subscriptions.ownerships(subscription.subscription_id)
    owners = {key: one.owner for key, one in known.owned.items() if one.owner is not None}
    return passing(
        after,
        drained=known.drained | set(plan.parent_ids),
        owners=owners,
        consumers=subscriptions.consumers(subscription.subscription_id),
        key_shared=subscription.key_shared,
    )
