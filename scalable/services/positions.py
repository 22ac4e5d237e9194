"""Where a subscription begins or goes on, as a position in every segment of a topic.

A time is told apart three ways, as Pulsar does: a segment that was sealed by then is passed over, one that
was made later is read from its beginning, and the others are searched (PIP-468, Admin API, seek).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scalable.domain.errors import InvalidParameter, PositionInvalid, SegmentNotFound, SegmentStoreMissing
from scalable.domain.layout import Segment
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


def positions_of_start(topic: TopicView, start: Start) -> dict[int, int]:
    """Give the position of every segment whose store is there.

    Raises, for positions that do not fit: SegmentNotFound (unknown or pruned), PositionInvalid (trimmed, or
    behind the end), InvalidParameter (of a former life of the topic's name).
    """
    stats = _stats(topic)
    match start:
        case "earliest":
            return {key: one.start_offset for key, one in stats.items()}
        case "latest":
            return {key: one.end_offset for key, one in stats.items()}
        case AtTime(time_ms=time_ms):
            return {
                key: _at_time(topic, topic.layout.segments[key], one, time_ms) for key, one in stats.items()
            }
        case AtPositions():
            _check(topic, stats, start)
            return {key: start.positions.get(key, one.start_offset) for key, one in stats.items()}


def _stats(topic: TopicView) -> dict[int, SegmentStats]:
    found = {}
    for segment_id in sorted(topic.layout.segments):
        try:
            found[segment_id] = segment_port().stats(SegmentKey(topic.incarnation, segment_id))
        except SegmentStoreMissing:  # it is being made, or goes with its topic
            continue
    return found


def _at_time(topic: TopicView, segment: Segment, stats: SegmentStats, time_ms: int) -> int:
    if not segment.is_active and segment.sealed_at_ms <= time_ms:
        return stats.end_offset
    if segment.created_at_ms >= time_ms:
        return stats.start_offset
    return segment_port().offset_at(SegmentKey(topic.incarnation, segment.segment_id), time_ms=time_ms)


def _check(topic: TopicView, stats: Mapping[int, SegmentStats], start: AtPositions) -> None:
    if start.incarnation not in {None, topic.incarnation}:
        problem = f"it is of another life of this topic's name, which now has {topic.incarnation}"
        raise InvalidParameter(parameter="incarnation", value=start.incarnation, problem=problem)
    for segment_id, position in sorted(start.positions.items()):
        if segment_id not in stats:
            raise SegmentNotFound(segment_id=segment_id)
        low, high = stats[segment_id].start_offset, stats[segment_id].end_offset
        if not low <= position <= high:
            problem = f"the segment's positions go from {low} to {high}"
            raise PositionInvalid(segment_id=segment_id, position=position, problem=problem)
