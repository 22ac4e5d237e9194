"""What each consumer of a subscription owns, and how it gives up what goes to another (PIP-468)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db import transaction

from scalable.domain.cursors import bucket_ranges, cursor_name
from scalable.domain.errors import (
    GenerationSuperseded,
    PositionInvalid,
    SegmentNotOwned,
    SegmentStoreMissing,
    TermSuperseded,
)
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.layout import Layout
from scalable.domain.names import SegmentName
from scalable.domain.ownership import Ownership
from scalable.domain.segment import SegmentState
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.controller import Leader, require
from scalable.services.positions import require_reached
from scalable.services.settling import Outcome, write_all
from scalable.store import assigned, checkpoints
from scalable.store import subscriptions as store
from scalable.store.assigned import Assigned, AssignedUnit
from scalable.store.subscriptions import AssignmentVersion, SubscriptionView


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment that a consumer owns, or an entry bucket of it.

    `position` is the first offset that is not acknowledged.
    """

    name: SegmentName
    state: SegmentState
    generation: int
    position: int
    bucket: int = 0
    bucket_range: HashRange = FULL_RANGE


@dataclass(frozen=True, slots=True)
class AssignmentView:
    """All that one consumer owns as of (`generation`, `epoch`); `releasing` is what it is to give up.

    `shared` gives all entry buckets of the owned segments that have other owners too. `registered` is False
    when the subscription does not know the consumer, which then owns nothing. `restored` is the generation
    that a CHECKPOINT group's last restore made. On `standby` it owns nothing and nothing is on its way to it.
    """

    generation: int
    epoch: int
    segments: tuple[OwnedSegment, ...]
    releasing: tuple[BucketKey, ...]
    shared: Mapping[int, tuple[HashRange, ...]]
    registered: bool
    restored: int = 0
    standby: bool = False

    @property
    def told(self) -> tuple[object, ...]:
        """Give what a consumer hears of when it differs; a position only says where a new owner begins."""
        owned = tuple(
            (one.name.segment_id, one.bucket, one.generation, one.state.value) for one in self.segments
        )
        return owned, self.releasing, self.shared, self.restored, self.standby


@dataclass(frozen=True)
class Assignments:
    """What all consumers of a subscription own, as of one moment."""

    leader: Leader
    assigned: Assigned
    positions: Mapping[tuple[int, str], int]
    consumers: frozenset[str]

    def of(self, consumer: str) -> AssignmentView:
        """Give all that one consumer owns."""
        units = self._by_owner.get(consumer, [])
        return AssignmentView(
            generation=self.assigned.generation,
            epoch=self.assigned.epoch,
            segments=tuple(map(self._owned_segment, units)),
            releasing=tuple(unit.key for unit in units if unit.next_owner is not None),
            shared=self._shared(units),
            registered=consumer in self.consumers,
            restored=self.assigned.restored_generation,
            standby=not units and consumer not in self._next_owners,
        )

    @cached_property
    def _by_owner(self) -> Mapping[str, list[AssignedUnit]]:
        found: dict[str, list[AssignedUnit]] = {}
        for unit in self.assigned.units:
            found.setdefault(unit.owner, []).append(unit)
        return found

    @cached_property
    def _next_owners(self) -> frozenset[str | None]:
        return frozenset(unit.next_owner for unit in self.assigned.units)

    @cached_property
    def _owners(self) -> Mapping[int, set[str]]:
        found: dict[int, set[str]] = {}
        for unit in self.assigned.units:
            found.setdefault(unit.key.segment_id, set()).add(unit.owner)
        return found

    def _shared(self, units: Sequence[AssignedUnit]) -> dict[int, tuple[HashRange, ...]]:
        if not self.assigned.key_shared:
            return {}
        segment_ids = dict.fromkeys(unit.key.segment_id for unit in units)
        return {key: self._ranges[key] for key in segment_ids if len(self._owners[key]) > 1}

    @cached_property
    def _ranges(self) -> Mapping[int, tuple[HashRange, ...]]:
        """The entry buckets of the segments, where keys are shared; the ranges of one are made together."""
        return {key: bucket_ranges(splits) for key, splits in self.assigned.splits.items()}

    def _owned_segment(self, unit: AssignedUnit) -> OwnedSegment:
        key_shared, name = self.assigned.key_shared, self.assigned.name
        bucket_range = self._ranges[unit.key.segment_id][unit.key.bucket] if key_shared else FULL_RANGE
        cursor = cursor_name(name, bucket_range) if key_shared else name
        return OwnedSegment(
            name=SegmentName(self.leader.topic, unit.hash_range, unit.key.segment_id),
            state=unit.state,
            generation=unit.generation,
            position=self.positions.get((unit.key.segment_id, cursor), 0),
            bucket=unit.key.bucket,
            bucket_range=bucket_range,
        )


# Giving up.


@dataclass(frozen=True, slots=True)
class Release:
    """A consumer's word that it is done with a segment, or entry bucket, that it owns under a generation.

    A member of a CHECKPOINT group names the `position` at which the next owner goes on.
    """

    consumer: str
    segment_id: int
    generation: int
    bucket: int = 0
    position: int | None = None


Refusal = SegmentNotOwned | GenerationSuperseded | PositionInvalid | SegmentStoreMissing


def release_segments(
    *, leader: Leader, subscription_id: int, releases: Sequence[Release]
) -> list[Refusal | None]:
    """Pass on what these releases name, and give for each why it was refused.

    Raises TermSuperseded, SubscriptionNotFound.
    """
    with transaction.atomic():
        require(leader)
        subscription = store.lock(subscription_id)
        known = store.ownerships(subscription_id)
        layout = store.read_layout(subscription.incarnation)
        after = dict(known.owned)
        refusals = [_release(subscription, after, layout, release) for release in releases]
        write_all([Outcome(subscription, layout, known, after, known.drained)])
        return refusals


def _release(
    subscription: SubscriptionView, after: dict[BucketKey, Ownership], layout: Layout, release: Release
) -> Refusal | None:
    key = BucketKey(release.segment_id, release.bucket)
    owned = after.get(key)
    if owned is None or key.segment_id not in layout.segments:
        return SegmentNotOwned(consumer=release.consumer, segment_id=key.segment_id)
    try:
        passed_on = owned.released(
            segment_id=key.segment_id, consumer=release.consumer, generation=release.generation
        )
        _note_stop(subscription, release)
    except (SegmentNotOwned, GenerationSuperseded, PositionInvalid, SegmentStoreMissing) as refusal:
        return refusal
    after[key] = passed_on
    return None


def _note_stop(subscription: SubscriptionView, release: Release) -> None:
    """Keep where a member of a CHECKPOINT group stopped; raises PositionInvalid, SegmentStoreMissing."""
    if release.position is None or subscription.type is not SubscriptionType.CHECKPOINT:
        return
    require_reached(SegmentKey(subscription.incarnation, release.segment_id), release.position)
    checkpoints.write_position(subscription.subscription_id, release.segment_id, release.position)


# Being told.


def assignment_version(*, leader: Leader, subscription_id: int) -> AssignmentVersion:
    """What the assignment's order is made of; raises TermSuperseded, SubscriptionNotFound."""
    version = store.assignment_version(subscription_id)
    _require_term(leader, version)
    return version


def assignments(*, leader: Leader, subscription_id: int) -> Assignments:
    """What all consumers own, as of one moment; raises TermSuperseded, SubscriptionNotFound.

    Nothing is locked, so that those who join need not wait for those who are told. What is overtaken
    meanwhile is older by its order, and what overtook it follows. Positions are read a moment later: who goes
    on elsewhere by then does so under a later generation, and is refused under this one.
    """
    found = assigned.read(subscription_id)
    _require_term(leader, found)
    positions = _positions(subscription_id, found) if found.units else {}
    return Assignments(leader, found, positions, assigned.registered(subscription_id))


def _require_term(leader: Leader, current: AssignmentVersion | Assigned) -> None:
    if (current.term, current.node_id) != (leader.term, leader.node_id):
        raise TermSuperseded(topic=str(leader.topic), term=leader.term, current_term=current.term)


def _positions(subscription_id: int, found: Assigned) -> dict[tuple[int, str], int]:
    """Give by segment and cursor where a new owner begins, in one look at the data plane.

    In a CHECKPOINT group that is where the last owner stopped, which is never below the cursor.
    """
    rows = segment_port().backlogs(incarnation=found.incarnation, subscription=found.name)
    stopped: Mapping[int, int] = {}
    if found.type is SubscriptionType.CHECKPOINT:
        stopped = checkpoints.positions(subscription_id)
    return {(one.segment_id, one.cursor): max(one.position, stopped.get(one.segment_id, 0)) for one in rows}
