"""A reader's position in all segments of a topic, and how it moves on without reading a child too early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalable.domain.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """Which offsets a segment holds, whether more can come, and the parents that are still known."""

    start_offset: int
    end_offset: int
    terminated: bool
    parent_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The next offset to read by segment, for one life of a topic; a segment without an entry is unread."""

    incarnation: int
    positions: Mapping[int, int]

    @classmethod
    def earliest(cls, incarnation: int) -> Checkpoint:
        """Give the checkpoint of a reader that has read nothing."""
        return cls(incarnation, {})

    @classmethod
    def latest(cls, incarnation: int, extents: Mapping[int, SegmentExtent]) -> Checkpoint:
        """Give the checkpoint of a reader that wants only what comes from now on."""
        return cls(incarnation, {segment_id: extent.end_offset for segment_id, extent in extents.items()})

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form: segment ids become text."""
        positions = {str(segment_id): self.positions[segment_id] for segment_id in sorted(self.positions)}
        return {"incarnation": self.incarnation, "positions": positions}

    def readable(self, extents: Mapping[int, SegmentExtent]) -> tuple[int, ...]:
        """List the segments that may be read: all ancestors that still exist were read to their end."""
        readable: list[int] = []
        unfinished: set[int] = set()
        for segment_id, extent in sorted(extents.items()):  # a parent's id is lower than its children's
            if unfinished.isdisjoint(extent.parent_ids):
                readable.append(segment_id)
                if extent.terminated and self.positions.get(segment_id, 0) >= extent.end_offset:
                    continue
            unfinished.add(segment_id)
        return tuple(readable)

    def advance(self, extents: Mapping[int, SegmentExtent], *, max_messages: int | None = None) -> Checkpoint:
        """Give the checkpoint behind what may be read next, at most `max_messages` of each segment.

        Children wait until their parents ended in *this* checkpoint, so that nothing of a child is read in
        the same step as the rest of its parent. Segments that were pruned are dropped.
        """
        positions = {known: offset for known, offset in self.positions.items() if known in extents}
        for segment_id in self.readable(extents):
            extent = extents[segment_id]
            begin = max(positions.get(segment_id, 0), extent.start_offset)
            room = extent.end_offset - begin
            positions[segment_id] = begin + max(0, room if max_messages is None else min(room, max_messages))
        return Checkpoint(self.incarnation, positions)


def checkpoint_from_json(body: object) -> Checkpoint:
    """Read the JSON form; raises InvalidParameter."""
    if not isinstance(body, Mapping) or set(body) != {"incarnation", "positions"}:
        raise _invalid(body, "it needs exactly incarnation and positions")
    positions = body["positions"]
    if not isinstance(positions, Mapping):
        raise _invalid(positions, "positions must be an object")
    return Checkpoint(
        _whole(body["incarnation"]),
        {_segment_id(segment_id): _whole(offset) for segment_id, offset in positions.items()},
    )


def _segment_id(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdecimal():
        raise _invalid(text, "a segment id is a whole number, written as text")
    return int(text)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _invalid(value, "it must be a whole number that is not negative")
    return value


def _invalid(value: object, problem: str) -> InvalidParameter:
    return InvalidParameter(parameter="checkpoint", value=str(value)[:100], problem=problem)
