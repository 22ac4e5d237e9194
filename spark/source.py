"""The PySpark data source `scalable-topic`: a topic is read and written, at once or as a stream.

Options of readers: `url` of a node, `topic` (topic://tenant/namespace/name), `token` or `tokenFile`,
`starting` (earliest, latest, or a checkpoint as JSON), `ending` of a batch (latest, or a checkpoint as JSON),
`maxMessagesPerSegment` of one trigger, `maxBytesPerRequest`, `patienceSeconds` for a node that is away.
Segments are partitions and the offset is a `Checkpoint`, so Spark's own checkpoint directory is all that a
query needs to go on. Options of writers are in `spark.sink`.
"""

# ruff: noqa: N802 - PySpark names the methods

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from scalable.domain.checkpoint import Checkpoint, checkpoint_from_json, resume
from scalable.wire.batch import Record, decode_batch, decode_header
from spark.options import FORMAT, SourceOptions, sink_options, source_options
from spark.rest import NodeRefused, TopicExtents
from spark.sink import TopicStreamWriter, TopicWriter

PRUNED = "segment_not_found"
DELETED = "topic_deleted"

logger = logging.getLogger(__name__)

SCHEMA = (
    "segment_id bigint, offset bigint, key string, value binary, sequence bigint, event_time timestamp,"
    " published_at timestamp, properties map<string, string>"
)
_TIME = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("segment_id", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("sequence", pa.int64()),
        ("event_time", _TIME),
        ("published_at", _TIME),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


class TopicChanged(Exception):
    """The topic of a stream's checkpoint was deleted; one of the same name is another topic."""


@dataclass
class SegmentSlice(InputPartition):
    """The messages of one segment from `first` up to, not including, `end`: one Spark task.

    They are those of one incarnation of the topic: another of the same name has segments of the same ids.
    """

    incarnation: int
    segment_id: int
    first: int
    end: int


NOTHING = SegmentSlice(0, 0, 0, 0)
"""Where there is nothing to read: into an empty list Spark would put a partition of its own."""


class ScalableTopicSource(DataSource):
    """The data source; register it once a session: `spark.dataSource.register(ScalableTopicSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row a message; `offset` counts the messages of its segment."""
        return SCHEMA

    def reader(self, schema: StructType) -> TopicReader:
        """Make a reader of a batch; raises ValueError for a missing or unreadable option."""
        return TopicReader(source_options(self.options))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        """Make a reader of a stream; raises ValueError for a missing or unreadable option."""
        return TopicStreamReader(source_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Make a writer of a batch; raises ValueError for options, columns, and the mode overwrite."""
        options = sink_options(self.options, named_by_query=False)
        return TopicWriter(options, schema, overwrite=overwrite, repeats="producer" in self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        """Make a writer of a stream; raises ValueError for options, columns, and the mode complete."""
        options = sink_options(self.options, named_by_query=True)
        return TopicStreamWriter(options, schema, overwrite=overwrite, repeats=True)


class TopicReader(DataSourceReader):
    """Reads what a topic holds between two checkpoints; `read` runs on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One slice for each segment with something to read, parents before their children.

        Raises TopicChanged, and InvalidParameter for a checkpoint that the topic never had.
        """
        extents = self._options.node.extents(self._options.topic)
        before = resume(_start(self._options, extents), extents.segments, {}).positions
        after = self._end(extents)
        slices = [
            SegmentSlice(extents.incarnation, segment_id, first, after[segment_id])
            for segment_id, first in sorted(before.items())
            if first < after[segment_id]
        ]
        return slices or [NOTHING]

    def _end(self, extents: TopicExtents) -> Mapping[int, int]:
        if self._options.ending is None:
            return {segment_id: extent.end_offset for segment_id, extent in extents.segments.items()}
        _require_same_topic(self._options, self._options.ending, extents)
        return resume(self._options.ending, extents.segments, {}).positions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice; see `read_slice`."""
        assert isinstance(partition, SegmentSlice)
        return read_slice(self._options, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process beside the driver; `read` runs on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: TopicExtents | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts: a checkpoint is read as a batch reads it.

        Raises TopicChanged, and InvalidParameter for a checkpoint that the topic never had.
        """
        extents = self._options.node.extents(self._options.topic)
        start = _start(self._options, extents)
        if not start.positions:
            return start.to_json()
        return Checkpoint(start.incarnation, resume(start, extents.segments, {}).positions).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most this many messages of each segment a trigger: a backlog is read in bounded steps."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next trigger reads."""
        checkpoint = checkpoint_from_json(start)
        extents = self._target or self._options.node.extents(self._options.topic)
        _require_same_topic(self._options, checkpoint, extents)
        return checkpoint.advance(extents.segments, max_messages=_max_messages(limit)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what there is now."""
        self._target = self._options.node.extents(self._options.topic)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One slice for each segment that has something to read between the checkpoints."""
        before, after = checkpoint_from_json(start).positions, checkpoint_from_json(end)
        return [
            SegmentSlice(after.incarnation, segment_id, before.get(segment_id, 0), offset)
            for segment_id, offset in after.positions.items()
            if offset > before.get(segment_id, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice; see `read_slice`."""
        assert isinstance(partition, SegmentSlice)
        return read_slice(self._options, partition)


def read_slice(options: SourceOptions, part: SegmentSlice) -> Iterator[pa.RecordBatch]:
    """Read one slice; a page of batches becomes one Arrow batch.

    What was trimmed or pruned since the slice was planned is skipped: Spark repeats a planned slice after a
    crash, however much later, and would never come past it. Raises TopicChanged when the topic is another by
    then: Spark asks for nothing else of what it planned, so that nobody but the node can tell.
    """
    offset = part.first
    while offset < part.end:
        try:
            page = options.node.batches(
                options.topic,
                part.segment_id,
                incarnation=part.incarnation,
                offset=offset,
                max_bytes=options.max_bytes,
            )
        except NodeRefused as refusal:
            if refusal.code == DELETED:
                raise _changed(options) from None
            if refusal.code != PRUNED:
                raise
            logger.warning("Messages from %s of segment %s are gone: pruned", offset, part.segment_id)
            return
        if page.next_offset <= offset:
            raise NodeRefused(f"messages from {offset} of segment {part.segment_id} are gone")
        yield _arrow_batch(part, page.batches)
        offset = page.next_offset


def _start(options: SourceOptions, extents: TopicExtents) -> Checkpoint:
    match options.starting:
        case "earliest":
            return Checkpoint.earliest(extents.incarnation)
        case "latest":
            return Checkpoint.latest(extents.incarnation, extents.segments)
        case checkpoint:
            _require_same_topic(options, checkpoint, extents)
            return checkpoint


def _require_same_topic(options: SourceOptions, checkpoint: Checkpoint, extents: TopicExtents) -> None:
    if extents.incarnation != checkpoint.incarnation:
        raise _changed(options)


def _changed(options: SourceOptions) -> TopicChanged:
    return TopicChanged(f"{options.topic} was deleted and made again since the checkpoint")


def _max_messages(limit: ReadLimit) -> int | None:
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    if isinstance(limit, ReadAllAvailable):
        return None
    raise ValueError(f"the format {FORMAT} cannot limit a trigger by {type(limit).__name__}")


def _arrow_batch(part: SegmentSlice, batches: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    rows = [row for base_offset, data in batches for row in _rows(part, base_offset, data)]
    columns = list(zip(*rows, strict=True)) or [()] * len(ARROW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _rows(part: SegmentSlice, base_offset: int, data: bytes) -> Iterator[tuple[Any, ...]]:
    published_at_us = decode_header(data).published_at_ms * 1000
    for offset, record in enumerate(decode_batch(data), start=base_offset):
        if part.first <= offset < part.end:
            yield (part.segment_id, offset, *_fields(record, published_at_us))


def _fields(record: Record, published_at_us: int) -> tuple[Any, ...]:
    event_time_us = record.event_time_ms * 1000 if record.event_time_ms else None
    properties = list(record.properties.items())
    return record.key, record.value, record.sequence, event_time_us, published_at_us, properties
