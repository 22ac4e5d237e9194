"""A reader's position in all segments of a topic, and how it moves on without reading a child too early."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalable.domain.errors import InvalidParameter
from scalable.domain.json_text import load_shallow_json

TEXT_VERSION = 1


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """Which offsets a segment holds, whether more can come, and the parents that are still known."""

    start_offset: int
    end_offset: int
    terminated: bool
    parent_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The next offset to read by segment, for one life of a topic; a segment without an entry is unread.

    `restored` tells after which restore of its group it was taken, 0 when there was none.
    """

    incarnation: int
    positions: Mapping[int, int]
    restored: int = 0

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
        restored = {"restored": self.restored} if self.restored else {}
        return {"incarnation": self.incarnation, "positions": positions, **restored}

    def to_text(self) -> str:
        """Give a text to keep; `checkpoint_from_text` reads it in this and later versions."""
        return json.dumps({"version": TEXT_VERSION, **self.to_json()}, separators=(",", ":"))

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
        return replace(self, positions=positions)


def checkpoint_from_text(text: str) -> Checkpoint:
    """Read what `Checkpoint.to_text` gave; raises InvalidParameter."""
    try:
        body = load_shallow_json(text)
    except ValueError as error:
        raise _invalid(text, "it is no JSON") from error
    if not isinstance(body, dict) or body.pop("version", None) != TEXT_VERSION:
        raise _invalid(text, f"it is not of version {TEXT_VERSION}")
    return checkpoint_from_json(body)


def checkpoint_from_json(body: object) -> Checkpoint:
    """Read the JSON form; raises InvalidParameter."""
    if not isinstance(body, Mapping) or set(body) - {"restored"} != {"incarnation", "positions"}:
        raise _invalid(body, "it needs exactly incarnation and positions")
    positions = body["positions"]
    if not isinstance(positions, Mapping):
        raise _invalid(positions, "positions must be an object")
    return Checkpoint(
        _whole(body["incarnation"]),
        {_segment_id(segment_id): _whole(offset) for segment_id, offset in positions.items()},
        _whole(body.get("restored", 0)),
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


@dataclass(frozen=True, slots=True)
class PrunedExtent:
    """Where a pruned segment ended, and which segments replaced it."""

    end_offset: int
    child_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Data that a checkpoint had before it and that is gone; reading goes on at the successors.

    A segment of which only the front is gone is its own successor.
    """

    segment_id: int
    successor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where each kept segment is read on, which of them were read to their end, and what is gone."""

    positions: Mapping[int, int]
    ended: frozenset[int]
    skipped: tuple[Skipped, ...]


def resume(
    checkpoint: Checkpoint,
    extents: Mapping[int, SegmentExtent],
    pruned: Mapping[int, PrunedExtent],
    *,
    next_segment_id: int | None = None,
) -> Resumption:
    """Find where a reader goes on from a checkpoint, however old.

    A segment without an entry was read to its end when one that came after it has an entry, else it is
    unread. Raises InvalidParameter for a position behind a segment's end, and for a segment that there never
    was, if `next_segment_id` is given.
    """
    for segment_id in checkpoint.positions:
        if next_segment_id is not None and segment_id >= next_segment_id:
            raise _invalid(segment_id, "there never was a segment of this id")
    implied = _implied(checkpoint, extents, pruned)
    positions: dict[int, int] = {}
    skipped, covered = _skipped_whole(checkpoint, extents, pruned, implied)
    covered -= checkpoint.positions.keys()
    for segment_id, extent in sorted(extents.items()):
        position = checkpoint.positions.get(segment_id, extent.end_offset if segment_id in implied else 0)
        if position > extent.end_offset:
            raise _invalid(position, f"segment {segment_id} ends at {extent.end_offset}")
        if position < extent.start_offset and segment_id not in covered:
            skipped.append(Skipped(segment_id, (segment_id,)))
        positions[segment_id] = max(position, extent.start_offset)
    ended = {key for key, one in extents.items() if one.terminated and positions[key] >= one.end_offset}
    return Resumption(positions, frozenset(ended), tuple(skipped))


def _skipped_whole(
    checkpoint: Checkpoint,
    extents: Mapping[int, SegmentExtent],
    pruned: Mapping[int, PrunedExtent],
    implied: Collection[int],
) -> tuple[list[Skipped], set[int]]:
    """Name the pruned segments that were not read to their end, and the segments that came after these.

    A note stands for what came after its segment, too: that has one of its own only if it has an entry.
    """
    found: list[Skipped] = []
    covered: set[int] = set()
    for segment_id, extent in sorted(pruned.items()):  # a parent's id is lower than its children's
        unread = extent.end_offset if segment_id in implied or segment_id in covered else 0
        if checkpoint.positions.get(segment_id, unread) < extent.end_offset:
            found.append(Skipped(segment_id, _successors(segment_id, extents, pruned)))
            covered.add(segment_id)
        if segment_id in covered:
            covered.update(extent.child_ids)
    return found, covered


def merge(checkpoints: Iterable[Checkpoint]) -> Checkpoint:
    """Unite the checkpoints of several members, the highest position of each segment.

    What was taken before the last restore that one of them knows counts no more. Raises InvalidParameter when
    there are none or they are of several lives of a topic.
    """
    known = list(checkpoints)
    incarnations = {checkpoint.incarnation for checkpoint in known}
    if len(incarnations) != 1:
        raise _invalid(sorted(incarnations), "checkpoints of one topic's one life are united")
    restored = max(checkpoint.restored for checkpoint in known)
    positions: dict[int, int] = {}
    for checkpoint in known:
        for segment_id, position in checkpoint.positions.items() if checkpoint.restored == restored else ():
            positions[segment_id] = max(position, positions.get(segment_id, 0))
    return Checkpoint(incarnations.pop(), positions, restored)


def _implied(
    checkpoint: Checkpoint, extents: Mapping[int, SegmentExtent], pruned: Mapping[int, PrunedExtent]
) -> frozenset[int]:
    """Name the kept segments of which something that came later has an entry."""
    parents: dict[int, set[int]] = {key: set(one.parent_ids) for key, one in extents.items()}
    for parent_id, one in pruned.items():
        for child_id in one.child_ids:
            parents.setdefault(child_id, set()).add(parent_id)
    found: set[int] = set()
    waiting = list(checkpoint.positions)
    while waiting:
        new = parents.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return frozenset(found)


def _successors(
    segment_id: int, extents: Mapping[int, SegmentExtent], pruned: Mapping[int, PrunedExtent]
) -> tuple[int, ...]:
    """Name the nearest kept segments that came after a pruned one."""
    found: set[int] = set()
    waiting = list(pruned[segment_id].child_ids)
    while waiting:
        child_id = waiting.pop()
        if child_id in extents:
            found.add(child_id)
        elif child_id in pruned:
            waiting.extend(pruned[child_id].child_ids)
    return tuple(sorted(found))
