"""Frames of a consumer's session with its topic's controller (PIP-468, Consumer Registration)."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from scalable.wire.frame import Frame, Number, ServerSent
from scalable.wire.loads import TimeMs

SegmentIdText = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,18})\Z")]


class CheckpointBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The JSON form of `scalable.domain.checkpoint.Checkpoint`."""

    incarnation: Number
    positions: Annotated[Mapping[SegmentIdText, Number], msgspec.Meta(max_length=100_000)]
    restored: Number = 0


class HeldCheckpoint(CheckpointBody, forbid_unknown_fields=False, frozen=True, kw_only=True):
    """The same as a server tells it."""


class Register(Frame, frozen=True, tag="register"):
    """Client: joins the subscription as the hello's `consumer`; only a new one starts where this says.

    At most one of `start_time_ms` and `checkpoint` goes before `initial_position`. `kind` and `key_shared`
    must be those of an existing subscription. A CHECKPOINT group without members is restored to `checkpoint`.
    """

    initial_position: Literal["earliest", "latest"] = "earliest"
    start_time_ms: TimeMs | None = None
    checkpoint: CheckpointBody | None = None
    kind: Literal["STREAM", "CHECKPOINT"] = "STREAM"
    key_shared: bool = False


class Released(Frame, frozen=True, tag="released"):
    """Client: the delivered messages of this segment are acknowledged; the next owner may start.

    A member of a CHECKPOINT group names the `position` at which the next owner goes on.
    """

    segment_id: Number
    generation: Number
    bucket: Number = 0
    position: Number | None = None


class SegmentEnded(Frame, frozen=True, tag="segment_ended"):
    """Client of a CHECKPOINT group: the segment was read to its end, which opens its successors."""

    segment_id: Number
    generation: Number
    position: Number


class Commit(Frame, frozen=True, tag="commit"):
    """Client of a CHECKPOINT group: the application keeps this checkpoint; older data may be pruned.

    One that was taken before the group's last restore (`restored`) is refused. A `preview` moves nothing and
    only tells what is skipped.
    """

    request_id: Number
    checkpoint: CheckpointBody
    preview: bool = False


class Restore(Frame, frozen=True, tag="restore"):
    """Client of a CHECKPOINT group: the whole group goes on from this checkpoint, also backwards."""

    request_id: Number
    checkpoint: CheckpointBody


class Committed(ServerSent, frozen=True, tag="committed"):
    """Server: the commit or restore of `request_id` is durable, with the positions that are held now.

    The `request_id` 0 answers a `register` whose checkpoint the group was restored to. `skipped` names what a
    checkpoint pointed at and is pruned, as [segment id, its successors' ids]. An assignment of this
    `generation` or a later one knows of it: after a restore, what was delivered under earlier ones is void.
    """

    request_id: int
    checkpoint: HeldCheckpoint
    generation: int
    skipped: list[tuple[int, list[int]]] = []


class Leave(Frame, frozen=True, tag="leave"):
    """Client: leaves the subscription at once, without grace."""


class AssignedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment this consumer owns, or one entry bucket of it; acknowledgements carry `generation`.

    On a key-shared subscription `bucket` is the index of the entry bucket and `bucket_start` to `bucket_end`
    its part of the low 16 bits of key hashes; else it is 0 and the whole.
    """

    segment_id: int
    start: int
    end: int
    name: str
    state: Literal["ACTIVE", "SEALED"]
    generation: int
    position: int
    url: str
    bucket: int = 0
    bucket_start: int = 0
    bucket_end: int = 65535


class Assignment(ServerSent, frozen=True, tag="assignment"):
    """Server: all that this consumer owns now. Ordered by (term, generation, epoch); an older one is ignored.

    `releasing`: [segment id, bucket] to give up: acknowledge what was delivered, then send `released`.
    `shared_buckets`: by segment id, all entry buckets of a segment that has co-owners, as [start, end].
    `restored`: the generation that the last restore of a CHECKPOINT group made, 0 for none; positions from
    before it count no more. `subscription_id`: what the hello of each later socket names.
    """

    term: int
    generation: int
    epoch: int
    incarnation: int
    segments: list[AssignedSegment]
    releasing: list[tuple[int, int]]
    standby: bool = False
    shared_buckets: dict[str, list[tuple[int, int]]] = {}
    restored: int = 0
    subscription_id: int = 0


ControllerServerFrame = Assignment | Committed
