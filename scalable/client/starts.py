"""Where a subscription begins that a consumer makes by registering."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from scalable.domain.checkpoint import Checkpoint
from scalable.domain.errors import InvalidParameter
from scalable.wire.frames import CheckpointBody, Register
from scalable.wire.loads import MAX_TIME_MS

Start = Literal["earliest", "latest"] | datetime | int | Checkpoint
"""A time is a `datetime` with a zone, or milliseconds since 1970."""


def registration(start: Start, *, kind: Literal["STREAM", "CHECKPOINT"] = "STREAM") -> Register:
    """Give the frame that begins there; raises InvalidParameter."""
    if isinstance(start, Checkpoint):
        return Register(kind=kind, checkpoint=checkpoint_body(start))
    if isinstance(start, datetime):
        return Register(kind=kind, start_time_ms=_checked(_milliseconds(start)))
    if isinstance(start, int):
        return Register(kind=kind, start_time_ms=_checked(start))
    if start not in ("earliest", "latest"):
        raise InvalidParameter(parameter="start", value=start, problem="it is no start position")
    return Register(kind=kind, initial_position=start)


def checkpoint_body(checkpoint: Checkpoint) -> CheckpointBody:
    """Give a checkpoint as it travels in frames."""
    positions = {str(segment_id): position for segment_id, position in checkpoint.positions.items()}
    return CheckpointBody(
        incarnation=checkpoint.incarnation, positions=positions, restored=checkpoint.restored
    )


def checkpoint_of(body: CheckpointBody) -> Checkpoint:
    """Read a checkpoint from a frame."""
    positions = {int(key): position for key, position in body.positions.items()}
    return Checkpoint(body.incarnation, positions, body.restored)


def _checked(time_ms: int) -> int:
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise InvalidParameter(parameter="start", value=time_ms, problem="it is before 1970 or after 9999")
    return time_ms


def _milliseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidParameter(parameter="start", value=moment.isoformat(), problem="it has no time zone")
    return int(moment.timestamp() * 1000)
