"""Which subscriptions have cursors on their way in a data plane outside the metadata database."""

from scalable.models import Subscription
from scalable.store.clock import ClockTimestamp, seconds_from_now


def note(subscription_id: int) -> None:
    """Note that cursors are about to move, in a transaction of its own; waits for moves under way."""
    Subscription.objects.filter(pk=subscription_id).update(moving_since=ClockTimestamp())


def is_noted(subscription_id: int) -> bool:
    """Tell whether a note is there; the caller holds the subscription's lock."""
    return Subscription.objects.filter(pk=subscription_id, moving_since__isnull=False).exists()


def forget(subscription_id: int) -> None:
    """Take the note off: the cursors and what is known of them agree, or none has moved."""
    Subscription.objects.filter(pk=subscription_id).update(moving_since=None)


def left_behind(*, seconds: float, limit: int) -> list[int]:
    """Subscriptions with a note older than this whose move is not under way, by ascending id."""
    rows = Subscription.objects.filter(moving_since__lte=seconds_from_now(-seconds)).order_by("pk")
    found = rows.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True)
    return list(found[:limit])
