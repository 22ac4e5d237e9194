"""Messages in and out of segments, on behalf of sockets and REST."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from msgspec import to_builtins

from scalable import announce
from scalable.domain.errors import (
    GenerationSuperseded,
    ScalableError,
    SegmentNotFound,
    SegmentStoreMissing,
    SegmentTerminated,
    TopicDeleted,
    TopicNotFound,
)
from scalable.domain.names import TopicName
from scalable.domain.segment import Segment
from scalable.domain.subscriptions import BucketKey
from scalable.segments.port import AppendResult, CursorState, ReadResult, SegmentKey, SegmentStats
from scalable.segments.registry import segment_port
from scalable.services.moves import settle_refused
from scalable.services.settling import find_cursor_of, settle_drained
from scalable.services.topics import heal_topic
from scalable.services.watching import segment_frame
from scalable.store import subscriptions as store
from scalable.store import topics, watching
from scalable.store.subscriptions import SubscriptionView

NO_SEQUENCE = -1
MAX_SUCCESSORS = 64
"""With more descendants a refusal does not name them: they are read once, not by each producer."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A topic's incarnation, and the highest sequence that it accepted from a producer, -1 for none."""

    incarnation: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the segments of a topic begin and end."""

    incarnation: int
    epoch: int
    segments: tuple[tuple[Segment, SegmentStats], ...]

    def to_json(self) -> dict[str, Any]:
        """The body that REST answers."""
        return {
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "segments": {
                str(segment.segment_id): _position(segment, stats) for segment, stats in self.segments
            },
        }


def append(
    *,
    name: TopicName,
    incarnation: int,
    segment_id: int,
    batches: Sequence[bytes],
    producer: str | None,
) -> list[AppendResult]:
    """Store encoded batches in order, all or none.

    Raises SegmentTerminated (with the epoch that has the children), SegmentNotFound, SegmentStoreMissing,
    TopicDeleted, BatchInvalid, BatchPartlyDuplicate.
    """
    key = SegmentKey(incarnation, segment_id)
    try:
        results = _on_a_store(key, lambda: segment_port().append(key, batches, producer=producer))
    except SegmentTerminated as error:
        raise _terminated(incarnation, segment_id) from error
    except SegmentStoreMissing as error:
        raise _missing(name, incarnation, segment_id) from error
    if not all(result.duplicate for result in results):
        announce.publish(announce.SegmentAppended(incarnation, segment_id))
    return results


def read(
    *, name: TopicName, incarnation: int, segment_id: int, offset: int, max_bytes: int, max_batches: int
) -> ReadResult:
    """Batches of a segment from an offset on; raises SegmentNotFound, TopicDeleted."""
    try:
        return segment_port().read(
            SegmentKey(incarnation, segment_id), offset=offset, max_bytes=max_bytes, max_batches=max_batches
        )
    except SegmentStoreMissing as error:
        raise _missing(name, incarnation, segment_id) from error


def read_by_name(
    *,
    name: TopicName,
    segment_id: int,
    offset: int,
    max_bytes: int,
    max_batches: int,
    incarnation: int | None = None,
) -> ReadResult:
    """Batches of a segment of the topic that has this name now.

    Raises TopicNotFound, SegmentNotFound, and TopicDeleted when this is not the `incarnation` that is meant.
    """
    current = store.incarnation_of(name)
    if incarnation not in (None, current):
        raise TopicDeleted(topic=str(name))
    return read(
        name=name,
        incarnation=current,
        segment_id=segment_id,
        offset=offset,
        max_bytes=max_bytes,
        max_batches=max_batches,
    )


def acknowledge(
    *,
    subscription: SubscriptionView,
    segment_id: int,
    generation: int,
    position: int,
    bucket: int = 0,
    ranges: Sequence[tuple[int, int]] = (),
) -> CursorState:
    """Acknowledge all below a position and single `ranges`, of one bucket where keys are shared.

    Then see what it drains. Raises GenerationSuperseded, PositionInvalid, SubscriptionNotFound,
    SegmentStoreMissing, SegmentNotOwned.
    """
    port, key = segment_port(), SegmentKey(subscription.incarnation, segment_id)
    cursor = find_cursor_of(subscription, segment_id, bucket)
    try:
        state = port.acknowledge(key, subscription=cursor, generation=generation, position=position)
        if ranges:
            state = port.acknowledge_ranges(key, subscription=cursor, generation=generation, ranges=ranges)
    except GenerationSuperseded:
        bucket_key = BucketKey(segment_id, bucket)
        settle_refused(subscription=subscription, key=bucket_key, generation=generation)
        raise
    settle_drained(subscription=subscription, segment_id=segment_id, position=state.position)
    return state


def topic_exists(*, incarnation: int) -> bool:
    """Tell whether this life of a topic's name goes on."""
    return topics.find_name(incarnation) is not None


def producer_state(*, name: TopicName, producer: str | None) -> ProducerState:
    """What a producer must know before its first batch; raises TopicNotFound."""
    if producer is None:
        return ProducerState(store.incarnation_of(name), NO_SEQUENCE)
    topic, port = topics.read(name), segment_port()
    marks = [
        mark.last_sequence
        for segment in topic.layout.active
        for key in [SegmentKey(topic.incarnation, segment.segment_id)]
        for mark in _on_a_store(key, partial(port.producer_marks, key, producer=producer))
    ]
    return ProducerState(topic.incarnation, max(marks, default=NO_SEQUENCE))


def positions(*, name: TopicName) -> Positions:
    """Where the segments of a topic begin and end; raises TopicNotFound."""
    topic, port = topics.read(name), segment_port()
    found = []
    for segment_id in sorted(topic.layout.segments):
        try:
            stats = port.stats(SegmentKey(topic.incarnation, segment_id))
        except SegmentStoreMissing:  # not made yet, or pruned a moment ago
            continue
        found.append((topic.layout.segments[segment_id], stats))
    return Positions(topic.incarnation, topic.epoch, tuple(found))


def _position(segment: Segment, stats: SegmentStats) -> dict[str, Any]:
    return {
        "startOffset": stats.start_offset,
        "endOffset": stats.end_offset,
        "state": segment.state.value,
        "terminated": stats.terminated,
        "parentIds": list(segment.parent_ids),
        "childIds": list(segment.child_ids),
    }


def _terminated(incarnation: int, segment_id: int) -> SegmentTerminated:
    """Tell where to go on: to the descendants as they are now, so that nobody has to wait for the watch."""
    epoch, line = watching.read_line(incarnation, segment_id, limit=MAX_SUCCESSORS + 2)
    if line and line[0].is_active:
        # A store outside the metadata database is terminated before the layout that has its children commits.
        return SegmentTerminated(segment_id=segment_id, epoch=epoch + 1)
    url = settings.SCALABLE_NODE_URL
    successors = [to_builtins(segment_frame(segment, node_url=url)) for segment in line[1:]]
    if len(successors) > MAX_SUCCESSORS:
        successors = []
    return SegmentTerminated(segment_id=segment_id, epoch=epoch, successors=successors)


def _on_a_store(key: SegmentKey, act: Callable[[], Result]) -> Result:
    """Do something on a store; one that a half-made topic lacks is made first. Raises what `act` raises."""
    try:
        return act()
    except SegmentStoreMissing:
        known = store.find_segment(key.incarnation, key.segment_id)
        if known is None or not known.segment.is_active:  # the messages of a sealed one are gone
            raise
        with suppress(TopicNotFound):
            heal_topic(incarnation=key.incarnation)
        return act()


def _missing(name: TopicName, incarnation: int, segment_id: int) -> ScalableError:
    if topics.find_name(incarnation) is None:
        return TopicDeleted(topic=str(name))
    if store.find_segment(incarnation, segment_id) is None:
        return SegmentNotFound(segment_id=segment_id)
    return SegmentStoreMissing(segment_id=segment_id)
