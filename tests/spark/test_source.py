"""The data source on a real node: every message once, children after their parents, in bounded steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from scalable.domain.errors import InvalidParameter, ScalableError
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import pruning, topics
from scalable.services.topics import TopicView
from scalable.wire.batch import Codec, Record, encode_batch
from spark.rest import NodeClient, NodeRefused, NodeUnavailable
from spark.source import ARROW_SCHEMA, ScalableTopicSource, TopicChanged, TopicStreamReader
from tests.processes import LiveNode
from tests.spark.reporter import append_values
from tests.topology import ACTOR, drive, layout_of, make_topic, request

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]


class Stream:
    """A streaming query that is run to the end of what there is, again and again."""

    def __init__(self, session: SparkSession, node: LiveNode, topic: TopicView, directory: Path) -> None:
        self._session = session
        self._directory = directory
        self._batches: list[list[Row]] = []
        self.options: dict[str, Any] = {
            "url": node.url,
            "topic": str(topic.name),
            "token": node.admin_token,
            "patienceSeconds": 1,
        }

    def run(self, **options: object) -> list[list[Row]]:
        """Read all that is new and give the rows of each micro-batch."""
        self._batches = []
        reader = self._session.readStream.format("scalable-topic").options(**{**self.options, **options})
        writer = reader.load().writeStream.foreachBatch(self._keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._directory)).start().awaitTermination()
        return [batch for batch in self._batches if batch]

    @property
    def rows(self) -> list[Row]:
        """The rows of the last run, also of one that failed."""
        return [row for batch in self._batches for row in batch]

    def anew(self) -> Stream:
        """Begin with a new checkpoint."""
        self._directory = self._directory.with_name(f"{self._directory.name}-new")
        return self

    def forget_last_batch(self) -> None:
        """Take from Spark its note that the last batch was done, as a crash before it would."""
        commits = self._directory / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        for note in (last, *commits.glob(f".{last.name}.*")):
            note.unlink()

    def values(self, **options: object) -> list[str]:
        """Read all that is new and give the values."""
        return [bytes(row["value"]).decode() for batch in self.run(**options) for row in batch]

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        self._batches.append(batch.collect())


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """A topic with one segment."""
    return make_topic("flights", segments=1)


@pytest.fixture
def stream(session: SparkSession, live_node: LiveNode, topic: TopicView, tmp_path: Path) -> Stream:
    """A stream of the topic."""
    return Stream(session, live_node, topic, tmp_path / "checkpoint")


def make_reader(options: dict[str, Any], **more: object) -> TopicStreamReader:
    """Make a reader as Spark does."""
    texts = {name: str(value) for name, value in {**options, **more}.items()}
    return ScalableTopicSource(texts).streamReader(StructType())


def append(topic: TopicView, *values: str, segment_id: int = 0) -> None:
    append_values(topic, segment_id, [value.encode() for value in values])


def test_the_arrow_batches_have_the_schema_that_spark_is_told(session: SparkSession) -> None:
    told = session.createDataFrame([], ScalableTopicSource({}).schema()).schema
    assert to_arrow_schema(told, timezone="UTC").equals(ARROW_SCHEMA)


def test_all_fields_arrive(stream: Stream, topic: TopicView) -> None:
    keyed = [
        Record("N12345", b"\x00\xff", 3, 1_700_000_000_123, {"from": "JFK", "to": "LAX"}),
        Record("ключ", b"", 7),
    ]
    keyless = [Record(None, b"x" * 100_000)]
    batches = [
        encode_batch(keyed, published_at_ms=1_700_000_001_000, codec=Codec.ZSTD, bucket_starts=[32768]),
        encode_batch(keyless, published_at_ms=1_700_000_002_000),
    ]
    segment_port().append(SegmentKey(topic.incarnation, 0), batches, producer="p")
    rows = [row for batch in stream.run() for row in batch]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert [row["key"] for row in rows] == ["N12345", "ключ", None]
    assert [bytes(row["value"]) for row in rows] == [b"\x00\xff", b"", b"x" * 100_000]
    assert [row["sequence"] for row in rows] == [3, 7, -1]
    assert [row["properties"] for row in rows] == [{"from": "JFK", "to": "LAX"}, {}, {}]
    assert [row["event_time"] and row["event_time"].timestamp() for row in rows] == [
        1_700_000_000.123,
        None,
        None,
    ]
    assert rows[2]["published_at"].timestamp() == 1_700_000_002


def test_a_restarted_query_goes_on_where_its_checkpoint_stands(stream: Stream, topic: TopicView) -> None:
    append(topic, "a", "b")
    assert stream.values() == ["a", "b"]
    append(topic, "c")
    assert stream.values() == ["c"]
    assert stream.values() == []


def test_a_trigger_is_bounded_and_cuts_batches_where_it_must(stream: Stream, topic: TopicView) -> None:
    append(topic, "a", "b", "c")
    append(topic, "d", "e")
    batches = stream.run(maxMessagesPerSegment=2, maxBytesPerRequest=1)
    assert [[row["offset"] for row in batch] for batch in batches] == [[0, 1], [2, 3], [4]]


def test_children_are_read_after_their_parents_end(stream: Stream, topic: TopicView) -> None:
    append(topic, "before 0", "before 1", "before 2")
    assert stream.values(maxMessagesPerSegment=1) == ["before 0", "before 1", "before 2"]
    append(topic, "last 0", "last 1", "last 2")
    drive(request(OperationKind.SPLIT, topic))
    low, high = (segment.segment_id for segment in layout_of(topic).active)
    append(topic, "low", segment_id=low)
    append(topic, "high", segment_id=high)
    batches = [{row["segment_id"] for row in batch} for batch in stream.run(maxMessagesPerSegment=2)]
    assert batches == [{0}, {0}, {low, high}]
    assert stream.values() == []


def test_what_was_trimmed_or_pruned_is_skipped_and_its_children_are_read(
    stream: Stream, topic: TopicView
) -> None:
    append(topic, "read 0")
    assert stream.values() == ["read 0"]
    for number in range(3):
        append(topic, f"old {number}")
    before = make_reader(stream.options).initialOffset()
    reader = make_reader(stream.options)
    planned = reader.partitions(before, reader.latestOffset(before, ReadAllAvailable()))
    segment_port().trim(SegmentKey(topic.incarnation, 0), before_offset=2, max_batches=9)
    assert [batch.num_rows for part in planned for batch in reader.read(part)] == [2]
    drive(request(OperationKind.SPLIT, topic))
    low, _ = (segment.segment_id for segment in layout_of(topic).active)
    append(topic, "child", segment_id=low)
    assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    assert [batch for part in planned for batch in reader.read(part)] == []
    assert stream.values() == ["child"]


def test_where_a_stream_starts(live_node: LiveNode, stream: Stream, topic: TopicView) -> None:
    append(topic, "old 0", "old 1")
    given = {"incarnation": topic.incarnation, "positions": {"0": 1}}
    assert make_reader(stream.options).initialOffset() == {**given, "positions": {}}
    assert make_reader(stream.options, starting="earliest").initialOffset() == {**given, "positions": {}}
    latest = make_reader(stream.options, starting="latest").initialOffset()
    assert json.loads(json.dumps(latest)) == {**given, "positions": {"0": 2}}
    assert stream.values(starting=json.dumps(given)) == ["old 1"]


def test_a_checkpoint_means_the_same_to_a_stream_as_to_a_batch(
    session: SparkSession, stream: Stream, topic: TopicView
) -> None:
    """A parent that it does not name was read to its end if it names a child, and is not read again."""
    append(topic, "parent 0", "parent 1")
    drive(request(OperationKind.SPLIT, topic))
    low, high = (segment.segment_id for segment in layout_of(topic).active)
    append(topic, "low 0", "low 1", segment_id=low)
    append(topic, "high 0", "high 1", segment_id=high)
    for positions in ({low: 1, high: 0}, {low: 2}, {0: 1}, {0: 2, high: 1}, {}):
        named = {str(segment_id): offset for segment_id, offset in positions.items()}
        starting = json.dumps({"incarnation": topic.incarnation, "positions": named})
        batch = session.read.format("scalable-topic").options(**stream.options, starting=starting).load()
        expected = sorted(bytes(row["value"]).decode() for row in batch.collect())
        assert sorted(stream.anew().values(starting=starting)) == expected, positions


@pytest.mark.parametrize(
    ("incarnation", "positions", "error"),
    [(0, {"0": 3}, InvalidParameter), (1, {"0": 1}, TopicChanged)],
    ids=["behind the end", "of another topic"],
)
def test_a_checkpoint_that_the_topic_never_had_is_refused_by_both_readers(
    stream: Stream, topic: TopicView, incarnation: int, positions: dict[str, int], error: type[Exception]
) -> None:
    append(topic, "a", "b")
    starting = json.dumps({"incarnation": topic.incarnation + incarnation, "positions": positions})
    with pytest.raises(error):
        make_reader(stream.options, starting=starting).initialOffset()
    texts = {name: str(value) for name, value in stream.options.items()}
    with pytest.raises(error):
        ScalableTopicSource({**texts, "starting": starting}).reader(StructType()).partitions()


def test_what_was_planned_is_not_read_from_another_topic_of_the_name(
    session: SparkSession, stream: Stream, topic: TopicView, tmp_path: Path
) -> None:
    """After a crash Spark repeats what it planned, and asks for no newer offset in between."""
    append(topic, "a", "b")
    assert stream.values() == ["a", "b"]
    texts = {name: str(value) for name, value in stream.options.items()}
    batch = ScalableTopicSource(texts).reader(StructType())
    planned = batch.partitions()
    assert [found.num_rows for part in planned for found in batch.read(part)] == [2]
    topics.delete_topic(name=topic.name, actor=ACTOR)
    append(make_topic("flights", segments=1), "other a", "other b", "other c")
    with pytest.raises(TopicChanged):
        [list(batch.read(part)) for part in planned]
    stream.forget_last_batch()
    with pytest.raises(StreamingQueryException, match="deleted and made again"):
        stream.run()
    assert stream.rows == []


def test_a_topic_made_again_is_not_taken_for_the_one_before(stream: Stream, topic: TopicView) -> None:
    append(topic, "a")
    assert stream.values() == ["a"]
    topics.delete_topic(name=topic.name, actor=ACTOR)
    append(make_topic("flights", segments=1), "b", "c")
    with pytest.raises(StreamingQueryException, match="deleted and made again"):
        stream.run()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("url", "", "needs the options"),
        ("topic", "", "needs the options"),
        ("token", "", "needs the options"),
        ("starting", "yesterday", "earliest, latest or a checkpoint"),
        ("starting", "{", "not a checkpoint"),
        ("starting", '{"positions": {}}', "checkpoint cannot be"),
        ("starting", '{"incarnation": 1, "positions": {"a": 0}}', "checkpoint cannot be"),
        ("starting", '{"incarnation": 1, "positions": {"0": -1}}', "checkpoint cannot be"),
        ("maxMessagesPerSegment", 0, "at least 1"),
        ("maxBytesPerRequest", "many", "whole number"),
        ("topic", "flights", "flights"),
    ],
)
def test_an_option_that_cannot_be_read_is_named(option: str, value: object, message: str) -> None:
    options = {"url": "http://127.0.0.1:1", "topic": "topic://public/default/flights", "token": "t"}
    with pytest.raises((ValueError, ScalableError), match=message):
        make_reader({**options, option: str(value)})


def test_the_node_client_says_what_is_wrong(live_node: LiveNode, topic: TopicView) -> None:
    client = NodeClient(live_node.url, live_node.admin_token)
    missing = TopicName("public", "default", "missing topic, 100 %?")
    with pytest.raises(NodeRefused, match="topic_not_found"):
        client.extents(missing)
    with pytest.raises(NodeRefused, match="segment_not_found"):
        client.batches(topic.name, 99, incarnation=topic.incarnation, offset=0, max_bytes=1000)
    system = NodeClient(live_node.url, live_node.system_token)
    with pytest.raises(NodeRefused, match="forbidden"):
        system.batches(topic.name, 0, incarnation=topic.incarnation, offset=0, max_bytes=1000)
    with pytest.raises(NodeRefused, match="400"):
        system.post("/admin/v2/scalable-load/reports", {"reporter": "r", "watermarkMs": -1, "loads": []})
    with pytest.raises(NodeRefused, match="401"):
        NodeClient(live_node.url, "forged").extents(topic.name)
    with pytest.raises(NodeUnavailable):
        NodeClient("http://127.0.0.1:1", "", patience_seconds=0.2).extents(topic.name)
