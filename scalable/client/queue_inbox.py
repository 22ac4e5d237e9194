"""What a queue consumer was given, hands out, and says of it: pure, so that all can be tried."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from scalable.client.batches import MessageId
from scalable.client.membership import Membership
from scalable.client.places import place_named
from scalable.client.prefetch import permits_due
from scalable.domain.names import TopicName
from scalable.wire.batch import Record, decode_batch, decode_header
from scalable.wire.frames import MAX_ATTACHED, MAX_RANGES, Frame, NegativeAck, QueueAck, QueueDelivery, Renew

Range = tuple[int, int]
SEGMENTS_PER_SOCKET = MAX_ATTACHED // 2
"""Not all that are possible: what is forgotten here the server may still count for a while."""
FRESH_SHARE = 1 / 2
"""Of a claim's time: a message whose claim was not renewed for longer is not handed out any more."""


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One delivered message; times are in milliseconds since 1970, an `event_time_ms` of 0 was not set."""

    topic: TopicName
    key: str | None
    value: bytes
    message_id: MessageId
    published_at_ms: int
    event_time_ms: int
    properties: Mapping[str, str]
    deliveries: int
    """How often the message was delivered to anybody, this time included."""
    incarnation: int
    """Which life of the subscription's position delivered it; a seek begins another one."""
    subscription_id: int = 0
    """Which subscription delivered it, one life of its name; 0 from a node of an earlier version."""


@dataclass(slots=True)
class Claimed:
    """A message that waits here, and since when the server knows that it does (local clock, seconds)."""

    message: QueueMessage
    since: float


@dataclass(frozen=True, slots=True)
class Renewal:
    """Messages whose claims the server was asked to keep, and when (local clock, seconds)."""

    asked_at: float
    ranges: list[Range]


@dataclass(slots=True)
class QueueSegment:
    """One segment of the topic, as this consumer sees it.

    Acknowledgements wait in `acknowledged` until they are sent, then in `sent` until they are durable.
    """

    segment_id: int
    socket: int = 0
    """Which of the consumer's sockets attaches it."""
    waiting: OrderedDict[int, Claimed] = field(default_factory=OrderedDict)
    dead: OrderedDict[int, Claimed] = field(default_factory=OrderedDict)
    """What was delivered too often."""
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    """(incarnation, offset)"""
    sent: set[tuple[int, int]] = field(default_factory=set)
    returned: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    """Offsets by delay (milliseconds), and whether the delivery counts."""
    renewals: dict[int, Renewal] = field(default_factory=dict)
    """What was asked and not yet answered."""
    incarnation: int = 0
    owed_permits: int = 0
    granted_permits: int = 0
    attached: bool = False
    paused: bool = False
    done: bool = False
    decoded: tuple[int, list[Record]] | None = None
    """The batch that came last, for its other messages often follow."""

    def drop_claims(self) -> None:
        """Forget what waits here: the server takes it back."""
        self.owed_permits += len(self.waiting) + len(self.dead)
        self.waiting.clear()
        self.dead.clear()
        self.returned.clear()
        self.renewals.clear()

    def lose_connection(self) -> None:
        """Forget what only the lost socket knew: its claims are given back, to whomever."""
        self.drop_claims()
        self.attached = self.paused = self.done = False
        self.owed_permits = 0
        self.send_again()

    def send_again(self) -> None:
        """Acknowledge once more what was not answered."""
        self.acknowledged |= self.sent
        self.sent.clear()
        self.renewals.clear()

    def first_permits(self, prefetch: int) -> int:
        """Give the permits to attach with."""
        self.granted_permits, self.owed_permits = prefetch, 0
        return prefetch

    def take_permits(self, prefetch: int) -> int:
        """Give the permits to grant now; 0 until half of what may wait is used up."""
        permits = permits_due(prefetch, self.granted_permits - self.owed_permits)
        if permits:
            self.granted_permits, self.owed_permits = prefetch, 0
        return permits

    def give_back(self, offset: int) -> None:
        """Give a message back that waits here, uncounted: the application never saw it."""
        self.waiting.pop(offset, None)
        self.dead.pop(offset, None)
        self.owed_permits += 1
        self.returned.setdefault((0, False), set()).add(offset)

    def is_settled(self, message: QueueMessage) -> bool:
        """Tell whether the application has acknowledged a message already."""
        place = message.incarnation, message.message_id.offset
        return place in self.acknowledged or place in self.sent

    @property
    def has_unsettled(self) -> bool:
        """True while acknowledgements of the application are not durable."""
        return bool(self.acknowledged or self.sent)


class QueueInbox:
    """The segments of one consumer, and the messages that wait for the application.

    `lease_seconds`: how long a claim lasts. What waits longer than half of it without a renewal that was
    answered may soon belong to others and is not handed out. What was delivered more than `max_deliveries`
    times is one of the `dead_messages` instead.
    """

    def __init__(self, membership: Membership, *, max_deliveries: int | None = None) -> None:
        self._membership = membership
        self._max_deliveries = max_deliveries
        self._turns: deque[int] = deque()
        self._numbers = count(1)
        self.lease_seconds = 0.0
        self.segments: dict[int, QueueSegment] = {}
        self._shares: list[dict[int, QueueSegment]] = [{}]

    def set_segments(self, segment_ids: Collection[int]) -> None:
        """Take over which segments the topic has; what was pruned is forgotten."""
        for segment_id in self.segments.keys() - set(segment_ids):
            self.forget(segment_id)
        for segment_id in segment_ids:
            if segment_id not in self.segments:
                self._add(segment_id)

    def _add(self, segment_id: int) -> None:
        socket = self._socket_with_room()
        segment = QueueSegment(segment_id, socket)
        self.segments[segment_id] = self._shares[socket][segment_id] = segment
        self._turns.append(segment_id)

    def _socket_with_room(self) -> int:
        for socket, share in enumerate(self._shares):
            if len(share) < SEGMENTS_PER_SOCKET:
                return socket
        self._shares.append({})
        return len(self._shares) - 1

    @property
    def sockets(self) -> int:
        """Count the sockets that it takes to attach every segment."""
        return len(self._shares)

    def share_of(self, socket: int) -> list[QueueSegment]:
        """Give the segments that one of the sockets attaches."""
        return list(self._shares[socket].values())

    def forget(self, segment_id: int) -> None:
        """Drop a segment that is no more."""
        segment = self.segments.pop(segment_id, None)
        if segment is not None:
            del self._shares[segment.socket][segment_id]
            self._turns.remove(segment_id)

    def lose_connection(self, socket: int) -> None:
        """Forget what only the lost socket knew."""
        for segment in self._shares[socket].values():
            segment.lose_connection()

    # Messages

    def deliver(self, delivery: QueueDelivery, since: float) -> None:
        """Queue what is claimed for this consumer; a message that waits or is acknowledged here stays so.

        `since`: a time before which it did not come; the claim lasts from then (local clock, seconds).
        """
        segment = self.segments.get(delivery.segment_id)
        if segment is None:
            return
        if delivery.incarnation > segment.incarnation:
            self._begin_incarnation(segment, delivery.incarnation)
        for message in self._messages(segment, delivery):
            self._queue(segment, Claimed(message, since))

    def _queue(self, segment: QueueSegment, claimed: Claimed) -> None:
        offset = claimed.message.message_id.offset
        settled = segment.is_settled(claimed.message)
        waits = segment.waiting.pop(offset, None) or segment.dead.pop(offset, None)
        if not settled:
            (segment.dead if self.is_dead(claimed.message) else segment.waiting)[offset] = claimed
        if settled or waits:
            # Permits are given back for what is not kept too, else the flow would dry up.
            segment.owed_permits += 1

    def _begin_incarnation(self, segment: QueueSegment, incarnation: int) -> None:
        """A seek took everything back: what came before will come again if it is still wanted."""
        segment.incarnation = incarnation
        segment.drop_claims()

    def _messages(self, segment: QueueSegment, delivery: QueueDelivery) -> Iterator[QueueMessage]:
        base = delivery.base_offset
        if segment.decoded is None or segment.decoded[0] != base:
            with place_named(delivery.segment_id, base):
                segment.decoded = base, decode_batch(delivery.batch)
        records = segment.decoded[1]
        published_at_ms = decode_header(delivery.batch).published_at_ms
        for first, end, deliveries in delivery.ranges:
            for offset in range(first, end):
                record = records[offset - base]
                yield QueueMessage(
                    topic=self._membership.topic,
                    key=record.key,
                    value=record.value,
                    message_id=MessageId(delivery.segment_id, offset, offset - base),
                    published_at_ms=published_at_ms,
                    event_time_ms=record.event_time_ms,
                    properties=record.properties,
                    deliveries=deliveries,
                    incarnation=delivery.incarnation,
                    subscription_id=self._membership.subscription_id or 0,
                )

    def next_message(self, now: float) -> QueueMessage | None:
        """Hand out a message, from another segment each time; None when nothing waits."""
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            segment = self.segments[self._turns[-1]]
            message = self._take(segment, now)
            if message is not None:
                return message
        return None

    def dead_messages(self) -> list[QueueMessage]:
        """Give the messages that were delivered too often; they stay here until they are acknowledged."""
        return [claimed.message for segment in self.segments.values() for claimed in segment.dead.values()]

    def _take(self, segment: QueueSegment, now: float) -> QueueMessage | None:
        while segment.waiting:
            _, claimed = segment.waiting.popitem(last=False)
            segment.owed_permits += 1
            if now - claimed.since <= self.lease_seconds * FRESH_SHARE:
                return claimed.message
        return None

    def is_dead(self, message: QueueMessage) -> bool:
        """Tell whether a message was delivered too often to be tried again."""
        return self._max_deliveries is not None and message.deliveries > self._max_deliveries

    # Outcomes

    def _segment_of(self, message: QueueMessage) -> QueueSegment | None:
        """Give where a message came from; None when that is no more, or was never here.

        Places are alike everywhere: a message of another topic or life would stand for one that nobody read.
        """
        if self._membership.topic != message.topic or not self._membership.may_be(message.subscription_id):
            return None
        return self.segments.get(message.message_id.segment_id)

    def acknowledge(self, message: QueueMessage) -> None:
        """Note that a message is processed; in a segment that is no more there is nothing left to do."""
        segment = self._segment_of(message)
        if segment is not None and message.incarnation >= segment.incarnation:
            offset = message.message_id.offset
            segment.acknowledged.add((message.incarnation, offset))
            # Acknowledged late it may wait here again, and must not be handed out once more.
            waits = segment.waiting.pop(offset, None) or segment.dead.pop(offset, None)
            segment.owed_permits += waits is not None

    def give_back(self, message: QueueMessage, *, delay_ms: int) -> None:
        """Note that a message was not processed and is due again after a delay."""
        segment = self._segment_of(message)
        offset = message.message_id.offset
        if segment is None or message.incarnation != segment.incarnation or offset in segment.dead:
            return
        segment.owed_permits += segment.waiting.pop(offset, None) is not None
        segment.returned.setdefault((delay_ms, True), set()).add(offset)

    def give_back_waiting(self, socket: int) -> None:
        """Give back on this socket, uncounted, what the application never saw."""
        for segment in self._shares[socket].values():
            returned = segment.returned.setdefault((0, False), set())
            returned |= segment.waiting.keys() | segment.dead.keys()
            segment.waiting.clear()
            segment.dead.clear()

    def take_outcomes(self, segment: QueueSegment) -> list[Frame]:
        """Give the frames that tell the server what was decided; acknowledgements first."""
        frames: list[Frame] = []
        for incarnation in sorted({found for found, _ in segment.acknowledged}):
            offsets = [offset for found, offset in segment.acknowledged if found == incarnation]
            frames += [
                QueueAck(segment_id=segment.segment_id, incarnation=incarnation, ranges=page)
                for page in _pages(offsets)
            ]
        segment.sent |= segment.acknowledged
        segment.acknowledged.clear()
        for (delay_ms, counted), offsets_back in segment.returned.items():
            frames += [
                NegativeAck(
                    segment_id=segment.segment_id, ranges=page, delay_ms=delay_ms, count_delivery=counted
                )
                for page in _pages(offsets_back)
            ]
        segment.returned.clear()
        return frames

    def take_renewals(self, segment: QueueSegment, now: float) -> list[Frame]:
        """Give the frames that ask to keep what waits here; nothing while an answer is outstanding."""
        if segment.renewals:
            return []
        pages = _pages(segment.waiting.keys() | segment.dead.keys())
        segment.renewals = {next(self._numbers): Renewal(now, page) for page in pages}
        return [
            Renew(segment_id=segment.segment_id, ranges=renewal.ranges, request_id=number)
            for number, renewal in segment.renewals.items()
        ]

    def on_renewed(self, segment_id: int, request_id: int, *, complete: bool) -> None:
        """Note that claims last from when that was asked; or give all back, for some are others' by now."""
        segment = self.segments.get(segment_id)
        renewal = segment.renewals.pop(request_id, None) if segment is not None else None
        if segment is None or renewal is None:
            return
        for offset in (offset for first, end in renewal.ranges for offset in range(first, end)):
            claimed = segment.waiting.get(offset) or segment.dead.get(offset)
            if claimed is not None and complete:
                claimed.since = max(claimed.since, renewal.asked_at)
            elif claimed is not None:
                segment.give_back(offset)

    def on_acked(self, segment_id: int, incarnation: int, ranges: Iterable[Range]) -> None:
        """Note what is durably acknowledged."""
        segment = self.segments.get(segment_id)
        if segment is not None:
            segment.sent -= {(incarnation, offset) for first, end in ranges for offset in range(first, end)}

    def on_sought(self, segment_id: int, refused: int, current: int) -> None:
        """Note that acknowledgements of one life of the position are void, for it has another one."""
        segment = self.segments.get(segment_id)
        if segment is not None:
            if current > segment.incarnation:
                self._begin_incarnation(segment, current)
            void = {(found, offset) for found, offset in segment.sent if found < current or found == refused}
            segment.sent -= void

    @property
    def has_unsettled(self) -> bool:
        """True while any acknowledgement of the application is not durable."""
        return any(segment.has_unsettled for segment in self.segments.values())

    @property
    def waiting_count(self) -> int:
        """Count the messages that wait for the application, or to become dead letters."""
        return sum(len(segment.waiting) + len(segment.dead) for segment in self.segments.values())


def _pages(offsets: Iterable[int]) -> list[list[Range]]:
    """Unite offsets into ranges, as many in each list as one frame may carry."""
    ranges: list[Range] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = ranges[-1][0], offset + 1
        else:
            ranges.append((offset, offset + 1))
    return [ranges[start : start + MAX_RANGES] for start in range(0, len(ranges), MAX_RANGES)]
