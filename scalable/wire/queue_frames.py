"""Frames of the socket that shares the messages of every segment among the consumers of a QUEUE subscription.

Ranges are pairs of offsets, [first, behind the last]. A delivered message is *claimed* by the consumer until
it is acknowledged, given back, or the claim's time runs out.
"""

import struct
from typing import Annotated, NamedTuple

import msgspec

from scalable.domain.errors import FrameInvalid, FrameUnknownType
from scalable.wire.frame import MAX_BIGINT, Frame, Number, ServerSent

QUEUE_DELIVERY = 0x03
MAX_RANGES = 1_000
MAX_ATTACHED = 4_096
"""How many segments one socket delivers at a time."""
MAX_DELAY_MS = 7 * 24 * 3_600_000
MIN_ACK_TIMEOUT_MS = 100
MAX_ACK_TIMEOUT_MS = 24 * 3_600_000
_HEAD = struct.Struct(">BHQQQ")
_RANGE = struct.Struct(">QQI")
_MAX_DELIVERIES = 2**32 - 1

Offsets = tuple[Number, Number]
Ranges = Annotated[list[Offsets], msgspec.Meta(min_length=1, max_length=MAX_RANGES)]


class QueueAttach(Frame, frozen=True, tag="attach"):
    """Client: deliver messages of this segment to me, as long as I have permits.

    `ack_timeout_ms`: how long each claim lasts before the message goes to another consumer; None leaves it to
    the server.
    """

    segment_id: Number
    permits: Number
    ack_timeout_ms: Annotated[int, msgspec.Meta(ge=MIN_ACK_TIMEOUT_MS, le=MAX_ACK_TIMEOUT_MS)] | None = None


class QueueFlow(Frame, frozen=True, tag="flow"):
    """Client: `permits` more messages of the segment may be in flight."""

    segment_id: Number
    permits: Number


class QueueDetach(Frame, frozen=True, tag="detach"):
    """Client: stop delivering this segment and take back what is claimed; answered by `detached`."""

    segment_id: Number


class QueueAck(Frame, frozen=True, tag="queue_ack"):
    """Client: these messages, delivered under this incarnation of the cursor, are processed."""

    segment_id: Number
    incarnation: Number
    ranges: Ranges


class NegativeAck(Frame, frozen=True, tag="negative_ack"):
    """Client: these messages were not processed; they are due again, for any consumer, after a delay."""

    segment_id: Number
    ranges: Ranges
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)] = 0
    count_delivery: bool = True
    """False for messages that the application never saw: the delivery is not counted."""


class Renew(Frame, frozen=True, tag="renew"):
    """Client: what of these ranges is still claimed stays so for another ack timeout.

    With a `request_id` it is answered by `renewed`.
    """

    segment_id: Number
    ranges: Ranges
    request_id: Number = 0


class Renewed(ServerSent, frozen=True, tag="renewed"):
    """Server: a renewal is durable; unless `complete`, some of its messages belong to others by now."""

    segment_id: int
    request_id: int
    complete: bool


class QueueAcked(ServerSent, frozen=True, tag="queue_acked"):
    """Server: these messages are durably acknowledged."""

    segment_id: int
    incarnation: int
    ranges: list[Offsets]


class SegmentDone(ServerSent, frozen=True, tag="segment_done"):
    """Server: the segment is sealed and everything in it is acknowledged; it needs no consumer any more."""

    segment_id: int


class SegmentReopened(ServerSent, frozen=True, tag="segment_reopened"):
    """Server: a segment that was done has messages again, after a seek; attach it anew."""

    segment_id: int


class DeliveredRange(NamedTuple):
    """Offsets [first, end) that are for this consumer, and for the how manieth time they are delivered."""

    first: int
    end: int
    deliveries: int


class QueueDelivery(msgspec.Struct, frozen=True):
    """Queue socket to client: one encoded batch; only the messages in `ranges` are for this consumer.

    `incarnation` is the cursor's: a seek raises it, and what was delivered before is not acknowledged then.
    """

    segment_id: int
    incarnation: int
    base_offset: int
    ranges: tuple[DeliveredRange, ...]
    batch: bytes


def encode_queue_delivery(frame: QueueDelivery) -> bytes:
    """Kind (u8), count (u16), segment id, incarnation, base offset (u64), ranges (u64, u64, u32), batch."""
    head = _HEAD.pack(
        *(QUEUE_DELIVERY, len(frame.ranges), frame.segment_id, frame.incarnation, frame.base_offset)
    )
    ranges = [
        _RANGE.pack(each.first, each.end, min(each.deliveries, _MAX_DELIVERIES)) for each in frame.ranges
    ]
    return b"".join((head, *ranges, frame.batch))


def decode_queue_delivery(data: bytes) -> QueueDelivery:
    """Parse a delivery frame; raises FrameInvalid, FrameUnknownType."""
    if len(data) < _HEAD.size:
        raise FrameInvalid(problem=f"a delivery frame has at least {_HEAD.size} bytes")
    kind, count, segment_id, incarnation, base_offset = _HEAD.unpack_from(data)
    if kind != QUEUE_DELIVERY:
        raise FrameUnknownType(problem=f"binary frame kind {kind}")
    end = _HEAD.size + count * _RANGE.size
    if not count or len(data) < end or max(segment_id, incarnation, base_offset) > MAX_BIGINT:
        raise FrameInvalid(
            problem=f"{count} ranges, segment {segment_id} or offset {base_offset}: impossible"
        )
    ranges = tuple(DeliveredRange(*found) for found in _RANGE.iter_unpack(data[_HEAD.size : end]))
    return QueueDelivery(segment_id, incarnation, base_offset, ranges, data[end:])


QueueServerFrame = QueueAcked | Renewed | SegmentDone | SegmentReopened
