"""What consumers of a QUEUE subscription do with the messages of a segment: claim, acknowledge, give back.

A claim is a row of the data plane with a deadline; whoever dies or forgets lets it run out. Any node may do
this for any consumer: the cursor's lock is what they share.
"""

from collections.abc import Sequence
from contextlib import suppress

from scalable import announce
from scalable.domain.errors import (
    ScalableError,
    SegmentNotFound,
    SegmentStoreMissing,
    SubscriptionNotFound,
    TopicDeleted,
)
from scalable.domain.names import TopicName
from scalable.segments.port import ClaimResult, SegmentKey
from scalable.segments.registry import segment_port
from scalable.store import subscriptions as store
from scalable.store import topics
from scalable.store.subscriptions import SubscriptionView

NO_SEGMENT = -1
Ranges = Sequence[tuple[int, int]]


def claim(
    *,
    topic: TopicName,
    subscription: SubscriptionView,
    segment_id: int,
    consumer: str,
    session: str,
    max_messages: int,
    max_bytes: int,
    lease_seconds: float,
) -> ClaimResult:
    """Claim the next messages that are due and free, for as long as the lease.

    Raises SegmentNotFound (also when it is pruned), TopicDeleted, SubscriptionNotFound.
    """
    try:
        return segment_port().claim(
            SegmentKey(subscription.incarnation, segment_id),
            subscription=subscription.name,
            consumer=consumer,
            session=session,
            max_messages=max_messages,
            max_bytes=max_bytes,
            lease_seconds=lease_seconds,
        )
    except (SegmentStoreMissing, SubscriptionNotFound) as error:
        raise _missing(topic, subscription, segment_id) from error


def acknowledge(*, subscription: SubscriptionView, segment_id: int, incarnation: int, ranges: Ranges) -> None:
    """Acknowledge messages each for itself, whoever holds their claims by now.

    In a pruned segment there is nothing left to do. Raises CursorSought, PositionInvalid,
    SubscriptionNotFound, SegmentNotFound (it never was).
    """
    try:
        segment_port().acknowledge_ranges(
            SegmentKey(subscription.incarnation, segment_id),
            subscription=subscription.name,
            generation=None,
            ranges=ranges,
            incarnation=incarnation,
        )
    except SegmentStoreMissing:
        if not _exists(subscription):  # nor is its topic, perhaps
            raise SubscriptionNotFound(subscription=subscription.name) from None
        if not topics.ever_had(subscription.incarnation, segment_id):
            raise SegmentNotFound(segment_id=segment_id) from None


def give_back(
    *,
    subscription: SubscriptionView,
    segment_id: int,
    session: str,
    ranges: Ranges | None,
    delay_seconds: float = 0.0,
    count_delivery: bool = True,
) -> None:
    """Give back what a session holds of these messages (None: all): due again for anybody after the delay.

    Without `count_delivery` the messages count as not delivered, for nobody saw them. A missing segment or
    subscription has no claims; that is fine. Where nothing comes back, nobody is woken.
    """
    try:
        returned = segment_port().return_claims(
            SegmentKey(subscription.incarnation, segment_id),
            subscription=subscription.name,
            session=session,
            ranges=ranges,
            delay_seconds=delay_seconds,
            count_delivery=count_delivery,
        )
    except (SegmentStoreMissing, SubscriptionNotFound):
        return
    if returned:
        _announce(subscription, segment_id)


def renew(
    *, subscription: SubscriptionView, segment_id: int, session: str, ranges: Ranges, lease_seconds: float
) -> int:
    """Let what a session still holds of these messages be its own for another lease; give how many it has."""
    with suppress(SegmentStoreMissing, SubscriptionNotFound):
        return segment_port().renew(
            SegmentKey(subscription.incarnation, segment_id),
            subscription=subscription.name,
            session=session,
            ranges=ranges,
            lease_seconds=lease_seconds,
        )
    return 0


def announce_drained(*, subscription: SubscriptionView, segment_id: int) -> None:
    """Tell the other consumers of a segment that nothing is left of it."""
    _announce(subscription, segment_id)


def reopened(*, topic: TopicName, subscription: SubscriptionView, segment_ids: Sequence[int]) -> list[int]:
    """Of segments that were drained, those that have messages again because the subscription was sought.

    Raises SubscriptionNotFound, TopicDeleted when they are gone.
    """
    if not _exists(subscription):
        raise _missing(topic, subscription, NO_SEGMENT)
    if not segment_ids:
        return []
    backlogs = segment_port().backlogs(incarnation=subscription.incarnation, subscription=subscription.name)
    left = {each.segment_id for each in backlogs if each.backlog}
    return [segment_id for segment_id in segment_ids if segment_id in left]


def _announce(subscription: SubscriptionView, segment_id: int) -> None:
    announce.publish(announce.QueueChanged(subscription.subscription_id, segment_id))


def _exists(subscription: SubscriptionView) -> bool:
    """Tell whether the subscription is still there: this one, not a later one of its name."""
    found = store.find(subscription.incarnation, subscription.name)
    return found is not None and found.subscription_id == subscription.subscription_id


def _missing(topic: TopicName, subscription: SubscriptionView, segment_id: int) -> ScalableError:
    if topics.find_name(subscription.incarnation) is None:
        return TopicDeleted(topic=str(topic))
    if not _exists(subscription):
        return SubscriptionNotFound(subscription=subscription.name)
    return SegmentNotFound(segment_id=segment_id)
