"""Control frames of the sockets under `/ws/v2/scalable/`: typed, tagged, and strict about unknown fields.

A control frame is one JSON text message with a `type`; a data frame is one binary message (`encode_publish`,
`encode_delivery`). The first frame of a client is `hello`, which names the protocol version; within a version
unknown fields and unknown types are refused, so that old and new processes can run side by side.
"""

# ruff: noqa: N815 - segments and details have Pulsar's field names

import struct
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from scalable.domain.errors import FrameInvalid, FrameUnknownType
from scalable.domain.keyspace import HashRange

PROTOCOL_VERSION = 1
SUBPROTOCOL = "scalable.v1"
TOKEN_SUBPROTOCOL_PREFIX = "bearer."
_MAX_BIGINT = 2**63 - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=_MAX_BIGINT)]


class Frame(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", frozen=True, kw_only=True):
    """Base of all control frames."""


# Every socket.


class Hello(Frame, frozen=True, tag="hello"):
    """Client: opens the session; `session_id` is the client's name for it and comes back in pushed frames."""

    protocol: int
    client: str = ""
    session_id: Annotated[str, msgspec.Meta(max_length=255)] = ""
    detail: Literal["layout", "full"] = "layout"
    producer: str | None = None
    consumer: str | None = None


class Close(Frame, frozen=True, tag="close"):
    """Client: ends the session; the server closes the socket with 1000."""


class Welcome(Frame, frozen=True, tag="welcome"):
    """Server: the session is open, within these limits."""

    protocol: int
    node: str
    max_frame_bytes: int
    max_message_bytes: int
    permits: int = 0
    producer: str | None = None
    last_sequence: int = -1
    incarnation: int = 0


class ErrorFrame(Frame, frozen=True, tag="error"):
    """Server: something was refused, for one segment if there is a `segment_id`; a close may follow."""

    code: str
    reason: str
    fields: dict[str, object] = {}
    hint: str = ""
    segment_id: int | None = None


class Gone(Frame, frozen=True, tag="gone"):
    """Server: the topic was deleted; the socket closes with 4410 and the client must not reconnect."""

    topic: str
    incarnation: int


# DAG watch (PIP-468, DAG Watch Sessions).


class SegmentFrame(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One segment of the DAG, by Pulsar's field names."""

    segmentId: int
    start: int
    end: int
    state: Literal["ACTIVE", "SEALED"]
    parentIds: list[int]
    childIds: list[int]
    createdAtEpoch: int
    sealedAtEpoch: int
    createdAtMs: int
    sealedAtMs: int
    nodeUrl: str | None = None
    """The node that serves the segment; None when sealed."""


class TopicDetail(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a dashboard sees beyond the layout (`detail: full`)."""

    operations: list[dict[str, object]] = []
    decision: dict[str, object] | None = None
    loads: dict[str, dict[str, object]] = {}
    loadKnown: bool = False
    policy: dict[str, object] = {}


class Snapshot(Frame, frozen=True, tag="snapshot"):
    """Server: the whole DAG as of `revision`."""

    session_id: str
    topic: str
    incarnation: int
    epoch: int
    revision: int
    term: int
    next_segment_id: int
    controller_url: str | None
    controller_url_tls: str | None
    segments: list[SegmentFrame]
    detail: TopicDetail | None = None


class Delta(Frame, frozen=True, tag="delta"):
    """Server: what changed since `base_revision`; applied to that snapshot it gives that of `revision`.

    `segments` holds each new or changed segment whole; `removed` the pruned ones.
    """

    session_id: str
    incarnation: int
    base_revision: int
    epoch: int
    revision: int
    term: int
    next_segment_id: int
    controller_url: str | None
    controller_url_tls: str | None
    segments: list[SegmentFrame]
    removed: list[int]
    detail: TopicDetail | None = None


# Controller session.


class Register(Frame, frozen=True, tag="register"):
    """Client: joins the subscription as the hello's `consumer`; a new one starts at `initial_position`."""

    initial_position: Literal["earliest", "latest"] = "earliest"


class Released(Frame, frozen=True, tag="released"):
    """Client: the delivered messages of this segment are acknowledged; the next owner may start."""

    segment_id: Number
    generation: Number


class Leave(Frame, frozen=True, tag="leave"):
    """Client: leaves the subscription at once, without grace."""


class AssignedSegment(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A segment this consumer owns; acknowledgements carry `generation`."""

    segment_id: int
    start: int
    end: int
    name: str
    state: Literal["ACTIVE", "SEALED"]
    generation: int
    position: int
    url: str


class Assignment(Frame, frozen=True, tag="assignment"):
    """Server: all that this consumer owns now. Ordered by (term, generation, epoch); an older one is ignored.

    `releasing`: segments to give up: acknowledge what was delivered, then send `released`.
    """

    term: int
    generation: int
    epoch: int
    incarnation: int
    segments: list[AssignedSegment]
    releasing: list[int]
    standby: bool = False


# Produce.


class Receipt(Frame, frozen=True, tag="receipt"):
    """Server: the batch of `request_id` is durable (or was already: `duplicate`); gives one permit back."""

    request_id: int
    segment_id: int
    base_offset: int
    duplicate: bool = False


class Refused(Frame, frozen=True, tag="refused"):
    """Server: the batch of `request_id` was not stored; gives one permit back.

    After a refusal, later batches for the same segment that were in flight are refused too (`stream_broken`)
    until a publish frame carries the `restart` flag.
    """

    request_id: int
    segment_id: int
    code: str
    reason: str
    fields: dict[str, object] = {}
    hint: str = ""


# Consume.


class Attach(Frame, frozen=True, tag="attach"):
    """Client: deliver this segment to me, from the cursor's position, up to `permits` messages."""

    segment_id: Number
    generation: Number
    permits: Number


class Detach(Frame, frozen=True, tag="detach"):
    """Client: stop delivering this segment; answered by `detached` after the last delivery."""

    segment_id: Number


class Detached(Frame, frozen=True, tag="detached"):
    """Server: no delivery of this segment follows."""

    segment_id: int


class Flow(Frame, frozen=True, tag="flow"):
    """Client: `permits` more messages may be delivered for the segment."""

    segment_id: Number
    permits: Number


class Ack(Frame, frozen=True, tag="ack"):
    """Client: everything below `position` is processed (cumulative)."""

    segment_id: Number
    generation: Number
    position: Number


class Acked(Frame, frozen=True, tag="acked"):
    """Server: the cursor stands durably at `position`."""

    segment_id: int
    position: int


class EndOfSegment(Frame, frozen=True, tag="end_of_segment"):
    """Server: the segment is sealed and everything below `end_offset` was delivered."""

    segment_id: int
    end_offset: int


LookupClientFrame = Hello | Close
ControllerClientFrame = Hello | Register | Released | Leave | Close
ProduceClientFrame = Hello | Close
ConsumeClientFrame = Hello | Attach | Detach | Flow | Ack | Close
ServerFrame = (
    Welcome
    | ErrorFrame
    | Gone
    | Snapshot
    | Delta
    | Assignment
    | Receipt
    | Refused
    | Detached
    | Acked
    | EndOfSegment
)

_encoder = msgspec.json.Encoder()


def encode(frame: Frame) -> str:
    """The JSON text of a control frame."""
    return _encoder.encode(frame).decode()


def decoder(union: object) -> "msgspec.json.Decoder[Frame]":
    """A strict decoder for one direction of one socket, for `decode`."""
    return msgspec.json.Decoder(union)


def decode(using: "msgspec.json.Decoder[Frame]", text: str | bytes) -> Frame:
    """Parse a control frame; raises FrameUnknownType, FrameInvalid."""
    try:
        return using.decode(text)
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error) and "$.type" in str(error):
            raise FrameUnknownType(problem=str(error)) from error
        raise FrameInvalid(problem=str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameInvalid(problem=str(error)) from error


# Data frames (binary, big-endian).

PUBLISH = 0x01
DELIVERY = 0x02
FLAG_RESTART = 0x01
FLAG_PARTS = 0x02
PARTS = 32
_PUBLISH = struct.Struct(">BBIQ")
_PARTS = struct.Struct(f">{PARTS}H")
_DELIVERY = struct.Struct(">BQQQQ")


class Publish(msgspec.Struct, frozen=True):
    """Client to produce socket: one encoded batch for one segment.

    `parts` counts the batch's records by 1/32 of the segment's own range, for the map of load; without it the
    records count as spread evenly between the least and the greatest hash of the batch.
    """

    request_id: int
    segment_id: int
    restart: bool
    batch: bytes
    parts: tuple[int, ...] | None = None


class Delivery(msgspec.Struct, frozen=True):
    """Consume socket to client: one encoded batch; its records below `first_offset` are to be skipped."""

    segment_id: int
    generation: int
    base_offset: int
    first_offset: int
    batch: bytes


def count_parts(hash_range: HashRange, segment_hashes: Iterable[int]) -> tuple[int, ...]:
    """Count hashes of a segment's range by 1/32 of it, for `Publish.parts`."""
    start, size, counts = hash_range.start, hash_range.size, [0] * PARTS
    for segment_hash in segment_hashes:
        counts[(segment_hash - start) * PARTS // size] += 1
    return tuple(counts)


def encode_publish(frame: Publish) -> bytes:
    """Kind (u8), flags (u8), request id (u32), segment id (u64), parts if flagged (32 times u16), batch."""
    flags = (FLAG_RESTART if frame.restart else 0) | (FLAG_PARTS if frame.parts else 0)
    head = _PUBLISH.pack(PUBLISH, flags, frame.request_id, frame.segment_id)
    return b"".join((head, _PARTS.pack(*frame.parts) if frame.parts else b"", frame.batch))


def decode_publish(data: bytes) -> Publish:
    """Parse a publish frame; raises FrameInvalid, FrameUnknownType."""
    if len(data) < _PUBLISH.size:
        raise FrameInvalid(problem=f"a publish frame has at least {_PUBLISH.size} bytes")
    kind, flags, request_id, segment_id = _PUBLISH.unpack_from(data)
    if kind != PUBLISH:
        raise FrameUnknownType(problem=f"binary frame kind {kind}")
    if flags & ~(FLAG_RESTART | FLAG_PARTS) or segment_id > _MAX_BIGINT:
        raise FrameInvalid(problem=f"flags {flags:#04x} or segment id {segment_id} are not possible")
    start, parts = _PUBLISH.size, None
    if flags & FLAG_PARTS:
        if len(data) < start + _PARTS.size:
            raise FrameInvalid(problem="the parts are cut off")
        parts = _PARTS.unpack_from(data, start)
        start += _PARTS.size
    return Publish(request_id, segment_id, bool(flags & FLAG_RESTART), data[start:], parts)


def encode_delivery(frame: Delivery) -> bytes:
    """Kind (u8), segment id, generation, base offset, first offset (u64 each), batch."""
    head = _DELIVERY.pack(DELIVERY, frame.segment_id, frame.generation, frame.base_offset, frame.first_offset)
    return head + frame.batch


def decode_delivery(data: bytes) -> Delivery:
    """Parse a delivery frame; raises FrameInvalid, FrameUnknownType."""
    if len(data) < _DELIVERY.size:
        raise FrameInvalid(problem="a delivery frame has at least 33 bytes")
    kind, segment_id, generation, base_offset, first_offset = _DELIVERY.unpack_from(data)
    if kind != DELIVERY:
        raise FrameUnknownType(problem=f"binary frame kind {kind}")
    return Delivery(segment_id, generation, base_offset, first_offset, data[_DELIVERY.size :])
