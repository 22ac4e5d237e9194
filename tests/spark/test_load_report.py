"""The load report end to end: samples in a real topic, a real Spark, reports to a real node."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from launch.services import web_spec
from scalable.domain.decision import GuardCode
from scalable.domain.load import SegmentRates, is_material
from scalable.services import autoscaling
from scalable.services.topics import TopicView
from tests.processes import LiveNode, ProcessFactory
from tests.spark.cluster import Cluster
from tests.spark.oracle import Message, Oracle, expected_watermark, make_messages, with_repeats
from tests.spark.recorded import minute, record
from tests.spark.reporter import Reporter, kill
from tests.spark.waiting import WAIT_SECONDS, wait_for
from tests.topology import make_topic

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

SEGMENTS = 4


@pytest.fixture
def reporter(
    live_node: LiveNode, processes: ProcessFactory, java: dict[str, str], tmp_path: Path
) -> Reporter:
    """The load report on a topic of samples of this test."""
    return Reporter(live_node, processes, java, tmp_path)


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """A topic to report loads of."""
    return make_topic("flights", segments=SEGMENTS)


def recent_messages(topic: TopicView, *, seed: int, seconds: int = 100) -> list[Message]:
    """Messages of samples that end about now, and touch at least one whole minute's end."""
    start_ms = (time.time_ns() // 1_000_000 - seconds * 1000) // 1000 * 1000
    refs = [(str(topic.name), topic.incarnation, segment_id) for segment_id in range(SEGMENTS)]
    return make_messages(Random(seed), refs=refs, start_ms=start_ms, seconds=seconds)


def oracle_rates(topic: TopicView, messages: list[Message]) -> dict[int, SegmentRates]:
    told_ms = expected_watermark(messages) // 1000 * 1000
    return {
        segment_id: Oracle(messages, (topic.incarnation, segment_id)).rates(told_ms)
        for segment_id in range(SEGMENTS)
    }


def check(reporter: Reporter, topic: TopicView, messages: list[Message]) -> None:
    """Tiles are exact; loads are what was last written, so within the material change of the truth."""
    reporter.check_tiles(topic, messages, expected_watermark(messages))
    found, expected = reporter.rates(topic), oracle_rates(topic, messages)
    assert found.keys() == expected.keys()
    for segment_id, rates in expected.items():
        assert not is_material(found[segment_id], rates)


def check_history(reporter: Reporter, topic: TopicView) -> None:
    """Each minute that ended is there once, with what the node tells of the topic."""
    rows = reporter.history()
    assert {row["segment_id"] for row in rows} == set(range(SEGMENTS))
    assert len({(row["segment_id"], row["minute_ms"]) for row in rows}) == len(rows)
    for row in rows:
        hash_range = topic.layout.segments[row["segment_id"]].hash_range
        assert (row["hash_start"], row["hash_end"]) == (hash_range.start, hash_range.end)
        assert (row["incarnation"], row["active_segments"]) == (topic.incarnation, SEGMENTS)


def test_loads_and_tiles_are_the_oracles(session: SparkSession, reporter: Reporter, topic: TopicView) -> None:
    messages = recent_messages(topic, seed=1)
    published = with_repeats(Random(2), messages)
    query = reporter.start_in(session)
    try:
        middle = len(published) // 2
        reporter.publish(published[:middle])
        reporter.publish_raw([b"", b"no json", b'{"node": "n", "sequence": "x"}', b"[]", b"\xff\xfe"])
        query.processAllAvailable()
        reporter.publish(published[middle:])
        query.processAllAvailable()
        assert reporter.status()["watermarkMs"] == expected_watermark(messages)
        check(reporter, topic, messages)
        check_history(reporter, topic)
    finally:
        query.stop()


def unknown_load(topic: TopicView, *, window_seconds: float) -> str | None:
    """What the autoscaler says of loads that it does not know; None when it knows them."""
    decision, _ = autoscaling.preview_decision(
        name=topic.name, override={"rateWindowSeconds": window_seconds}
    )
    return next((guard.detail for guard in decision.held_by if guard.code is GuardCode.LOAD_UNKNOWN), None)


def test_while_spark_is_down_samples_wait_and_the_autoscaler_says_since_when(
    session: SparkSession, reporter: Reporter, topic: TopicView
) -> None:
    messages = recent_messages(topic, seed=3)
    before, meanwhile = messages[:150], messages[150:]
    assert unknown_load(topic, window_seconds=10) == "no load pipeline has reported yet"
    run_until_done(session, reporter, before)
    stopped_at_ms = expected_watermark(before)
    reporter.publish(meanwhile)
    since = datetime.fromtimestamp(stopped_at_ms / 1000 + 3 * 10, UTC)
    assert unknown_load(topic, window_seconds=10) == f"since {since.isoformat(timespec='seconds')}"
    assert reporter.watermark_ms(topic) == stopped_at_ms
    run_until_done(session, reporter, [])
    assert reporter.watermark_ms(topic) == expected_watermark(messages)
    assert unknown_load(topic, window_seconds=3_600) is None
    check(reporter, topic, messages)


def test_files_of_its_own_that_cannot_be_written_hold_nothing_up(
    session: SparkSession, reporter: Reporter, topic: TopicView
) -> None:
    (reporter.directory / "status.partial").mkdir(parents=True)
    (reporter.directory / "history").touch()
    messages = recent_messages(topic, seed=4)
    run_until_done(session, reporter, messages)
    assert reporter.status()["watermarkMs"] is None
    check(reporter, topic, messages)


def run_until_done(session: SparkSession, reporter: Reporter, messages: list[Message]) -> None:
    """Let Spark run until it has read everything."""
    reporter.publish(messages)
    query = reporter.start_in(session)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_killed_job_resumes_and_counts_nothing_twice(
    reporter: Reporter, topic: TopicView, processes: ProcessFactory, service_environment: dict[str, str]
) -> None:
    messages = recent_messages(topic, seed=4)
    published = with_repeats(Random(5), messages)
    middle = len(published) // 2
    reporter.publish(published[:middle])
    job = reporter.start(max_messages=5)
    wait_for(lambda: reporter.status()["batchId"] >= 5, "some micro-batches")
    kill(job)
    killed_at = reporter.status()["batchId"]
    job = reporter.start(max_messages=20)
    wait_for(lambda: reporter.status()["batchId"] > killed_at + 1, "the job to go on")
    node = reporter.node.process
    node.stop()
    reporter.publish(published[middle:])
    time.sleep(1)  # the job meets a node that is away
    port = urlsplit(reporter.node.url).port
    assert port is not None
    node = processes.run(web_spec(port=port, environment=service_environment))
    reporter.wait_for_watermark(expected_watermark(messages))
    check(reporter, topic, messages)
    second = reporter.start()
    assert second.wait(WAIT_SECONDS) == 1
    node.stop()
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 0  # it does not wait for the node


def test_a_job_that_is_refused_ends_with_an_error(reporter: Reporter, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.write_text("forged")
    assert reporter.start(token_file=forged).wait(WAIT_SECONDS) == 1


@pytest.mark.slow
def test_the_same_job_runs_on_a_cluster(reporter: Reporter, topic: TopicView, cluster: Cluster) -> None:
    messages = recent_messages(topic, seed=6)
    reporter.publish(messages[:150])
    job = reporter.start(master=cluster.master, max_messages=40, conf="spark.cores.max=2")
    wait_for(lambda: reporter.status()["batchId"] >= 1, "some micro-batches")
    assert cores_used(cluster) == 2
    reporter.publish(messages[150:])
    reporter.wait_for_watermark(expected_watermark(messages))
    check(reporter, topic, messages)
    job.send_signal(signal.SIGTERM)
    assert job.wait(WAIT_SECONDS) == 0


@pytest.mark.slow
def test_it_leaves_a_clusters_cores_to_batch_jobs(
    reporter: Reporter, topic: TopicView, cluster: Cluster, java: dict[str, str], tmp_path: Path
) -> None:
    reporter.publish(recent_messages(topic, seed=7))
    job = reporter.start(master=cluster.master)
    wait_for(lambda: reporter.status()["batchId"] >= 0, "a micro-batch")
    assert cores_used(cluster) == 1
    minutes = [minute("public/default/a", 0, number, 60.0) for number in range(2)]
    history = record(tmp_path / "minutes", minutes[:1], minutes[1:])
    compaction = subprocess.run(
        (
            sys.executable,
            "-m",
            "spark.compact",
            "--history",
            str(history),
            "--directory",
            str(tmp_path / "jobs"),
        ),
        env={**os.environ, **java, "SPARK_MASTER": cluster.master},
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert compaction.returncode == 0
    assert job.returncode is None
    job.send_signal(signal.SIGTERM)
    assert job.wait(WAIT_SECONDS) == 0


def cores_used(cluster: Cluster) -> int:
    return sum(worker["coresused"] for worker in cluster.status()["workers"])
