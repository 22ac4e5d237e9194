"""What a subscription's backlog takes in bytes, and how much of it is out with consumers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import CursorUsage
from scalable.services.backlogs import Backlog, SegmentBacklog
from scalable.store.subscriptions import SubscriptionView


@dataclass(frozen=True, slots=True)
class SegmentUsage:
    """A subscription in one segment: bytes that a consumer would still receive, and messages delivered.

    `backlog_bytes` is about right: messages are taken to be of the mean size of those that are still there,
    as stored. `claimed` is None where delivery is not recorded, as it is of queues only.
    """

    backlog_bytes: int
    claimed: int | None


Usages = Mapping[tuple[int, str], CursorUsage]


def by_cursor(found: Sequence[CursorUsage]) -> Usages:
    """Give usages by segment id and name of the cursor."""
    return {(each.segment_id, each.cursor): each for each in found}


def usage_of(subscription: SubscriptionView, backlog: Backlog, found: Usages) -> dict[int, SegmentUsage]:
    """Give what a subscription has in each segment; a cursor that is gone meanwhile counts as nothing."""
    queue = subscription.type is SubscriptionType.QUEUE
    usages = {}
    for key, segment in backlog.segments.items():
        cursors = [found[key, each.cursor] for each in segment.cursors if (key, each.cursor) in found]
        claimed = sum(each.claimed for each in cursors) if queue else None
        usages[key] = SegmentUsage(_backlog_bytes(segment, cursors), claimed)
    return usages


def _backlog_bytes(segment: SegmentBacklog, cursors: Sequence[CursorUsage]) -> int:
    if not cursors or not segment.messages:
        return 0
    furthest_back = min(cursors, key=lambda each: each.first_offset)
    stored = max(1, segment.end_offset - furthest_back.first_offset)
    return round(furthest_back.bytes_ahead * min(1.0, segment.messages / stored))
