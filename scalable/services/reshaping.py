"""What each phase of a split, merge or rebucket does (PIP-468, Split Protocol and Merge Protocol).

A step has an effect on the segment stores, which is safe to repeat, and a part that joins the transaction in
which the phase is recorded. A port inside the metadata database does everything in that transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.conf import settings

from scalable import announce
from scalable.domain.operations import Phase, next_phase
from scalable.domain.segment import PlannedSegment
from scalable.segments.port import Fence, SegmentKey, SegmentPort
from scalable.services.settling import settle_topic
from scalable.store import operations, topics
from scalable.store.clock import database_now, milliseconds
from scalable.store.operations import OperationLease, OperationView
from scalable.store.topics import TopicView

RENEWALS_PER_LEASE = 3
RACES_WITH_SUBSCRIPTIONS = 5
"""How often cursors are made without the topic's lock, before those who make subscriptions have to wait."""


class SubscriptionsMoved(Exception):
    """Subscriptions were made or deleted since the children's cursors were made: the step is repeated."""


@dataclass
class Drive:
    """One runner's work on one operation: what it knows, under which lease, and what it found out.

    `revision` is the topic's as the present transaction raised it, None as long as it has not.
    """

    operation: OperationView
    lease: OperationLease
    port: SegmentPort
    results: dict[str, Any] = field(init=False)
    epoch: int | None = field(init=False)
    revision: int | None = None
    races: int = 0
    renewed_at: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self.results = dict(self.operation.results)
        self.epoch = self.operation.epoch

    @property
    def next_phase(self) -> Phase | None:
        """Give the phase that this port goes to next."""
        return next_phase(self.operation.phase, self.port.transactional)

    @property
    def fence(self) -> Fence:
        """Name the operation and the token under which effects are asked for."""
        return Fence(self.operation.operation_id, self.lease.token)

    @property
    def parent_keys(self) -> list[SegmentKey]:
        """Name the parents' stores in the order in which all lock them."""
        return [self.key(parent_id) for parent_id in sorted(self.operation.plan.parent_ids)]

    def key(self, segment_id: int) -> SegmentKey:
        """Name the store of one of the topic's segments."""
        return SegmentKey(self.operation.incarnation, segment_id)

    def keep_alive(self) -> None:
        """Renew the lease in good time while an effect has many stores to go through; raises LeaseLost."""
        seconds = settings.SCALABLE_OPERATION_LEASE_SECONDS
        if monotonic() - self.renewed_at > seconds / RENEWALS_PER_LEASE:
            operations.renew(self.lease, seconds=seconds)
            self.renewed_at = monotonic()


def _nothing(drive: Drive) -> None:
    """Do nothing: some phases have no effect, others no part in the transaction."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a phase is reached: an effect that may be repeated, then what is committed with the record.

    `last` is committed with it too, and comes behind it, since others wait from then on to the commit.
    """

    effect: Callable[[Drive], None] = _nothing
    commit: Callable[[Drive], None] = _nothing
    last: Callable[[Drive], None] = _nothing


def step_to(phase: Phase, drive: Drive) -> Step:
    """Give the step that leads from the operation's phase to this one."""
    if drive.operation.phase is Phase.PLANNED and phase is Phase.COMMITTED:
        return IN_PLACE
    return STEPS[phase]


def _create_children(drive: Drive) -> None:
    found = _subscriptions(drive)
    _make_stores(drive, found)
    drive.results["subscriptions"] = found


def _subscriptions(drive: Drive) -> list[list[Any]]:
    """List [name, whether it shares keys] of all subscriptions, as a row of the operation gives it back."""
    return [list(found) for found in topics.named_subscriptions(drive.operation.incarnation)]


def _make_stores(drive: Drive, subscriptions: Sequence[Sequence[Any]]) -> None:
    for child in drive.operation.plan.children:
        drive.port.create(
            drive.key(child.segment_id),
            hash_range=child.hash_range,
            subscriptions=_cursors(subscriptions, child),
            fence=drive.fence,
        )
        drive.keep_alive()


def _cursors(subscriptions: Sequence[Sequence[Any]], child: PlannedSegment) -> list[str]:
    pairs = ((name, key_shared) for name, key_shared in subscriptions)
    return topics.cursors_of(pairs, child.entry_bucket_splits)


def _terminate_parents(drive: Drive) -> None:
    """Seal the parents' logs, then hand their producers' marks on, before a child can accept an append."""
    ends: dict[str, int] = {}
    for key in drive.parent_keys:
        ends[str(key.segment_id)] = drive.port.terminate(key, fence=drive.fence)
        announce.publish(announce.SegmentTerminated(key.incarnation, key.segment_id))
        drive.keep_alive()
    for child in drive.operation.plan.children:
        drive.port.inherit_producer_marks(drive.parent_keys, drive.key(child.segment_id), fence=drive.fence)
        drive.keep_alive()
    drive.results["endOffsets"] = ends


def _match_cursors(drive: Drive) -> None:
    """Give the children the cursors of subscriptions that were made since, and take those of deleted ones."""
    before = drive.results["subscriptions"]
    found = _subscriptions(drive)
    if found == before:
        return
    _make_stores(drive, found)
    gone = [one for one in before if one not in found]
    for child in drive.operation.plan.children:
        for name in _cursors(gone, child):
            drive.port.delete_cursor(drive.key(child.segment_id), subscription=name)
    drive.results["subscriptions"] = found


def _commit_layout(drive: Drive) -> None:
    """Apply the plan to the layout as it is now; raises SubscriptionsMoved when the cursors no longer fit."""
    topic = topics.lock_incarnation(drive.operation.incarnation)
    if _subscriptions(drive) != drive.results["subscriptions"]:
        drive.races += 1
        if drive.races < RACES_WITH_SUBSCRIPTIONS:
            raise SubscriptionsMoved
        _match_cursors(drive)  # under the lock none comes or goes: the parents are sealed, and writers wait
    _replace_layout(drive, topic)


def _reshape_in_place(drive: Drive) -> None:
    """Do it all in one transaction: there is no moment without a segment that takes writes."""
    topic = topics.lock_incarnation(drive.operation.incarnation)
    _create_children(drive)
    _replace_layout(drive, topic)


def _replace_layout(drive: Drive, topic: TopicView) -> None:
    layout = topic.layout.apply(drive.operation.plan, milliseconds(database_now()))
    operation = drive.operation
    drive.revision = topics.write_reshaped_layout(
        topic, layout, kind=operation.kind, started_at_ms=operation.created_at_ms
    )
    drive.epoch = layout.epoch


def _settle(drive: Drive) -> None:
    """Evaluate drained segments and assignments anew, from the rows as committed."""
    settle_topic(topic_id=drive.operation.incarnation)


STEPS: dict[Phase, Step] = {
    Phase.CHILDREN_CREATED: Step(effect=_create_children),
    Phase.TERMINATING: Step(),
    Phase.PARENTS_TERMINATED: Step(effect=_terminate_parents),
    Phase.COMMITTED: Step(effect=_match_cursors, commit=_commit_layout),
    Phase.NOTIFIED: Step(effect=_settle),
}
# The parents come last of all: from their termination to the commit their producers wait.
IN_PLACE = Step(commit=_reshape_in_place, last=_terminate_parents)
