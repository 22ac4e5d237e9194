"""A PySpark data source that reads a scalable topic as a stream: `spark.readStream.format("scalable-topic")`.

Options: `url` of a node, `topic` (topic://tenant/namespace/name), `token` or `tokenFile`, `starting`
(earliest, latest, or a checkpoint as JSON), `maxMessagesPerSegment` of one trigger, `maxBytesPerRequest`,
`patienceSeconds` for a node that is away. Segments are partitions and the offset is a `Checkpoint`, so
Spark's own checkpoint directory is all that a query needs to go on.
"""

# ruff: noqa: N802 - PySpark names the methods

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from scalable.domain.checkpoint import Checkpoint, checkpoint_from_json
from scalable.domain.names import TopicName
from scalable.wire.batch import Record, decode_batch, decode_header
from spark.rest import NodeClient, NodeRefused, TopicExtents

FORMAT = "scalable-topic"
DEFAULT_MAX_MESSAGES = 10_000
DEFAULT_MAX_BYTES = 4 * 1024 * 1024
DEFAULT_PATIENCE_SECONDS = 60
PRUNED = "segment_not_found"

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


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a stream was asked for; see the module's description."""

    topic: TopicName
    node: NodeClient
    starting: Literal["earliest", "latest"] | Checkpoint
    max_messages: int
    max_bytes: int


@dataclass
class SegmentSlice(InputPartition):
    """The messages of one segment from `first` up to, not including, `end`: one Spark task."""

    segment_id: int
    first: int
    end: int


class ScalableTopicSource(DataSource):
    """The data source; register it once a session: `spark.dataSource.register(ScalableTopicSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row a message; `offset` counts the messages of its segment."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        """Make a reader by the options; raises ValueError for a missing or unreadable one."""
        return TopicStreamReader(_parse_options(self.options))


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process beside the driver; `read` runs on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: TopicExtents | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        starting = self._options.starting
        if isinstance(starting, Checkpoint):
            return starting.to_json()
        extents = self._options.node.extents(self._options.topic)
        if starting == "latest":
            return Checkpoint.latest(extents.incarnation, extents.segments).to_json()
        return Checkpoint.earliest(extents.incarnation).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most this many messages of each segment a trigger: a backlog is read in bounded steps."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next trigger reads."""
        checkpoint = checkpoint_from_json(start)
        extents = self._target or self._options.node.extents(self._options.topic)
        if extents.incarnation != checkpoint.incarnation:
            raise TopicChanged(f"{self._options.topic} was deleted and made again since the checkpoint")
        return checkpoint.advance(extents.segments, max_messages=_max_messages(limit)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what there is now."""
        self._target = self._options.node.extents(self._options.topic)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One slice for each segment that has something to read between the checkpoints."""
        before, after = checkpoint_from_json(start).positions, checkpoint_from_json(end).positions
        return [
            SegmentSlice(segment_id, before.get(segment_id, 0), offset)
            for segment_id, offset in after.items()
            if offset > before.get(segment_id, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice; a page of batches becomes one Arrow batch.

        What was trimmed or pruned since the slice was planned is skipped: Spark repeats a planned slice after
        a crash, however much later, and would never come past it.
        """
        assert isinstance(partition, SegmentSlice)
        options, offset = self._options, partition.first
        while offset < partition.end:
            try:
                page = options.node.batches(
                    options.topic, partition.segment_id, offset=offset, max_bytes=options.max_bytes
                )
            except NodeRefused as refusal:
                if refusal.code != PRUNED:
                    raise
                logger.warning(
                    "Messages from %s of segment %s are gone: pruned", offset, partition.segment_id
                )
                return
            if page.next_offset <= offset:
                raise NodeRefused(f"messages from {offset} of segment {partition.segment_id} are gone")
            yield _arrow_batch(partition, page.batches)
            offset = page.next_offset


def _parse_options(options: Mapping[str, str]) -> SourceOptions:
    missing = [name for name in ("url", "topic") if not options.get(name)]
    if missing or not (options.get("token") or options.get("tokenFile")):
        raise ValueError(f"the format {FORMAT} needs the options url, topic, and token or tokenFile")
    token = options.get("token") or Path(options["tokenFile"]).read_text().strip()
    return SourceOptions(
        topic=TopicName.parse(options["topic"]),
        node=NodeClient(
            options["url"].rstrip("/"),
            token,
            patience_seconds=_positive(options, "patienceSeconds", DEFAULT_PATIENCE_SECONDS),
        ),
        starting=_starting(options.get("starting", "earliest")),
        max_messages=_positive(options, "maxMessagesPerSegment", DEFAULT_MAX_MESSAGES),
        max_bytes=_positive(options, "maxBytesPerRequest", DEFAULT_MAX_BYTES),
    )


def _starting(text: str) -> Literal["earliest", "latest"] | Checkpoint:
    match text.strip():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case checkpoint if checkpoint.startswith("{"):
            try:
                return checkpoint_from_json(json.loads(checkpoint))
            except json.JSONDecodeError as error:
                raise ValueError(f"starting is not a checkpoint: {error}") from error
        case _:
            raise ValueError(f"starting is earliest, latest or a checkpoint as JSON, not {text!r}")


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(f"{name} is {text!r}, but must be a whole number of at least 1")
    return int(text)


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
