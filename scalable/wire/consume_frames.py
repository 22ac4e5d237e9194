"""Frames of the socket that delivers the segments that a consumer owns.

`bucket` is the index of an entry bucket on a key-shared subscription, else 0. What the server says of a
segment names the `generation` of the ownership that it speaks of: a newer one, which the controller's socket
told first, is not meant.
"""

from typing import Annotated

import msgspec

from scalable.wire.frame import Frame, Number, ServerSent

MAX_ACK_RANGES = 1_000


class Attach(Frame, frozen=True, tag="attach"):
    """Client: deliver this segment to me, from the cursor's position, up to `permits` messages.

    A member of a CHECKPOINT group names the `position` to begin at.
    """

    segment_id: Number
    generation: Number
    permits: Number
    bucket: Number = 0
    position: Number | None = None


class Detach(Frame, frozen=True, tag="detach"):
    """Client: stop delivering this segment; answered by `detached` after the last delivery."""

    segment_id: Number
    bucket: Number = 0


class Detached(ServerSent, frozen=True, tag="detached"):
    """Server: no delivery of this segment follows; without a generation when it was not attached."""

    segment_id: int
    bucket: int = 0
    generation: int = 0


class Flow(Frame, frozen=True, tag="flow"):
    """Client: `permits` more messages may be delivered for the segment."""

    segment_id: Number
    permits: Number
    bucket: Number = 0


class Ack(Frame, frozen=True, tag="ack"):
    """Client: everything below `position` is processed (cumulative), and the messages of `ranges`.

    Ranges are [first offset, offset behind the last]; they are for key-shared subscriptions alone.
    """

    segment_id: Number
    generation: Number
    position: Number
    bucket: Number = 0
    ranges: Annotated[list[tuple[Number, Number]], msgspec.Meta(max_length=MAX_ACK_RANGES)] = []


class Acked(ServerSent, frozen=True, tag="acked"):
    """Server: the cursor stands durably at `position`, and above it the messages of `ranges` are processed.

    On a key-shared subscription it also answers each attach, before the first delivery: what is processed
    already is not for the application.
    """

    segment_id: int
    position: int
    bucket: int = 0
    ranges: list[tuple[int, int]] = []
    generation: int = 0


class Skipped(ServerSent, frozen=True, tag="skipped"):
    """Server: up to `position`, nothing but what was delivered is for this entry bucket."""

    segment_id: int
    bucket: int
    position: int
    generation: int = 0


class EndOfSegment(ServerSent, frozen=True, tag="end_of_segment"):
    """Server: the segment is sealed and everything below `end_offset` was delivered."""

    segment_id: int
    end_offset: int
    bucket: int = 0
    generation: int = 0


ConsumeServerFrame = Detached | Acked | Skipped | EndOfSegment
