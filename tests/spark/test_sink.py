"""Writing to a topic and reading it back as a batch: nothing twice, keys in order, bad input by name."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType, _parse_datatype_string

from scalable.domain.operations import OperationKind
from scalable.segments.registry import segment_port
from scalable.services.topics import TopicView
from spark.sink import by_key
from spark.source import ScalableTopicSource
from tests.processes import LiveNode
from tests.topology import drive, make_topic, request

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

KEYS = 7


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


def test_a_stream_that_repeats_its_last_epoch_stores_nothing_twice(
    session: SparkSession, live_node: LiveNode, source: TopicView, target: TopicView, tmp_path: Path
) -> None:
    """The crash meant: everything of an epoch is durable, and Spark dies before it notes that."""
    write(by_key(numbered(session, 0, 60)), live_node, source)
    _copy(session, live_node, source, target, tmp_path)
    write(by_key(numbered(session, 60, 60)), live_node, source)
    _copy(session, live_node, source, target, tmp_path)
    drive(request(OperationKind.SPLIT, target))
    notes = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    notes[-1].unlink()
    for leftover in (tmp_path / "commits").glob(f".{notes[-1].name}.*"):
        leftover.unlink()
    _copy(session, live_node, source, target, tmp_path)
    assert of_keys(read(session, live_node, target)) == expected(120)


def _copy(
    session: SparkSession, node: LiveNode, source: TopicView, target: TopicView, checkpoint: Path
) -> None:
    stream = session.readStream.format("scalable-topic").options(**options(node, source)).load()
    rows = by_key(stream.select("key", "value", "segment_id", "offset"))
    writer = rows.writeStream.format("scalable-topic").options(**options(node, target))
    writer = writer.option("orderBy", "segment_id, offset")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key string", "column value is missing"),
        ("value string", "column place is missing"),
        ("value bigint", "value is bigint"),
        ("key bigint, value string", "key is bigint"),
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
