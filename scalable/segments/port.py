"""The data plane port: what the control plane asks of whatever keeps the segments' messages.

One suite (`tests/segments/suite.py`) runs against every adapter. A port is *transactional* when its rows are
in the metadata database and it joins the caller's transaction: then a split commits in one step. Others are
walked through the phases of `scalable.domain.operations`, so each of their effects must be safe to repeat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from scalable.domain.keyspace import HashRange

MAX_ACKNOWLEDGED = 1_000
"""So many ranges above its position does a cursor's state name."""

STORES_AT_ONCE = 500
"""So many stores are made or deleted in one statement."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """Names one segment store for ever: the topic's incarnation and the segment's id within it."""

    incarnation: int
    segment_id: int


class NewStore(NamedTuple):
    """A store to be made, and the names of its cursors."""

    segment_id: int
    hash_range: HashRange
    cursors: Sequence[str]


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
    """A subscription's position in one segment: everything below `position` is acknowledged.

    `acknowledged` has the ranges [first, end) that are acknowledged above it, the lowest 1,000; only `cursor`
    and `cursors` fill it. `incarnation` is below 2^53 and never that of another cursor, whatever segment and
    subscription that has or had, those of the same names before included.
    """

    subscription: str
    position: int
    incarnation: int
    generation: int
    acknowledged: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CursorBacklog:
    """What a cursor has before it: `acknowledged` counts the messages acknowledged above its position."""

    segment_id: int
    cursor: str
    position: int
    acknowledged: int
    start_offset: int
    end_offset: int
    terminated: bool

    @property
    def backlog(self) -> int:
        """The number of messages that a consumer would still receive; never negative."""
        return max(0, self.end_offset - max(self.position, self.start_offset) - self.acknowledged)


class CursorUsage(NamedTuple):
    """What lies behind a cursor: the bytes of the batches from `first_offset` on, as they are stored.

    `claimed` counts the messages that consumers hold now.
    """

    segment_id: int
    cursor: str
    first_offset: int
    bytes_ahead: int
    claimed: int


class ClaimedRange(NamedTuple):
    """Offsets [first, end) that one consumer got, and for the how manieth time they are delivered."""

    first: int
    end: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """One batch of which a consumer claimed the messages in `ranges`, and no others."""

    base_offset: int
    count: int
    payload: bytes
    ranges: tuple[ClaimedRange, ...]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What was claimed, and what is left.

    `incarnation` is the cursor's, to be named when these messages are acknowledged. `at_end`: sealed, and
    every message was claimed or held back at least once. `drained`: sealed, and every message is
    acknowledged. `next_due_seconds` is given when nothing was claimed: until then nothing that is there now
    can be claimed (None: nothing is there).
    """

    batches: tuple[ClaimedBatch, ...]
    incarnation: int
    at_end: bool
    drained: bool
    next_due_seconds: float | None


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

    def create_all(self, *, incarnation: int, stores: Sequence[NewStore]) -> None:
        """`create` for at most `STORES_AT_ONCE` stores of a topic, without a fence; one statement."""

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

    def delete_all(self, *, incarnation: int, segment_ids: Sequence[int]) -> None:
        """`delete` for at most `STORES_AT_ONCE` stores of a topic; one statement."""

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

    def own_all(self, *, incarnation: int, generations: Sequence[tuple[int, str, int]]) -> None:
        """`own` for many cursors of a topic: (segment id, cursor, generation) each; missing ones are fine.

        One statement.
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

    def offset_at(self, key: SegmentKey, *, time_ms: int) -> int:
        """The first offset that was appended at or after a time (Unix, the server's clock), else the end.

        The times of a store never fall. Raises SegmentStoreMissing.
        """

    def offsets_at(self, *, incarnation: int, time_ms: int) -> Mapping[int, int]:
        """`offset_at` of every segment of a topic, by segment id."""

    def backlog(self, key: SegmentKey, *, subscription: str) -> int:
        """The number of messages that a consumer would still receive, those that others hold counted.

        Raises SubscriptionNotFound, SegmentStoreMissing.
        """

    def backlogs(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorBacklog]:
        """All cursors of a topic by segment id and name; or those of a subscription: its name and `name/...`.

        One statement for a whole topic.
        """

    def usage(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorUsage]:
        """What the cursors of `backlogs` have before them in bytes, and how much is out; one statement."""

    def sizes(self, *, incarnation: int) -> Mapping[int, int]:
        """The bytes that each segment of a topic stores, by segment id; one statement."""

    def last_sequences(self, *, incarnation: int, limit: int) -> Mapping[str, int]:
        """The last sequence of each producer of a topic, the first `limit` by name; one statement.

        Of producers that give sequences. What left with a pruned segment is known by its children.
        """

    def skip(self, key: SegmentKey, *, subscription: str, count: int) -> CursorState:
        """Acknowledge the next `count` messages that are not, at most to the end; others stay as they are.

        Like a seek it raises the cursor's incarnation and takes back every claim; one that still lasts does
        not count as a delivery. Raises SubscriptionNotFound, SegmentStoreMissing; ValueError for a negative
        count.
        """

    def skip_to(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Acknowledge all below `position`, at most to the end; never moves back, and is else as `skip`."""

    def acknowledge_ranges(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        generation: int | None,
        ranges: Sequence[tuple[int, int]],
        incarnation: int | None = None,
    ) -> CursorState:
        """Acknowledge the messages of [first, end) each, all ranges or none, whoever holds them.

        `generation` and `incarnation`: None for any. Raises GenerationSuperseded, CursorSought,
        PositionInvalid (an empty range, one behind the end, or more than 1,000 batches above what was ever
        claimed or acknowledged), SubscriptionNotFound, SegmentStoreMissing.
        """

    def claim(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        consumer: str,
        session: str,
        max_messages: int,
        max_bytes: int,
        lease_seconds: float,
    ) -> ClaimResult:
        """Give messages to a session until they are acknowledged or the lease is over, never to two at once.

        First what was claimed or held back and is due, in that order; then messages that were never claimed.
        A batch whose time of delivery lies ahead is held back until then. Bounded by all limits, but one
        message at least if any is due; with 100,000 ranges unacknowledged no new ones are begun. Raises
        SubscriptionNotFound, SegmentStoreMissing.
        """

    def renew(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        lease_seconds: float,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> int:
        """Let the session's claims (in `ranges`) last from now on; give the number of messages it still has.

        Raises SubscriptionNotFound, SegmentStoreMissing.
        """

    def return_claims(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        ranges: Sequence[tuple[int, int]] | None,
        delay_seconds: float = 0,
        count_delivery: bool = True,
    ) -> int:
        """Take claims back from a session, in `ranges` or (None) all; they are due again after a delay.

        Without `count_delivery` they count as not delivered this time. Gives the number of messages; what
        the session does not hold is left alone. Raises SubscriptionNotFound, SegmentStoreMissing.
        """

    def trim(self, key: SegmentKey, *, before_offset: int, max_batches: int) -> int:
        """Delete whole batches below an offset, at most `max_batches`; give the new start. Marks stay."""

    def stats(self, key: SegmentKey) -> SegmentStats:
        """Offsets and size; raises SegmentStoreMissing."""
