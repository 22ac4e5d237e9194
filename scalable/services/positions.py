"""Where a subscription begins or goes on, as a position in every segment of a topic.

A time is told apart three ways, as Pulsar does: a segment that was sealed by then is passed over, one that
was made later is read from its beginning, and the others are searched (PIP-468, Admin API, seek).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scalable.domain.errors import InvalidParameter, PositionInvalid, SegmentNotFound, SegmentStoreMissing
from scalable.segments.port import SegmentKey, SegmentStats
from scalable.segments.registry import segment_port
from scalable.store.topics import TopicView

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtTime:
    """Begin with the first message that was stored at or after a time."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtPositions:
    """Begin where a checkpoint stands: the next offset by segment; one without an entry is unread.

    An `incarnation` of None stands for any life of the topic's name.
    """

    positions: Mapping[int, int]
    incarnation: int | None = None


Start = Edge | AtTime | AtPositions


class Extent(NamedTuple):
    """The first offset that a segment keeps, and the one behind its last message."""

    start_offset: int
    end_offset: int


def positions_of_start(topic: TopicView, start: Start, extents: Mapping[int, Extent]) -> dict[int, int]:
    """Give the position of each of these segments.

    Raises, for positions that do not fit: SegmentNotFound (unknown or pruned), PositionInvalid (trimmed, or
    behind the end), InvalidParameter (of a former life of the topic's name).
    """
    match start:
        case "earliest":
            return {key: one.start_offset for key, one in extents.items()}
        case "latest":
            return {key: one.end_offset for key, one in extents.items()}
        case AtTime(time_ms=time_ms):
            return _at_time(topic, extents, time_ms)
        case AtPositions():
            _check(topic, extents, start)
            return {key: start.positions.get(key, one.start_offset) for key, one in extents.items()}


def extents_of(topic: TopicView) -> dict[int, Extent]:
    """Read the extents of a topic's segments, of those whose stores are there."""
    found = {}
    for segment_id in sorted(topic.layout.segments):
        try:
            stats = segment_port().stats(SegmentKey(topic.incarnation, segment_id))
        except SegmentStoreMissing:  # it is being made, or goes with its topic
            continue
        found[segment_id] = Extent(stats.start_offset, stats.end_offset)
    return found


def require_reached(key: SegmentKey, position: int) -> SegmentStats:
    """Refuse a place to go on from that lies behind a segment's end, and give the segment's offsets.

    One below the start is fine: reading goes on at the start. Raises PositionInvalid, SegmentStoreMissing.
    """
    stats = segment_port().stats(key)
    if position > stats.end_offset:
        problem = f"the segment ends at {stats.end_offset}"
        raise PositionInvalid(segment_id=key.segment_id, position=position, problem=problem)
    return stats


def _at_time(topic: TopicView, extents: Mapping[int, Extent], time_ms: int) -> dict[int, int]:
    segments = topic.layout.segments
    positions, searched = {}, set()
    for key, one in extents.items():
        # Not by when it was sealed: the log may have taken messages until a moment later.
        if segments[key].created_at_ms >= time_ms:
            positions[key] = one.start_offset
        else:
            searched.add(key)
    if searched:
        offsets = segment_port().offsets_at(incarnation=topic.incarnation, time_ms=time_ms)
        positions |= {key: offsets[key] for key in searched}
    return positions


def _check(topic: TopicView, extents: Mapping[int, Extent], start: AtPositions) -> None:
    if start.incarnation not in {None, topic.incarnation}:
        problem = f"it is of another life of this topic's name, which now has {topic.incarnation}"
        raise InvalidParameter(parameter="incarnation", value=start.incarnation, problem=problem)
    for segment_id, position in sorted(start.positions.items()):
        if segment_id not in extents:
            raise SegmentNotFound(segment_id=segment_id)
        low, high = extents[segment_id]
        if not low <= position <= high:
            problem = f"the segment's positions go from {low} to {high}"
            raise PositionInvalid(segment_id=segment_id, position=position, problem=problem)
