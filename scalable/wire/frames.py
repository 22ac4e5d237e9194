"""Control frames of the sockets under `/ws/v2/scalable/`: typed and tagged.

A control frame is one JSON text message with a `type`; a data frame is one binary message (`encode_publish`,
`encode_delivery`). The first frame of a client is `hello`, which names the protocol version. Within a version
a server refuses unknown types and fields; a client passes over unknown fields.
"""

# ruff: noqa: N815 - segments and details have Pulsar's field names

from typing import Annotated, Literal

import msgspec

from scalable.wire.consume_frames import Ack, Acked, Attach, Detach, Detached, EndOfSegment, Flow, Skipped
from scalable.wire.controller_frames import (
    AssignedSegment,
    Assignment,
    CheckpointBody,
    Commit,
    Committed,
    HeldCheckpoint,
    Leave,
    Register,
    Released,
    Restore,
    SegmentEnded,
)
from scalable.wire.data_frames import (
    DELIVERY,
    PARTS,
    PUBLISH,
    Delivery,
    Publish,
    count_parts,
    decode_delivery,
    decode_publish,
    encode_delivery,
    encode_publish,
)
from scalable.wire.frame import Frame, Number, ServerSent, decode, decoder, encode
from scalable.wire.namespace_frames import TopicsDiff, TopicsSnapshot, WatchTopics
from scalable.wire.queue_frames import (
    MAX_ATTACHED,
    MAX_RANGES,
    QUEUE_DELIVERY,
    DeliveredRange,
    NegativeAck,
    QueueAck,
    QueueAcked,
    QueueAttach,
    QueueDelivery,
    QueueDetach,
    QueueFlow,
    Renew,
    Renewed,
    SegmentDone,
    SegmentReopened,
    decode_queue_delivery,
    encode_queue_delivery,
)

__all__ = [
    "DELIVERY",
    "MAX_ATTACHED",
    "MAX_RANGES",
    "PARTS",
    "PROTOCOL_VERSION",
    "PUBLISH",
    "QUEUE_DELIVERY",
    "SUBPROTOCOL",
    "TOKEN_SUBPROTOCOL_PREFIX",
    "Ack",
    "Acked",
    "AssignedSegment",
    "Assignment",
    "Attach",
    "CheckpointBody",
    "Close",
    "Commit",
    "Committed",
    "ConsumeClientFrame",
    "ControllerClientFrame",
    "DeliveredRange",
    "Delivery",
    "Delta",
    "Detach",
    "Detached",
    "EndOfSegment",
    "ErrorFrame",
    "Flow",
    "Frame",
    "Gone",
    "HeldCheckpoint",
    "Hello",
    "Leave",
    "LookupClientFrame",
    "NamespaceClientFrame",
    "NegativeAck",
    "Number",
    "ProduceClientFrame",
    "Publish",
    "QueueAck",
    "QueueAcked",
    "QueueAttach",
    "QueueClientFrame",
    "QueueDelivery",
    "QueueDetach",
    "QueueFlow",
    "Receipt",
    "Refused",
    "Register",
    "Released",
    "Renew",
    "Renewed",
    "Restore",
    "SegmentDone",
    "SegmentEnded",
    "SegmentFrame",
    "SegmentReopened",
    "ServerFrame",
    "Skipped",
    "Snapshot",
    "TopicDetail",
    "TopicsDiff",
    "TopicsSnapshot",
    "WatchTopics",
    "Welcome",
    "__all__",
    "count_parts",
    "decode",
    "decode_delivery",
    "decode_publish",
    "decode_queue_delivery",
    "decoder",
    "encode",
    "encode_delivery",
    "encode_publish",
    "encode_queue_delivery",
]

PROTOCOL_VERSION = 1
SUBPROTOCOL = "scalable.v1"
TOKEN_SUBPROTOCOL_PREFIX = "bearer."

# Every socket.


class Hello(Frame, frozen=True, tag="hello"):
    """Client: opens the session; `session_id` is the client's name for it and comes back in a watch's frames.

    A producer or consumer that comes back names the `incarnation` of the topic that it knows: of another one
    it hears that its own is gone, and leaves no message and makes no subscription there. A consumer also
    names the `subscription_id` that it was told: it joins that subscription again, or none.
    """

    protocol: int
    client: str = ""
    session_id: Annotated[str, msgspec.Meta(max_length=255)] = ""
    detail: Literal["layout", "full"] = "layout"
    producer: str | None = None
    consumer: str | None = None
    incarnation: Number | None = None
    subscription_id: Number | None = None

    @property
    def joined_subscription_id(self) -> int | None:
        """Give the subscription that the consumer joined before; an id of 0 tells of none."""
        return self.subscription_id or None


class Close(Frame, frozen=True, tag="close"):
    """Client: ends the session; the server closes the socket with 1000."""


class Welcome(ServerSent, frozen=True, tag="welcome"):
    """Server: the session is open, within these limits."""

    protocol: int
    node: str
    max_frame_bytes: int
    max_message_bytes: int
    permits: int = 0
    ack_timeout_ms: int = 0
    producer: str | None = None
    last_sequence: int = -1
    incarnation: int = 0
    subscription_id: int = 0


class ErrorFrame(ServerSent, frozen=True, tag="error"):
    """Server: something was refused, for one segment (or bucket of it) if there is a `segment_id`.

    With a `request_id` it answers the commit or restore of that number; with a `generation` it is about that
    ownership of the segment. A close may follow.
    """

    code: str
    reason: str
    fields: dict[str, object] = {}
    hint: str = ""
    segment_id: int | None = None
    bucket: int = 0
    request_id: int | None = None
    generation: int | None = None


class Gone(ServerSent, frozen=True, tag="gone"):
    """Server: the topic was deleted; the socket closes with 4410 and the client must not reconnect."""

    topic: str
    incarnation: int


# DAG watch (PIP-468, DAG Watch Sessions).


class SegmentFrame(msgspec.Struct, frozen=True, kw_only=True):
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
    entryBucketSplits: list[int] = []
    nodeUrl: str | None = None
    """A node that serves the segment, as others do; None when sealed."""


class TopicDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What a dashboard sees beyond the layout (`detail: full`)."""

    operations: list[dict[str, object]] = []
    decision: dict[str, object] | None = None
    loads: dict[str, dict[str, object]] = {}
    loadKnown: bool = False
    policy: dict[str, object] = {}


class Snapshot(ServerSent, frozen=True, tag="snapshot"):
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


class Delta(ServerSent, frozen=True, tag="delta"):
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


# Produce.


class Receipt(ServerSent, frozen=True, tag="receipt"):
    """Server: the batch of `request_id` is durable (or was already: `duplicate`); gives one permit back."""

    request_id: int
    segment_id: int
    base_offset: int
    duplicate: bool = False


class Refused(ServerSent, frozen=True, tag="refused"):
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


LookupClientFrame = Hello | Close
NamespaceClientFrame = Hello | WatchTopics | Close
ControllerClientFrame = Hello | Register | Released | SegmentEnded | Commit | Restore | Leave | Close
ProduceClientFrame = Hello | Close
ConsumeClientFrame = Hello | Attach | Detach | Flow | Ack | Close
QueueClientFrame = Hello | QueueAttach | QueueDetach | QueueFlow | QueueAck | NegativeAck | Renew | Close
ServerFrame = (
    Welcome
    | ErrorFrame
    | Gone
    | Snapshot
    | Delta
    | TopicsSnapshot
    | TopicsDiff
    | Assignment
    | Committed
    | Receipt
    | Refused
    | Detached
    | Acked
    | Skipped
    | EndOfSegment
    | QueueAcked
    | Renewed
    | SegmentDone
    | SegmentReopened
)
