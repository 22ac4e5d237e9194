"""Writing a DataFrame to a scalable topic, at once or as a stream, with nothing stored twice.

Columns: `value` (binary or string), and if wanted `key` (string), `properties` (map of strings), `event_time`
and `deliver_at` (timestamps). Options: `url`, `topic`, `token` or `tokenFile`, `compression` (zstd or none),
`patienceSeconds`, `orderBy`, and `producer`, under which the same batch may be written again.

Each task is a producer. Its name comes from the query (or batch) and the part, its sequences from the epoch
and the row's number; so a task that is repeated, by Spark's scheduler or because a query that died repeats
its last epoch, sends the same (name, sequence) again, and the segments leave out what they have.

That needs the same rows in the same part each time, however many cores there are now and whatever Spark makes
of its shuffles meanwhile: `by_key` lays them out, notes where in a column, and what may be written again
(streams, batches with `producer`) is refused without it. It needs the same order, too, which no shuffle
promises: each task sorts its rows, in memory, by the columns of the option `orderBy` (which need be no
columns of messages), then by all others. So rows of one key keep that order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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

DEFAULT_PARTS = 8
MAX_PARTS = 255
MAX_ROWS = 2**26
"""Of one part of one epoch."""
PART = "producer_part"
"""The column in which `by_key` notes the part of a row, and of how many."""
COLUMNS: Mapping[str, frozenset[str]] = {
    "value": frozenset({"binary", "string"}),
    "key": frozenset({"string"}),
    "properties": frozenset({"map<string,string>"}),
    "event_time": frozenset({"timestamp"}),
    "deliver_at": frozenset({"timestamp"}),
    PART: frozenset({"struct<part:int,parts:int>"}),
}
ROWS_PER_CHUNK = 10_000
ROWS_PER_LOOK = 100
"""A timer costs as much as a row."""
_PROPERTIES_TEXT = " properties"
_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    messages: int


@dataclass(frozen=True, slots=True)
class Place:
    """Which rows these are: a part of so many (0: of however many there are), in an epoch of a query."""

    epoch: int
    part: int
    parts: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first row; those of later epochs are higher."""
        return (self.epoch * (MAX_PARTS + 1) + self.parts) * MAX_ROWS

    def require_after(self, last_sequence: int) -> None:
        """Raise ValueError when what a producer of this name stored last was laid out in another way."""
        epoch, parts = divmod(last_sequence // MAX_ROWS, MAX_PARTS + 1)
        if last_sequence < 0 or epoch < self.epoch or (epoch, parts) == (self.epoch, self.parts):
            return
        if epoch > self.epoch:
            raise ValueError(f"epoch {self.epoch} is written after {epoch}: the checkpoint is an older one")
        raise ValueError(f"this was begun with {parts} parts, and cannot be gone on with as {self.parts}")


class _Writer:
    """What both writers check on the driver, and carry to the executors."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool, repeats: bool) -> None:
        _require_append(overwrite)
        _require_columns(schema, options.order)
        if repeats and PART not in schema.names:
            raise ValueError(f"the column {PART} is missing: let by_key of spark.sink be the last step")
        self._options = options


class TopicWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch; made on the driver, `write` runs on executors."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Produce the rows of a partition and wait until they are durable."""
        return _produce(self._options, str(self._options.producer), 0, iterator)


class TopicStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the epochs of a stream; made on the driver, `write` runs on executors.

    Its names have the query's id, since epochs of another query, or of a new checkpoint, begin at 0 again.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Produce the rows of a partition of one epoch and wait until they are durable."""
        name = f"{self._options.producer or 'spark'}-{_property(_QUERY)}"
        return _produce(self._options, name, int(_property(_EPOCH)), iterator)


def by_key(frame: DataFrame, *, parts: int = DEFAULT_PARTS) -> DataFrame:
    """Bring the rows of each key into one of `parts` partitions; rows without a key are spread by value.

    The number is no setting of the session, and Spark keeps to it: what is written again must be laid out as
    it was. Let it be the last step before writing. Raises ValueError for a number out of 1 to `MAX_PARTS`.
    """
    if not 1 <= parts <= MAX_PARTS:
        raise ValueError(f"there are 1 to {MAX_PARTS} parts, not {parts}")
    place = sf.coalesce(sf.col("key"), sf.md5(sf.col("value").cast("binary")))
    part = sf.pmod(sf.hash(place), sf.lit(parts))  # by which Spark chooses the partition, too
    noted = sf.struct(part.alias("part"), sf.lit(parts).alias("parts"))
    return frame.withColumn(PART, noted).repartition(parts, place)


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


def _property(name: str) -> str:
    value = _task().getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark told the task no {name}: without it rows would be taken for others")
    return value


def _produce(options: SinkOptions, name: str, epoch: int, batches: Iterator[pa.RecordBatch]) -> Written:
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return Written(0)
    table = pa.Table.from_batches(received)
    place = _place(table, epoch, _task().partitionId())
    return Written(asyncio.run(_send(options, f"{name}-{place.part}", place, table)))


def _place(table: pa.Table, epoch: int, partition_id: int) -> Place:
    """Tell which part the rows of a task are; raises ValueError when they are not where `by_key` put them."""
    if PART not in table.column_names:
        return Place(epoch, partition_id, 0)
    found = table[PART].combine_chunks()
    part, parts = (pc.unique(found.field(name)).to_pylist() for name in ("part", "parts"))
    if part != [partition_id] or len(parts) != 1:
        raise ValueError("rows are not where by_key put them: let it be the last step before writing")
    if table.num_rows > MAX_ROWS:
        raise ValueError(f"{table.num_rows} rows are in one part: give by_key more parts")
    return Place(epoch, partition_id, parts[0])


async def _send(options: SinkOptions, name: str, place: Place, table: pa.Table) -> int:
    """Send all rows; raises what made one of them impossible, as MessageTooLarge, TopicDeleted, TimeoutError.

    The patience is that with the start, with room for the next rows, and with the end of what is under way.
    """
    failures: list[BaseException] = []
    now = asyncio.get_running_loop().time
    async with _opened(options, name) as producer, asyncio.timeout(options.timeout_seconds) as patience:
        if place.parts:
            place.require_after(producer.last_sequence)
        for number, row in enumerate(_in_order(table, options.order)):
            if number % ROWS_PER_LOOK == 0:
                patience.reschedule(now() + options.timeout_seconds)
            sequence = place.first_sequence + number
            sent = await producer.submit(*_message(row), **_options(row), sequence=sequence)
            sent.add_done_callback(lambda done: _note(done, failures))
            if failures:
                break
        patience.reschedule(now() + options.timeout_seconds)
        await producer.flush()
    if failures:
        raise failures[0]
    return len(table)


@asynccontextmanager
async def _opened(options: SinkOptions, name: str) -> AsyncIterator[Producer]:
    """Give a producer; raises TimeoutError, with words, when the node is away for longer than allowed."""
    producer = Producer(options.url, options.topic, options.token, name=name, compression=options.compression)
    try:
        async with AsyncExitStack() as stack:
            await producer.start(options.timeout_seconds)
            stack.push_async_exit(producer)
            yield producer
    except TimeoutError:
        raise TimeoutError(f"{options.topic} took no message for {options.timeout_seconds} s") from None


def _in_order(table: pa.Table, order: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Give the rows in the one order that depends on nothing but the rows."""
    names = sorted(set(table.column_names) - {PART, *order})
    keys = [*order, *names]
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
