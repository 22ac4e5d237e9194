"""Moves of cursors beside what is known of them: both or none, wherever the data plane is.

Outside the metadata database it does not commit with the caller's transaction. A process that dies between
the two commits, or a connection that ends there, would leave cursors in front of segments that are marked as
drained, which nobody would be given again, or owners whose generation the data plane refuses. So a move is
noted before it begins, and whoever finds an old note settles the subscription by its cursors.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from django.db import IntegrityError, transaction

from scalable import announce
from scalable.domain.errors import SegmentStoreMissing, Unavailable
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.cursors import cursors_in
from scalable.services.settling import sought, unowned
from scalable.store import moves
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView

LEFT_BEHIND_SECONDS = 15.0
"""Longer than a move waits for the locks of its topic and subscription, once it is noted."""
LIMIT = 50

Fences = Mapping[BucketKey, int]
"""The generation from which on an owner's acknowledgements are taken, by segment or entry bucket."""

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
        For outside data planes alone.
        """
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
    try:
        with transaction.atomic():
            return Note(moves.note(found.subscription_id), found.subscription_id)
    except IntegrityError:  # it was deleted just now
        return Note()


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
    or is told of its newer generation. What the databases raise goes on to the owner, who acknowledges again.
    """
    if segment_port().transactional or subscription.type is not SubscriptionType.STREAM:
        return
    with transaction.atomic():
        for locked in store.lock_many([subscription.subscription_id]):
            owned = store.ownership(locked.subscription_id, key)
            if owned is not None and owned.generation == generation:
                follow_cursors(locked, {key.segment_id}, fence_off(locked, {key.segment_id}))


def fence_off(subscription: SubscriptionView, segment_ids: Collection[int]) -> Fences:
    """Fence the owners of these segments off in an outside data plane, and give the new generations.

    They are above all that either database has given. The caller holds the subscription's lock. It comes
    before any cursor is moved or looked at: an acknowledgement under way comes before it, and none after.
    """
    if segment_port().transactional or subscription.type is not SubscriptionType.STREAM:
        return {}
    layout = store.read_layout(subscription.incarnation)
    owned = store.ownerships(subscription.subscription_id).owned
    fences, wanted = {}, []
    for segment_id in sorted(segment_ids):
        fenced = _fenced(SegmentKey(subscription.incarnation, segment_id))
        for bucket, cursor in enumerate(cursors_in(subscription, layout.get(segment_id))):
            key = BucketKey(segment_id, bucket)
            known = owned.get(key, unowned(subscription)).generation
            fences[key] = max(known, fenced.get(cursor.name, 0)) + 1
            wanted.append((segment_id, cursor.name, fences[key]))
    segment_port().own_all(incarnation=subscription.incarnation, generations=wanted)
    return fences


def follow_cursors(subscription: SubscriptionView, segment_ids: Collection[int], fences: Fences) -> None:
    """Have what is known of a locked subscription follow its cursors in these segments, and tell of it.

    Owners go on under new generations, those of the fences where there are any.
    """
    if subscription.type is SubscriptionType.STREAM:
        sought(subscription, segment_ids=segment_ids, fences=fences)
    else:
        announce.publish(announce.AssignmentChanged(subscription.subscription_id, subscription.incarnation))


def _clear(note: Note, note_id: int) -> None:
    """Settle what a failed move has moved, also where others did before it moved the last."""
    try:
        with transaction.atomic():
            for locked in store.lock_many([note.subscription_id]) if note.begun else ():
                _begin_anew(locked)
            moves.take_off(note_id)
    except Exception:
        logger.warning(
            "A failed move of subscription #%d is settled later", note.subscription_id, exc_info=True
        )


def _settle_old(subscription_id: int) -> None:
    with transaction.atomic():
        for locked in store.lock_many([subscription_id]):
            if moves.take_off_old(subscription_id, seconds=LEFT_BEHIND_SECONDS):
                _begin_anew(locked)


def _begin_anew(subscription: SubscriptionView) -> None:
    """Have all that is known of a locked subscription follow its cursors."""
    segment_ids = store.read_layout(subscription.incarnation).segments
    follow_cursors(subscription, segment_ids, fence_off(subscription, segment_ids))


def _fenced(key: SegmentKey) -> dict[str, int]:
    """Give the generations that the data plane has, by cursor."""
    with suppress(SegmentStoreMissing):  # it was pruned just now
        return {state.subscription: state.generation for state in segment_port().cursors(key)}
    return {}
