"""Writing to a topic and reading it back as a batch: nothing twice, keys in order, bad input by name."""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType, _parse_datatype_string

from scalable.client import ConnectionLost
from scalable.domain.operations import OperationKind
from scalable.segments.registry import segment_port
from scalable.services.topics import TopicView
from spark.options import sink_options
from spark.sink import PART, Place, _send, by_key
from spark.source import ScalableTopicSource
from tests.processes import LiveNode, ProcessFactory
from tests.spark.waiting import wait_for
from tests.topology import drive, make_topic, request

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

KEYS = 7
ADAPTIVE, COALESCE = "spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
FEW_CORES = {ADAPTIVE: "true", PARTITIONS: "4", COALESCE: "false"}
MANY_CORES = {ADAPTIVE: "true", PARTITIONS: "200", COALESCE: "true"}
"""Two clusters, by what Spark makes of a shuffle there."""


@pytest.fixture
def source(live_node: LiveNode) -> TopicView:
    """A topic to read from."""
    return make_topic("flights", segments=2)


@pytest.fixture
def target(live_node: LiveNode, source: TopicView) -> TopicView:
    """A topic to write to."""
    return make_topic("copy", segments=2)


def options(node: LiveNode, topic: TopicView) -> dict[str, Any]:
    """Give the options of both ends."""
    return {"url": node.url, "topic": str(topic.name), "token": node.admin_token, "patienceSeconds": 60}


def write(frame: DataFrame, node: LiveNode, topic: TopicView, **more: str) -> None:
    """Append a frame to a topic."""
    frame.write.format("scalable-topic").options(**options(node, topic), **more).mode("append").save()


def read(session: SparkSession, node: LiveNode, topic: TopicView, **more: str) -> list[Row]:
    """Read a topic in the order of its segments, which is that of each key."""
    reader = session.read.format("scalable-topic").options(**options(node, topic), **more)
    return reader.load().orderBy("segment_id", "offset").collect()


def numbered(session: SparkSession, first: int, count: int) -> DataFrame:
    """Make messages of a few keys, numbered in one order."""
    number = sf.col("id")
    return session.range(first, first + count).select(
        sf.concat(sf.lit("N"), (number % KEYS).cast("string")).alias("key"),
        sf.format_string("%06d", number).alias("value"),
    )


def of_keys(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Give the numbers of each key in the order of reading."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(int(bytes(row["value"])))
    return found


def expected(count: int) -> dict[str, list[int]]:
    """Give what `of_keys` must give for so many messages."""
    return {f"N{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


def test_batches_come_back_across_a_split_with_each_key_in_order(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    write(by_key(numbered(session, 0, 100)), live_node, target)
    between = segment_ends(target)
    drive(request(OperationKind.SPLIT, target))
    write(by_key(numbered(session, 100, 100)), live_node, target)
    assert of_keys(read(session, live_node, target)) == expected(200)
    checkpoint = json.dumps({"incarnation": target.incarnation, "positions": between})
    before = read(session, live_node, target, ending=checkpoint)
    after = read(session, live_node, target, starting=checkpoint)
    assert of_keys(before) == expected(100)
    assert (len(after), {row["segment_id"] for row in after} <= {1, 2, 3}) == (100, True)
    assert read(session, live_node, target, starting="latest") == []


def segment_ends(topic: TopicView) -> dict[str, int]:
    """Give where the segments end now, as a checkpoint names them."""
    keys = segment_port().keys(incarnation=topic.incarnation)
    return {str(key.segment_id): segment_port().stats(key).end_offset for key in keys}


def test_all_that_a_message_may_have_is_written(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    moment = datetime(2026, 11, 28, 12, 0, 0, 123_000, tzinfo=UTC)
    rows = [
        ("N1", b"\x00\xff", {"from": "JFK"}, moment, None),
        (None, b"keyless", None, None, moment),
        ("ключ", b"", {}, None, None),
    ]
    schema = (
        "key string, value binary, properties map<string,string>, event_time timestamp, deliver_at timestamp"
    )
    write(session.createDataFrame(rows, schema), live_node, target)
    found = {bytes(row["value"]): row for row in read(session, live_node, target)}
    assert [found[row[1]]["key"] for row in rows] == ["N1", None, "ключ"]
    assert found[b"\x00\xff"]["properties"] == {"from": "JFK"}
    assert found[b"\x00\xff"]["event_time"].timestamp() == moment.timestamp()
    assert len(found) == 3


def test_a_batch_under_the_same_name_is_stored_once(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    frame = by_key(numbered(session, 0, 50))
    write(frame, live_node, target, producer="import-2026-11-28")
    write(frame, live_node, target, producer="import-2026-11-28")
    assert of_keys(read(session, live_node, target)) == expected(50)
    write(frame, live_node, target)
    assert len(read(session, live_node, target)) == 100


@pytest.mark.parametrize(("first", "again"), [(FEW_CORES, MANY_CORES), (MANY_CORES, FEW_CORES)])
def test_a_batch_that_died_is_gone_on_with_on_another_cluster(
    session: SparkSession,
    live_node: LiveNode,
    target: TopicView,
    first: dict[str, str],
    again: dict[str, str],
) -> None:
    """A row that is no message ends the first run behind others of its part, and after other parts."""
    rows = numbered(session, 0, 400)
    parts = by_key(rows).select("key", PART).distinct().collect()
    last = max(parts, key=lambda row: row[PART]["part"])["key"]
    dies = rows.unionByName(session.createDataFrame([(last, None)], "key string, value string"))
    with on_a_cluster(session, first), pytest.raises(PythonException, match="a value is null"):
        write(by_key(dies), live_node, target, producer="import")
    stored = len(read(session, live_node, target))
    assert 0 < stored <= 400
    with on_a_cluster(session, again):
        write(by_key(rows), live_node, target, producer="import")
    assert of_keys(read(session, live_node, target)) == expected(400)


def test_rows_that_are_not_where_they_were_are_refused(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    frame = numbered(session, 0, 50)
    write(by_key(frame, parts=4), live_node, target, producer="import")
    with pytest.raises(PythonException, match="begun with 4 parts"):
        write(by_key(frame, parts=8), live_node, target, producer="import")
    laid_out = by_key(frame)
    for moved in (laid_out.coalesce(1), laid_out.repartition(3), laid_out.orderBy("value")):
        with pytest.raises(PythonException, match="the last step"):
            write(moved, live_node, target, producer="another")
    with pytest.raises(AnalysisException, match="producer_part is missing"):
        write(frame, live_node, target, producer="another")
    with pytest.raises(ValueError, match="1 to 255 parts"):
        by_key(frame, parts=256)


@contextmanager
def on_a_cluster(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Let the session be as a user's own: Spark changes the number of partitions while a query runs."""
    kept = {name: str(session.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in kept.items():
            session.conf.set(name, value)


@pytest.mark.parametrize(("first", "again"), [(FEW_CORES, MANY_CORES), (MANY_CORES, FEW_CORES)])
def test_a_stream_that_repeats_its_last_epoch_stores_nothing_twice(
    session: SparkSession,
    live_node: LiveNode,
    source: TopicView,
    target: TopicView,
    tmp_path: Path,
    first: dict[str, str],
    again: dict[str, str],
) -> None:
    """The crash meant: everything of an epoch is durable, and Spark dies before it notes that."""
    for number in range(2):
        write(by_key(numbered(session, 60 * number, 60)), live_node, source)
        with on_a_cluster(session, first):
            copy(session, live_node, source, target, tmp_path)
    drive(request(OperationKind.SPLIT, target))
    forget_last_epoch(tmp_path)
    with on_a_cluster(session, again):
        copy(session, live_node, source, target, tmp_path)
    assert of_keys(read(session, live_node, target)) == expected(120)


def forget_last_epoch(checkpoint: Path) -> None:
    """Take from Spark its note that the last epoch was done."""
    notes = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    notes[-1].unlink()
    for leftover in (checkpoint / "commits").glob(f".{notes[-1].name}.*"):
        leftover.unlink()


def copy(
    session: SparkSession,
    node: LiveNode,
    source: TopicView,
    target: TopicView,
    checkpoint: Path,
    *,
    parts: int = 4,
    **more: str,
) -> None:
    """Copy what is new in a topic by a stream."""
    given = {**options(node, source), "starting": more.pop("starting", "earliest")}
    stream = session.readStream.format("scalable-topic").options(**given).load()
    rows = by_key(stream.select("key", "value", "segment_id", "offset"), parts=parts)
    writer = rows.writeStream.format("scalable-topic").options(**options(node, target), **more)
    writer = writer.option("orderBy", "segment_id, offset")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def test_a_stream_is_not_taken_for_another_of_its_name(
    session: SparkSession, live_node: LiveNode, source: TopicView, target: TopicView, tmp_path: Path
) -> None:
    """A new checkpoint counts its epochs from 0 again; so does a second query."""
    write(by_key(numbered(session, 0, 60)), live_node, source)
    copy(session, live_node, source, target, tmp_path / "first", producer="copies")
    between = json.dumps({"incarnation": source.incarnation, "positions": segment_ends(source)})
    write(by_key(numbered(session, 60, 30)), live_node, source)
    copy(session, live_node, source, target, tmp_path / "second", producer="copies", starting=between)
    assert of_keys(read(session, live_node, target)) == expected(90)


def test_an_epoch_that_others_followed_is_refused_and_so_is_one_of_other_parts(
    session: SparkSession, live_node: LiveNode, source: TopicView, target: TopicView, tmp_path: Path
) -> None:
    write(by_key(numbered(session, 0, 60)), live_node, source)
    copy(session, live_node, source, target, tmp_path / "now")
    shutil.copytree(tmp_path / "now", tmp_path / "older")
    forget_last_epoch(tmp_path / "older")
    with pytest.raises(StreamingQueryException, match="begun with 4 parts"):
        copy(session, live_node, source, target, tmp_path / "older", parts=5)
    write(by_key(numbered(session, 60, 60)), live_node, source)
    copy(session, live_node, source, target, tmp_path / "now")
    with pytest.raises(StreamingQueryException, match="the checkpoint is an older one"):
        copy(session, live_node, source, target, tmp_path / "older")
    assert of_keys(read(session, live_node, target)) == expected(120)


def test_without_the_epoch_nothing_is_written(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    """A Spark that named its properties in another way would have every epoch taken for the first."""
    frame = by_key(numbered(session, 0, 5))
    given = {name: str(value) for name, value in options(live_node, target).items()}
    writer = ScalableTopicSource(given).streamWriter(frame.schema, overwrite=False)

    def outside_of_a_stream(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer.write(batches)
        yield from ()

    with pytest.raises(PythonException, match="Spark told the task no sql"):
        frame.mapInArrow(outside_of_a_stream, "value string").collect()
    assert read(session, live_node, target) == []


@pytest.mark.timeout(300)
def test_a_node_that_is_away_is_waited_for_no_longer_than_the_patience(
    target: TopicView, processes: ProcessFactory
) -> None:
    """It goes when more is under way than there is room for, so that the next row waits for room."""
    node = processes.node()
    given = {**options(node, target), "patienceSeconds": "2", "compression": "none", "producer": "import"}
    wanted = sink_options(given, named_by_query=False)
    values = [f"{number:06d}".ljust(4_096, "x") for number in range(20_000)]
    table = pa.table({"key": [str(number % KEYS) for number in range(len(values))], "value": values})
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(lambda: asyncio.run(_send(wanted, "import-0", Place(0, 0, 0), table)))
        wait_for(lambda: any(segment_ends(target).values()), "the first message")
        node.process.send_signal(signal.SIGKILL)
        with pytest.raises(TimeoutError, match="took no message for 2 s"):
            sending.result(60)
        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            asyncio.run(_send(wanted, "import-0", Place(0, 0, 0), table))
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key string", "column value is missing"),
        ("value string", "column place is missing"),
        ("value bigint", "value is bigint"),
        ("key bigint, value string", "key is bigint"),
        (f"value string, {PART} int", "producer_part is int"),
        ("value string, colour string", "one of"),
    ],
)
def test_columns_that_are_no_message_are_named(schema: str, message: str) -> None:
    given = {"url": "http://127.0.0.1:1", "topic": "topic://public/default/copy", "token": "t"}
    if "place" in message:
        given["orderBy"] = "place"
    columns = cast("StructType", _parse_datatype_string(schema))
    with pytest.raises(ValueError, match=message):
        ScalableTopicSource(given).writer(columns, overwrite=False)
    with pytest.raises(ValueError, match=message):
        ScalableTopicSource(given).streamWriter(columns, overwrite=False)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("token", "", "needs the options"),
        ("compression", "gzip", "compression is one of"),
        ("producer", "a b", "is no name"),
        ("patienceSeconds", "0", "at least 1"),
    ],
)
def test_options_of_a_writer_that_cannot_be_read_are_named(option: str, value: str, message: str) -> None:
    given = {"url": "http://127.0.0.1:1", "topic": "topic://public/default/copy", "token": "t"}
    columns = StructType().add("value", "string")
    with pytest.raises(ValueError, match=message):
        ScalableTopicSource({**given, option: value}).writer(columns, overwrite=False)
    with pytest.raises(ValueError, match="append"):
        ScalableTopicSource(given).writer(columns, overwrite=True)


def test_a_row_that_cannot_be_sent_fails_the_job_and_says_why(
    session: SparkSession, live_node: LiveNode, target: TopicView
) -> None:
    with pytest.raises(PythonException, match="a value is null"):
        write(session.createDataFrame([(None,)], "value string"), live_node, target)
    missing = {**options(live_node, target), "topic": "topic://public/default/missing"}
    frame = session.createDataFrame([("x",)], "value string").write.format("scalable-topic")
    with pytest.raises(PythonException, match="missing"):
        frame.options(**missing).mode("append").save()
