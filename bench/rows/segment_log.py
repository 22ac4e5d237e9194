"""Rows 7 and 8: the segment log against COPY of the same messages, one row each, in the same database."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from uuid import uuid4

import psycopg
from psycopg import sql

from bench.harness import Bench, Comparison, bench_row
from bench.produce import ProduceSocket
from launch.demo.flights import read_flights
from launch.sandbox import LiveNode
from scalable.domain.keyspace import FULL_RANGE
from scalable.domain.names import TopicName
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.services import topics
from scalable.wire.batch import Codec, Record, decode_batch, encode_batch

MESSAGES = 100_000
MESSAGES_PER_BATCH = 1_000
BATCHES_PER_CALL = 8
KEY = SegmentKey(10**9, 0)
PRODUCER = "bench"
PAGE_BYTES = 1024 * 1024

COLUMNS = "bench_message (position, key, value, sequence, event_time_ms)"
TYPES = ["int8", "text", "bytea", "int8", "int8"]
ORDERED = "SELECT * FROM bench_message ORDER BY position"


def flight_records() -> list[Record]:
    """Give real events: flight departures as JSON, by aircraft."""
    flights = (flight for flight in read_flights(MESSAGES * 2) if flight.key is not None)
    return [
        Record(flight.key, flight.value, index, flight.number)
        for index, flight in zip(range(MESSAGES), flights, strict=False)
    ]


def encode(records: Sequence[Record], codec: Codec) -> list[bytes]:
    """Encode records in batches as a producer does."""
    starts = range(0, len(records), MESSAGES_PER_BATCH)
    return [
        encode_batch(records[start : start + MESSAGES_PER_BATCH], published_at_ms=0, codec=codec)
        for start in starts
    ]


class CopiedTable:
    """The floor: a table with a row for each message and no index, filled by one COPY in one transaction."""

    def __init__(self, url: str, records: Sequence[Record]) -> None:
        self._records = records
        self._lines = b"".join(map(_line, range(len(records)), records))
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(
            "CREATE TABLE bench_message"
            " (position bigint, key text, value bytea, sequence bigint, event_time_ms bigint)"
        )

    def empty(self) -> None:
        """Remove the rows of the last round."""
        self._connection.execute("TRUNCATE bench_message")

    def copy_in(self) -> None:
        """Send lines that were written beforehand."""
        with self._connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.SQL(COLUMNS))) as copy:
            copy.write(self._lines)

    def copy_records_in(self) -> None:
        """Write and send the rows."""
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(sql.SQL(COLUMNS))
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types(TYPES)
            for index, record in enumerate(self._records):
                copy.write_row((index, record.key, record.value, record.sequence, record.event_time_ms))

    def copy_out(self) -> None:
        """Receive the lines in order, unread."""
        with self._connection.cursor().copy(f"COPY ({ORDERED}) TO STDOUT") as copy:
            for _ in copy:
                pass

    def copy_records_out(self) -> None:
        """Receive the rows in order, as Python values."""
        with self._connection.cursor().copy(f"COPY ({ORDERED}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(TYPES)
            for _ in copy.rows():
                pass

    def drop(self) -> None:
        """Leave nothing behind."""
        self._connection.execute("DROP TABLE bench_message")
        self._connection.close()


def _line(index: int, record: Record) -> bytes:
    key, value = (record.key or "").encode(), record.value.hex().encode()
    return b"%d\t%s\t\\\\x%s\t%d\t%d\n" % (index, key, value, record.sequence, record.event_time_ms)


class Log:
    """The product: one segment behind the port of the settings."""

    def __init__(self) -> None:
        self._port: SegmentPort = segment_port()

    def empty(self) -> None:
        """Begin a new segment."""
        self._port.delete(KEY)
        self._port.create(KEY, hash_range=FULL_RANGE, subscriptions=[], fence=None)

    def append(self, batches: Sequence[bytes]) -> None:
        """Append batches, some in each call, each call durable when it returns."""
        for start in range(0, len(batches), BATCHES_PER_CALL):
            self._port.append(KEY, batches[start : start + BATCHES_PER_CALL], producer=PRODUCER)

    def read(self, *, decode: bool) -> None:
        """Read the segment from its start in pages, with or without decoding the records."""
        offset = 0
        while offset < MESSAGES:
            page = self._port.read(KEY, offset=offset, max_bytes=PAGE_BYTES, max_batches=100)
            if decode:
                for entry in page.batches:
                    decode_batch(entry.payload)
            offset = page.next_offset

    def drop(self) -> None:
        """Leave nothing behind."""
        self._port.delete(KEY)


def messages_per_second(work: Callable[[], None]) -> float:
    """Time one round."""
    started = time.perf_counter()
    work()
    return MESSAGES / (time.perf_counter() - started)


@bench_row(
    number=7,
    title="durable append (gap-free, idempotent) over one COPY of the same messages",
    unit="messages/s",
    goal=">= 1.5",
    higher_is_better=True,
)
def append(bench: Bench) -> Iterator[Comparison]:
    """Append through the port, many commits, against one COPY in one commit."""
    records = flight_records()
    table, log = CopiedTable(bench.database_url, records), Log()

    def emptied(work: Callable[[], None]) -> float:
        table.empty()
        log.empty()
        return messages_per_second(work)

    for codec in Codec:
        batches = encode(records, codec)
        yield bench.compare(
            f"port, batches ready ({codec.name.lower()})",
            floor=lambda: emptied(table.copy_in),
            product=lambda batches=batches: emptied(lambda: log.append(batches)),  # type: ignore[misc]
            note=f"{MESSAGES_PER_BATCH:,} flights in a batch, {BATCHES_PER_CALL} batches in a commit;"
            " the floor has its lines ready, no index, and one commit",
        )
        yield bench.compare(
            f"port, encoding included ({codec.name.lower()})",
            floor=lambda: emptied(table.copy_records_in),
            product=lambda codec=codec: emptied(lambda: log.append(encode(records, codec))),  # type: ignore[misc]
        )
    log.drop()
    yield from _through_the_socket(bench, table, records)
    table.drop()


def _through_the_socket(bench: Bench, table: CopiedTable, records: Sequence[Record]) -> Iterator[Comparison]:
    node = bench.node()
    with asyncio.Runner() as runner:
        for codec in Codec:
            batches = encode(records, codec)

            def emptied() -> float:
                table.empty()
                return messages_per_second(table.copy_in)

            yield bench.compare(
                f"WebSocket, batches ready ({codec.name.lower()})",
                floor=emptied,
                product=lambda batches=batches: runner.run(_socket_rate(node, batches)),  # type: ignore[misc]
                goal=">= 0.5",
            )


async def _socket_rate(node: LiveNode, batches: Sequence[bytes]) -> float:
    """Send batches to a new topic and give the messages for each second until all are durable."""
    topic = TopicName("public", "default", f"bench-{uuid4()}")
    await asyncio.to_thread(topics.create_topic, name=topic, actor="bench")
    async with ProduceSocket(node, topic, producer=PRODUCER) as socket:
        started = time.perf_counter()
        await socket.send_all(0, batches)
        return MESSAGES / (time.perf_counter() - started)


@bench_row(
    number=8,
    title="ordered read over COPY TO of the same messages",
    unit="messages/s",
    goal=">= 4",
    higher_is_better=True,
)
def read(bench: Bench) -> Iterator[Comparison]:
    """Read through the port in pages of 1 MiB, against one COPY TO."""
    records = flight_records()
    table, log = CopiedTable(bench.database_url, records), Log()
    table.copy_in()
    for codec in Codec:
        log.empty()
        log.append(encode(records, codec))
        yield bench.compare(
            f"port, batches as stored ({codec.name.lower()})",
            floor=lambda: messages_per_second(table.copy_out),
            product=lambda: messages_per_second(lambda: log.read(decode=False)),
            note="a node that serves consumers hands batches on as they are stored",
        )
        yield bench.compare(
            f"port, records decoded ({codec.name.lower()})",
            floor=lambda: messages_per_second(table.copy_records_out),
            product=lambda: messages_per_second(lambda: log.read(decode=True)),
        )
    table.drop()
    log.drop()
