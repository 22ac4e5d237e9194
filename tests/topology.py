"""Topics, messages and operations for tests of what happens to them."""

from collections.abc import Iterable

from scalable.domain.layout import Layout
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.services import driver, scaling, topics
from scalable.services.scaling import OperationView
from scalable.services.topics import TopicView
from scalable.store.operations import read
from scalable.wire.batch import Record, decode_batch, encode_batch

ACTOR = "test"


def topic_name(name: str) -> TopicName:
    """Name a topic in the namespace that always exists."""
    return TopicName("public", "default", name)


def make_topic(name: str = "reshaped", *, segments: int = 2, **properties: str) -> TopicView:
    """Create a topic."""
    return topics.create_topic(
        name=topic_name(name), initial_segments=segments, properties=properties, actor=ACTOR
    )


def request(kind: OperationKind, topic: TopicView, *, reason: str = "manual") -> OperationView:
    """Ask for a split or rebucket of segment 0, or for a merge of segments 0 and 1."""
    if kind is OperationKind.SPLIT:
        return scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR, reason=reason)
    if kind is OperationKind.REBUCKET:
        return scaling.request_rebucket(
            name=topic.name, segment_id=0, bucket_count=8, actor=ACTOR, reason=reason
        )
    return scaling.request_merge(name=topic.name, segment_ids=[0, 1], actor=ACTOR, reason=reason)


def drive(operation: OperationView, *, runner: str = "runner") -> OperationView:
    """Drive an operation in this thread and read what became of it."""
    driver.drive_operation(operation_id=operation.operation_id, runner=runner)
    return read(operation.operation_id)


def layout_of(topic: TopicView) -> Layout:
    """Read the topic's layout, which must be sound."""
    layout = topics.get_topic(name=topic.name).layout
    layout.check()
    return layout


def store_ids(topic: TopicView, port: SegmentPort | None = None) -> set[int]:
    """Name the segments of the topic that have a store."""
    return {key.segment_id for key in (port or segment_port()).keys(incarnation=topic.incarnation)}


def append(topic: TopicView, segment_id: int, value: str, port: SegmentPort | None = None) -> None:
    """Append one keyless message to a segment."""
    batch = encode_batch([Record(None, value.encode(), 0, 0)], published_at_ms=0)
    (port or segment_port()).append(SegmentKey(topic.incarnation, segment_id), [batch], producer=None)


def append_everywhere(topic: TopicView, text: str, port: SegmentPort | None = None) -> set[str]:
    """Append one message to each active segment and give their values."""
    values = {}
    for segment in layout_of(topic).active:
        values[segment.segment_id] = f"{text} in {segment.segment_id}"
        append(topic, segment.segment_id, values[segment.segment_id], port)
    return set(values.values())


def read_all(topic: TopicView, port: SegmentPort | None = None) -> list[str]:
    """Read every message of every segment of the layout, sealed ones too."""
    return [
        value
        for segment_id in sorted(layout_of(topic).segments)
        for value in _read_segment(port or segment_port(), SegmentKey(topic.incarnation, segment_id))
    ]


def _read_segment(port: SegmentPort, key: SegmentKey) -> Iterable[str]:
    offset = 0
    while True:
        page = port.read(key, offset=offset, max_bytes=1_000_000, max_batches=100)
        for batch in page.batches:
            yield from (record.value.decode() for record in decode_batch(batch.payload))
        if page.next_offset == offset:
            return
        offset = page.next_offset
