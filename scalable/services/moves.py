"""Moves of cursors beside what is known of them: both or none, wherever the data plane is.

Outside the metadata database it does not commit with the caller's transaction. A process that dies between
the two commits, or a connection that ends there, would leave cursors in front of segments that are marked as
drained, which nobody would be given again, or owners whose generation the data plane refuses. So a move is
noted before it begins, and whoever finds an old note settles the subscription by its cursors.
"""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from django.db import transaction

from scalable import announce
from scalable.domain.errors import SegmentStoreMissing, Unavailable
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.cursors import cursors_in
from scalable.services.settling import sought
from scalable.store import moves
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView

LEFT_BEHIND_SECONDS = 15.0
"""Longer than a move waits for the locks of its topic and subscription, once it is noted."""
LIMIT = 50

logger = logging.getLogger(__name__)


@dataclass
class Note:
    """A move that is about to begin; once it has `begun`, cursors may have moved."""

    note_id: int | None = None
    subscription_id: int = 0
    begun: bool = False

    def begin(self, subscription_id: int) -> None:
        """Begin, under the subscription's lock; raises Unavailable when it is not noted, or no longer."""
        if segment_port().transactional:
            return
        self.subscription_id = subscription_id
        self.check()
        self.begun = True

    def check(self) -> None:
        """Look whether the move may go on; raises Unavailable, or what a session that has ended raises.

        Its transaction holds the locks as long as its session lasts: who stood still for long has neither.
        """
        if segment_port().transactional:
            return
        if self.note_id is None or not moves.is_there(self.note_id, self.subscription_id):
            raise Unavailable(reference=uuid4().hex)

    def done(self) -> None:
        """Take the note off, with the transaction that knows of the move."""
        if self.note_id is not None:
            moves.take_off(self.note_id)


@contextmanager
def noted(name: TopicName, subscription: str) -> Iterator[Note]:
    """Note a move before the transaction that makes it, and settle what it leaves if it fails.

    A data plane in the metadata database needs none of it. Raises TopicNotFound.
    """
    note = Note() if segment_port().transactional else _noted(store.incarnation_of(name), subscription)
    try:
        yield note
    except Exception:
        if note.note_id is not None:
            _clear(note, note.note_id)
        raise


def _noted(incarnation: int, subscription: str) -> Note:
    found = store.find(incarnation, subscription)
    if found is None or found.type is SubscriptionType.CHECKPOINT:  # the move itself refuses them
        return Note()
    return Note(moves.note(found.subscription_id), found.subscription_id)


def settle_left_behind() -> None:
    """Settle subscriptions whose moves ended in the middle, with their process or connection."""
    if segment_port().transactional:
        return
    with transaction.atomic():
        left = moves.left_behind(seconds=LEFT_BEHIND_SECONDS, limit=LIMIT)
    for subscription_id in left:
        logger.warning("A move of subscription #%d ended in the middle: it is settled", subscription_id)
        try:
            _settle_old(subscription_id)
        except Exception:
            logger.warning("It is settled later: subscription #%d", subscription_id, exc_info=True)


def settle_refused(*, subscription: SubscriptionView, key: BucketKey, generation: int) -> None:
    """Give an owner a new generation if the data plane refuses the one that it has by the metadata.

    The transaction that would have told of a newer one was lost. Else nothing changes: the owner is another,
    or is told of its newer generation. What fails is logged: the caller has a refusal to tell.
    """
    if segment_port().transactional or subscription.type is not SubscriptionType.STREAM:
        return
    try:
        with transaction.atomic():
            for locked in store.lock_many([subscription.subscription_id]):
                owned = store.ownership(locked.subscription_id, key)
                if owned is not None and owned.generation == generation:
                    _begin_anew(locked, {key.segment_id})
    except Exception:
        logger.warning("Whose acknowledgement was refused is not looked for", exc_info=True)


def _clear(note: Note, note_id: int) -> None:
    """Settle what a failed move has moved, also where others did before it moved the last."""
    try:
        with transaction.atomic():
            if note.begun:
                _follow_cursors(note.subscription_id)
            moves.take_off(note_id)
    except Exception:
        logger.warning(
            "A failed move of subscription #%d is settled later", note.subscription_id, exc_info=True
        )


def _settle_old(subscription_id: int) -> None:
    with transaction.atomic():
        _follow_cursors(subscription_id)
        moves.take_off_old(subscription_id, seconds=LEFT_BEHIND_SECONDS)


def _follow_cursors(subscription_id: int) -> None:
    """Lock a subscription and have what is known of it follow its cursors; owners get new generations."""
    for locked in store.lock_many([subscription_id]):
        if locked.type is SubscriptionType.STREAM:
            _begin_anew(locked, store.read_layout(locked.incarnation).segments)
        else:
            announce.publish(announce.AssignmentChanged(locked.subscription_id, locked.incarnation))


def _begin_anew(subscription: SubscriptionView, segment_ids: Collection[int]) -> None:
    """Give the owners of these segments generations that neither database has given anybody else."""
    layout, fences = store.read_layout(subscription.incarnation), {}
    for segment_id in sorted(segment_ids):
        fenced = _fenced(SegmentKey(subscription.incarnation, segment_id))
        for bucket, cursor in enumerate(cursors_in(subscription, layout.get(segment_id))):
            fences[BucketKey(segment_id, bucket)] = fenced.get(cursor.name, 0)
    sought(subscription, segment_ids=segment_ids, fences=fences)


def _fenced(key: SegmentKey) -> dict[str, int]:
    """Give the generations that the data plane has, by cursor."""
    with suppress(SegmentStoreMissing):  # it was pruned just now
        return {state.subscription: state.generation for state in segment_port().cursors(key)}
    return {}
