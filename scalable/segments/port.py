"""The data plane port: what the control plane asks of whatever keeps the segments' messages.

One suite (`tests/segments/suite.py`) runs against every adapter. A port is *transactional* when it keeps its
rows in the metadata database and joins the caller's transaction: then a split commits in one step. Other
ports are walked through the phases of `scalable.domain.operations`, so each of their effects must be safe to
repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scalable.domain.keyspace import HashRange


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """Names one segment store for ever: the topic's incarnation and the segment's id within it."""

    incarnation: int
    segment_id: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Who asks for an effect: an operation and the token of the lease under which it runs.

    A store remembers the highest token of an operation that touched it and refuses lower ones (LeaseLost), so
    that a runner that was paused past its lease changes nothing when it wakes up.
    """

    operation_id: str
    token: int


@dataclass(frozen=True, slots=True)
class ProducerMark:
    """The last sequence accepted from a producer for the keys of a hash range."""

    producer: str
    hash_range: HashRange
    last_sequence: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch lies: its first offset, and whether it had been stored before (then nothing was written).

    The offset of a duplicate is -1 when its batch is not here as it was sent: cut otherwise, trimmed, or
    stored in an ancestor of the segment.
    """

    base_offset: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One record batch as stored: `payload` is the encoded batch (`scalable.wire.batch`)."""

    base_offset: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A page of batches, where to read on, and whether the segment's end is known and reached."""

    batches: tuple[StoredBatch, ...]
    next_offset: int
    end_offset: int
    terminated: bool

    @property
    def at_end(self) -> bool:
        """True when the segment takes no more messages and `next_offset` lies behind its last one."""
        return self.terminated and self.next_offset >= self.end_offset


@dataclass(frozen=True, slots=True)
class CursorState:
    """A subscription's position in one segment: everything below `position` is acknowledged."""

    subscription: str
    position: int
    incarnation: int
    generation: int


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """Offsets, size and state of one store; offsets count messages and are gap-free."""

    start_offset: int
    end_offset: int
    terminated: bool
    bytes_stored: int
    created_at_ms: int
    terminated_at_ms: int | None


class SegmentPort(Protocol):
    """Effects and questions on segment stores; every effect is safe to repeat."""

    @property
    def transactional(self) -> bool:
        """True when effects take part in the metadata database's current transaction."""

    def create(
        self, key: SegmentKey, *, hash_range: HashRange, subscriptions: Sequence[str], fence: Fence | None
    ) -> None:
        """Make an empty store with a cursor at earliest for each subscription.

        An existing store is left as it is; cursors that it lacks are added. Raises LeaseLost.
        """

    def terminate(self, key: SegmentKey, *, fence: Fence | None) -> int:
        """Refuse appends from now on and return the end offset; raises SegmentStoreMissing, LeaseLost."""

    def inherit_producer_marks(
        self, parents: Sequence[SegmentKey], child: SegmentKey, *, fence: Fence | None
    ) -> None:
        """Give the child the marks of its terminated parents, clipped to its range and united.

        Raises SegmentStoreMissing, LeaseLost; ValueError when a parent still takes appends.
        """

    def delete(self, key: SegmentKey) -> None:
        """Remove a store with its batches, marks and cursors; a missing one is fine."""

    def keys(self, *, incarnation: int | None = None) -> Sequence[SegmentKey]:
        """All stores (of one topic incarnation), for the sweep of orphans."""

    def append(
        self, key: SegmentKey, batches: Sequence[bytes], *, producer: str | None
    ) -> list[AppendResult]:
        """Store encoded batches in order under one lock; all or none.

        Raises SegmentTerminated (epoch 0: a store knows none), SegmentStoreMissing, BatchInvalid (header,
        checksums, keys outside the segment's range), BatchPartlyDuplicate (with the marks as [start, end,
        last sequence]). Batches without sequence or without `producer` are never checked for duplicates.
        """

    def read(self, key: SegmentKey, *, offset: int, max_bytes: int, max_batches: int) -> ReadResult:
        """Batches with messages at or above `offset`: at least one if there is any, then up to the limits."""

    def producer_marks(self, key: SegmentKey, *, producer: str) -> Sequence[ProducerMark]:
        """The marks that an append of this producer is compared with."""

    def create_cursor(self, key: SegmentKey, *, subscription: str, position: int | None) -> None:
        """Add a cursor at `position` (None: earliest); an existing one is left as it is."""

    def delete_cursor(self, key: SegmentKey, *, subscription: str) -> None:
        """Remove a cursor; a missing one is fine."""

    def cursor(self, key: SegmentKey, *, subscription: str) -> CursorState | None:
        """The cursor, or None."""

    def cursors(self, key: SegmentKey) -> Sequence[CursorState]:
        """All cursors of a segment."""

    def own(self, key: SegmentKey, *, subscription: str, generation: int) -> None:
        """Raise the cursor's ownership generation: acknowledgements of others are refused from now on.

        A lower generation than the cursor's changes nothing. Raises SubscriptionNotFound,
        SegmentStoreMissing.
        """

    def acknowledge(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        generation: int,
        position: int,
        incarnation: int | None = None,
    ) -> CursorState:
        """Acknowledge everything below `position`; never moves back.

        `incarnation`: the cursor's, under which the messages were delivered (None: any). Raises
        GenerationSuperseded, CursorSought, PositionInvalid (behind the end), SubscriptionNotFound,
        SegmentStoreMissing.
        """

    def seek(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Set the position in either direction and raise the cursor's incarnation; raises PositionInvalid."""

    def trim(self, key: SegmentKey, *, before_offset: int, max_batches: int) -> int:
        """Delete whole batches below `before_offset`, at most `max_batches`, and return the new start offset.

        Producer marks stay: what was trimmed is still known as stored.
        """

    def stats(self, key: SegmentKey) -> SegmentStats:
        """Offsets and size; raises SegmentStoreMissing."""
