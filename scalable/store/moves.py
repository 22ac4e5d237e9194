"""Which subscriptions have cursors on their way in a data plane outside the metadata database."""

from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef

from scalable.models import CursorMove, Subscription
from scalable.store.clock import ClockTimestamp, database_now


def note(subscription_id: int) -> int:
    """Note that cursors are about to move, in a transaction of its own, and give the note's id."""
    return CursorMove.objects.create(subscription_id=subscription_id, noted_at=ClockTimestamp()).pk


def is_there(note_id: int, subscription_id: int) -> bool:
    """Tell whether a note of this subscription is there."""
    return CursorMove.objects.filter(pk=note_id, subscription_id=subscription_id).exists()


def is_noted(subscription_id: int) -> bool:
    """Tell whether any move of a subscription is noted."""
    return CursorMove.objects.filter(subscription_id=subscription_id).exists()


def take_off(note_id: int) -> None:
    """Take a note off: the cursors and what is known of them agree, or none has moved."""
    CursorMove.objects.filter(pk=note_id).delete()


def take_off_old(subscription_id: int, *, seconds: float) -> bool:
    """Take a subscription's notes off that are older than this, and tell whether there were any."""
    old = CursorMove.objects.filter(subscription_id=subscription_id, noted_at__lte=_before(seconds))
    deleted, _ = old.delete()
    return bool(deleted)


def left_behind(*, seconds: float, limit: int) -> list[int]:
    """Subscriptions with a note older than this whose move is not under way, by ascending id.

    They are locked until the transaction ends.
    """
    old = CursorMove.objects.filter(subscription_id=OuterRef("pk"), noted_at__lte=_before(seconds))
    rows = Subscription.objects.filter(Exists(old)).order_by("pk")
    found = rows.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True)
    return list(found[:limit])


def _before(seconds: float) -> datetime:
    """Give a time in the past: a value, for the database would reckon an expression row by row."""
    return database_now() - timedelta(seconds=seconds)
