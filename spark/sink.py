"""Writing a DataFrame to a scalable topic, at once or as a stream, with nothing stored twice.

Columns: `value` (binary or string), and if wanted `key` (string), `properties` (map of strings), `event_time`
and `deliver_at` (timestamps). Options: `url`, `topic`, `token` or `tokenFile`, `compression` (zstd or none),
`patienceSeconds`, `orderBy`, and `producer`, under which the same batch may be written again.

Each task is a producer. Its name comes from the query (or batch) and the partition, its sequences from the
epoch and the row's number; so a task that is repeated, by Spark's scheduler or because a query that died
repeats its last epoch, sends the same (name, sequence) again, and the segments leave out what they have.
That needs the same order of rows each time, which no shuffle promises: each task sorts its rows, in memory,
by the columns of the option `orderBy` (which need be no columns of messages), then by all others.

Rows of one key keep that order if they are in one partition: `by_key` sees to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from scalable.client import Producer
from spark.options import SinkOptions

ROWS_PER_EPOCH = 2**32
"""Sequences of one epoch; a partition of one epoch holds fewer rows."""
COLUMNS: Mapping[str, frozenset[str]] = {
    "value": frozenset({"binary", "string"}),
    "key": frozenset({"string"}),
    "properties": frozenset({"map<string,string>"}),
    "event_time": frozenset({"timestamp"}),
    "deliver_at": frozenset({"timestamp"}),
}
ROWS_PER_CHUNK = 10_000
_PROPERTIES_TEXT = " properties"
_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    messages: int


class _Writer:
    """What both writers check on the driver, and carry to the executors."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _require_append(overwrite)
        _require_columns(schema, options.order)
        self._options = options


class TopicWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch; made on the driver, `write` runs on executors."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Produce the rows of a partition and wait until they are durable."""
        task = _task()
        return _produce(self._options, f"{self._options.producer}-{task.partitionId()}", 0, iterator)


class TopicStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the epochs of a stream; made on the driver, `write` runs on executors."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Produce the rows of a partition of one epoch and wait until they are durable."""
        task = _task()
        query = self._options.producer or f"spark-{task.getLocalProperty(_QUERY)}"
        epoch = int(task.getLocalProperty(_EPOCH) or 0)
        return _produce(self._options, f"{query}-{task.partitionId()}", epoch, iterator)


def by_key(frame: DataFrame) -> DataFrame:
    """Bring the rows of each key into one partition; rows without a key are spread by their value."""
    place = sf.coalesce(sf.col("key"), sf.md5(sf.col("value").cast("binary")))
    return frame.repartition(place)


def _require_append(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a topic can be appended to, not overwritten: use the mode append")


def _require_columns(schema: StructType, order: Sequence[str]) -> None:
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in ("value", *order):
        if name not in found:
            raise ValueError(f"the column {name} is missing; there are {', '.join(found) or 'none'}")
    for name, kind in found.items():
        if name in order and name not in COLUMNS:
            continue
        if kind not in COLUMNS.get(name, frozenset()):
            wanted = " or ".join(sorted(COLUMNS.get(name, ()))) or f"one of {', '.join(COLUMNS)}"
            raise ValueError(f"the column {name} is {kind}, but must be {wanted}")


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("a topic is written by tasks of Spark only")
    return task


def _produce(options: SinkOptions, producer: str, epoch: int, batches: Iterable[pa.RecordBatch]) -> Written:
    return Written(asyncio.run(_send(options, producer, epoch * ROWS_PER_EPOCH, batches)))


async def _send(
    options: SinkOptions, name: str, first_sequence: int, batches: Iterable[pa.RecordBatch]
) -> int:
    """Send all rows; raises what made one of them impossible, as MessageTooLarge or TopicDeleted."""
    failures: list[BaseException] = []
    count = 0
    async with Producer(
        options.url, options.topic, options.token, name=name, compression=options.compression
    ) as producer:
        for row in _in_order(batches, options.order):
            sent = await producer.submit(*_message(row), **_options(row), sequence=first_sequence + count)
            sent.add_done_callback(lambda done: _note(done, failures))
            count += 1
            if failures:
                break
        await producer.flush(options.timeout_seconds)
    if failures:
        raise failures[0]
    return count


def _in_order(batches: Iterable[pa.RecordBatch], order: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Give the rows in the one order that depends on nothing but the rows."""
    received = list(batches)
    if not received:
        return
    table = pa.Table.from_batches(received)
    keys = [*order, *(name for name in sorted(table.column_names) if name not in order)]
    if "properties" in keys:  # maps cannot be compared
        texts = [None if one is None else str(sorted(one)) for one in table["properties"].to_pylist()]
        table = table.append_column(_PROPERTIES_TEXT, pa.array(texts, pa.string()))
        keys[keys.index("properties")] = _PROPERTIES_TEXT
    ordered = table.take(pc.sort_indices(table, [(key, "ascending") for key in keys]))
    for batch in ordered.to_batches(max_chunksize=ROWS_PER_CHUNK):
        yield from batch.to_pylist()


def _note(done: asyncio.Future[Any], failures: list[BaseException]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        failures.append(error)


def _message(row: Mapping[str, Any]) -> tuple[str | None, bytes]:
    value = row["value"]
    if value is None:
        raise ValueError("a value is null: a message has bytes, if none at all")
    return row.get("key"), value.encode() if isinstance(value, str) else value


def _options(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if row.get("properties") is not None:
        found["properties"] = dict(row["properties"])
    if row.get("event_time") is not None:
        found["event_time_ms"] = round(_aware(row["event_time"]).timestamp() * 1000)
    if row.get("deliver_at") is not None:
        found["deliver_at"] = _aware(row["deliver_at"])
    return found


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
