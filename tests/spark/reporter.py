"""Drives the load report in tests: publishes samples, starts and kills the job, reads what it reported."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from launch.process import ManagedProcess, ProcessSpec
from scalable.domain.access import SYSTEM_TENANT
from scalable.domain.load import METRICS, SegmentRates
from scalable.domain.names import TopicName
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import topics
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, encode_batch
from spark.load_report import ReportOptions, start_query
from tests.processes import LiveNode, ProcessFactory
from tests.spark.oracle import MINUTE_MS, Message, Oracle, encoded
from tests.spark.waiting import WAIT_SECONDS, wait_for


def append_values(topic: TopicView, segment_id: int, values: Sequence[bytes]) -> None:
    """Append the values to a segment as one batch."""
    batch = encode_batch([Record(None, value) for value in values], published_at_ms=1_000)
    segment_port().append(SegmentKey(topic.incarnation, segment_id), [batch], producer=None)


class Reporter:
    """The load report of one test, on a topic of samples of its own: the node's samples do not mix in."""

    def __init__(
        self, node: LiveNode, processes: ProcessFactory, java: Mapping[str, str], directory: Path
    ) -> None:
        self.node = node
        self.directory = directory / "load-report"
        self._processes = processes
        self._java = java
        # In the system's own tenant, as the nodes' samples are: the system role reads nobody else's messages.
        name = TopicName(SYSTEM_TENANT, "load", "samples-of-a-test")
        self._samples: TopicView = topics.create_topic(name=name, actor="test")
        self._token_file = directory / "system-token"
        self._token_file.write_text(node.system_token)

    def publish(self, messages: Sequence[Message], *, batch: int = 7) -> None:
        """Publish messages of samples, some to a record batch."""
        for start in range(0, len(messages), batch):
            append_values(self._samples, 0, encoded(messages[start : start + batch]))

    def publish_raw(self, values: Sequence[bytes]) -> None:
        """Publish what may be no message of samples."""
        append_values(self._samples, 0, values)

    def start(self, *, master: str = "local[2]", **options: object) -> ManagedProcess:
        """Start the job as a process; keywords are options of its command line."""
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        return self._processes.run(
            ProcessSpec(
                name="spark",
                argv=(
                    *(sys.executable, "-m", "spark.load_report", "--url", self.node.url),
                    *("--token-file", str(self._token_file), "--directory", str(self.directory)),
                    *("--topic", str(self._samples.name), "--trigger-ms", "100", *arguments),
                ),
                environment={**self._java, "SPARK_MASTER": master},
                withheld=("DATABASE_URL", "REDIS_URL", "SCALABLE_SECRET_KEY", "SCALABLE_TOKEN_SECRET"),
                stop_timeout_seconds=30,
            )
        )

    def start_in(self, session: SparkSession) -> StreamingQuery:
        """Start the job's query in a session of this process."""
        self.directory.mkdir(exist_ok=True)
        options = ReportOptions(
            url=self.node.url,
            token_file=self._token_file,
            directory=self.directory,
            checkpoint=str(self.directory / "checkpoint"),
            master="",
            topic=str(self._samples.name),
            trigger_ms=100,
            history=str(self.directory / "history"),
            configuration={},
        )
        return start_query(session, options)

    def status(self) -> dict[str, Any]:
        """What the job last wrote into its status file."""
        path = self.directory / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"batchId": -1, "watermarkMs": None}

    def wait_for_watermark(self, watermark_ms: int) -> None:
        wait_for(lambda: self.status()["watermarkMs"] == watermark_ms, f"the watermark {watermark_ms}")

    def rates(self, topic: TopicView) -> dict[int, SegmentRates]:
        """The loads as the node tells them."""
        segments = self._get(topic, "loads")["segments"]
        return {
            int(segment_id): SegmentRates(*(load[metric] for metric in METRICS))
            for segment_id, load in segments.items()
        }

    def check_tiles(self, topic: TopicView, messages: Sequence[Message], watermark_ms: int) -> None:
        """Compare every tile with the oracle: a message that was lost or counted twice shows in one."""
        start_ms = min(message["atMs"] for message in messages) // MINUTE_MS * MINUTE_MS - MINUTE_MS
        found = {
            (tile["segmentId"], tile["minuteMs"]): tile
            for tile in self._get(topic, f"tiles?fromMs={start_ms}&toMs={watermark_ms}")["tiles"]
        }
        ended = 0
        for segment_id in range(len(topic.layout.segments)):
            oracle = Oracle(messages, (topic.incarnation, segment_id))
            for minute_ms in range(start_ms, watermark_ms - MINUTE_MS + 1, MINUTE_MS):
                expected = oracle.tile(minute_ms, watermark_ms)
                tile = found.get((segment_id, minute_ms))
                assert (tile is None) == (expected is None)
                if tile is not None and expected is not None:
                    ended += 1
                    np.testing.assert_allclose(tile["mean"], expected[0])
                    np.testing.assert_allclose(tile["max"], expected[1])
        assert ended

    def history(self) -> list[dict[str, Any]]:
        """Read the rows of the history."""
        rows: list[dict[str, Any]] = ds.dataset(self.directory / "history").to_table().to_pylist()
        return rows

    def watermark_ms(self, topic: TopicView) -> int | None:
        """Give how far the pipeline has come, as the node tells it."""
        known: int | None = self._get(topic, "loads")["watermarkMs"]
        return known

    def _get(self, topic: TopicView, what: str) -> Any:
        path = f"{topic.name.tenant}/{topic.name.namespace}/{topic.name.name}/{what}"
        answer = httpx.get(f"{self.node.url}/admin/v2/scalable/{path}", headers=self.node.headers)
        return answer.raise_for_status().json()


def kill(process: ManagedProcess) -> None:
    """End the job's driver at once, as a crash would; Spark's JVM follows by itself."""
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(WAIT_SECONDS) is not None
