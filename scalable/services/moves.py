"""Moves of cursors beside what is known of them: both or none, wherever the data plane is.

Outside the metadata database it does not commit with the caller's transaction. A process that dies between
the two commits, or a connection that ends there, would leave cursors in front of segments that are marked as
drained, which nobody would be given again, or owners whose generation the data plane refuses. So a move is
noted before it begins, and whoever finds an old note settles the subscription by its cursors.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from django.db import transaction

from scalable import announce
from scalable.domain.errors import Unavailable
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.registry import segment_port
from scalable.services.settling import sought
from scalable.store import moves
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView

LEFT_BEHIND_SECONDS = 15.0
"""Longer than a move waits for the locks of its topic and subscription, once it is noted."""
LIMIT = 50

logger = logging.getLogger(__name__)


class Note:
    """A move that is about to begin; from `begin` on cursors may have moved."""

    begun = False

    def begin(self, subscription_id: int) -> None:
        """Begin, under the subscription's lock; raises Unavailable when it was not noted, or no longer is."""
        if segment_port().transactional:
            return
        if not moves.is_noted(subscription_id):
            raise Unavailable(reference=uuid4().hex)
        self.begun = True

    def done(self, subscription_id: int) -> None:
        """Take the note off, with the transaction that knows of the move."""
        if self.begun:
            moves.forget(subscription_id)


@contextmanager
def noted(incarnation: int, subscription: str) -> Iterator[Note]:
    """Note a move before the transaction that makes it, and settle what it leaves if it fails.

    A data plane in the metadata database needs none of it.
    """
    note = Note()
    found = None if segment_port().transactional else store.find(incarnation, subscription)
    if (
        found is not None and found.type is SubscriptionType.CHECKPOINT
    ):  # it is refused: its floors tell nothing
        found = None
    if found is not None:
        moves.note(found.subscription_id)
    try:
        yield note
    except Exception:
        if found is not None:
            _clear(found.subscription_id, begun=note.begun)
        raise


def settle_left_behind() -> None:
    """Settle subscriptions whose moves ended in the middle, with their process or connection."""
    with transaction.atomic():
        left = moves.left_behind(seconds=LEFT_BEHIND_SECONDS, limit=LIMIT)
    for subscription_id in left:
        logger.warning("A move of subscription #%d ended in the middle: it is settled", subscription_id)
        settle_moved(subscription_id=subscription_id)


def settle_moved(*, subscription_id: int) -> None:
    """Have what is known of a subscription follow its cursors, wherever they stand; one that is gone is fine.

    Owners go on under new generations.
    """
    with transaction.atomic():
        for locked in store.lock_many([subscription_id]):
            if moves.is_noted(subscription_id):
                _follow_cursors(locked)
                moves.forget(subscription_id)


def settle_refused(*, subscription: SubscriptionView, key: BucketKey, generation: int) -> None:
    """Give an owner a new generation if the data plane refuses the one that it has by the metadata.

    The transaction that would have told of a newer one was lost. Else nothing changes: the owner is another,
    or is told of its newer generation.
    """
    if segment_port().transactional:
        return
    with transaction.atomic():
        for locked in store.lock_many([subscription.subscription_id]):
            owned = store.ownership(locked.subscription_id, key)
            if owned is not None and owned.generation == generation:
                sought(locked, segment_ids={key.segment_id})


def _clear(subscription_id: int, *, begun: bool) -> None:
    try:
        if begun:
            settle_moved(subscription_id=subscription_id)
        else:
            moves.forget(subscription_id)
    except Exception:
        logger.warning("A failed move of subscription #%d is settled later", subscription_id, exc_info=True)


def _follow_cursors(subscription: SubscriptionView) -> None:
    if subscription.type is SubscriptionType.STREAM:
        sought(subscription, segment_ids=set(store.read_layout(subscription.incarnation).segments))
    else:
        announce.publish(announce.AssignmentChanged(subscription.subscription_id, subscription.incarnation))
