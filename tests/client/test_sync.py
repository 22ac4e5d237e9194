"""The synchronous faces: threads share a producer, futures resolve, errors arrive where the call was made."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scalable.client import (
    Admin,
    CheckpointConsumer,
    ConnectionLost,
    KeySharedConsumer,
    Producer,
    QueueConsumer,
    StreamConsumer,
    SyncCheckpointConsumer,
    SyncKeySharedConsumer,
    SyncProducer,
    SyncQueueConsumer,
    SyncStreamConsumer,
)
from scalable.domain.errors import CheckpointSuperseded, MessageTooLarge, TopicNotFound
from tests.client.reading import stored_records
from tests.processes import LiveNode

ASKED_BY_CONSUMERS_OF_MANY_TOPICS = {
    "acknowledge_owned",
    "failure",
    "owned_positions",
    "poll",
    "segment_count",
}
"""What such a consumer, which has a face of its own, asks of the consumer of each topic in its loop."""


def test_threads_share_a_producer_and_a_consumer_reads_it_all(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    with SyncProducer(live_node.url, topic, live_node.admin_token) as producer:
        with ThreadPoolExecutor(4) as pool:
            places = list(pool.map(lambda n: producer.send(f"k{n % 3}", str(n).encode()), range(40)))
        durable = [producer.submit("k", b"x") for _ in range(10)]
        producer.flush(timeout_seconds=10)
        assert len({future.result(timeout=0) for future in durable} | set(places)) == 50
        with pytest.raises(MessageTooLarge):
            producer.send("k", b"x" * (6 * 1024 * 1024))
    assert len(stored_records(admin, topic)) == 50
    with SyncStreamConsumer(live_node.url, topic, "s", live_node.admin_token) as consumer:
        for count, message in enumerate(consumer, 1):
            assert consumer.acknowledge(message)
            if count == 50:
                break
        consumer.flush()
        with pytest.raises(TimeoutError):
            consumer.receive(timeout_seconds=0.1)


def fill(node: LiveNode, topic: str, count: int) -> None:
    with SyncProducer(node.url, topic, node.admin_token) as producer:
        for number in range(count):
            producer.submit(f"k{number % 7}", str(number).encode())


def test_members_that_share_keys_read_a_segment_together(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    fill(live_node, topic, 60)
    place = (live_node.url, topic, "s", live_node.admin_token)
    with SyncKeySharedConsumer(*place, name="a") as consumer:
        assert (consumer.name, consumer.owned_segments, consumer.standby) == ("a", (0, 0, 0, 0), False)
        assert [bucket for _, bucket in consumer.owned_buckets] == [0, 1, 2, 3]
        got = [consumer.receive(timeout_seconds=60) for _ in range(60)]
        assert consumer.acknowledge_individually(got[0])
        assert all(consumer.acknowledge(message) for message in got)
        consumer.flush()
    assert {int(message.value) for message in got} == set(range(60))
    assert admin.subscription(topic, "s")["msgBacklog"] == 0


def test_a_group_goes_on_from_a_checkpoint(live_node: LiveNode, topic: str) -> None:
    fill(live_node, topic, 30)
    place = (live_node.url, topic, live_node.admin_token)
    with SyncCheckpointConsumer(*place, group="g") as consumer:
        for _ in range(10):
            consumer.receive(timeout_seconds=60)
        kept = consumer.checkpoint()
        assert consumer.commit(kept).positions == {0: 10}
        consumer.receive(timeout_seconds=60)
        assert consumer.restore(kept).positions == {0: 10}
        assert int(consumer.receive(timeout_seconds=60).value) == 10
        assert consumer.skipped == ()
        with pytest.raises(CheckpointSuperseded):
            consumer.commit(kept)


def test_a_block_that_fails_gives_its_place_up_as_a_crash_would(live_node: LiveNode, topic: str) -> None:
    fill(live_node, topic, 20)
    place = (live_node.url, topic, live_node.admin_token)
    with pytest.raises(MessageTooLarge), SyncCheckpointConsumer(*place, group="g") as consumer:
        _fail_after(10, consumer)
    with SyncCheckpointConsumer(*place, group="g") as consumer:
        assert int(consumer.receive(timeout_seconds=60).value) == 0


def _fail_after(count: int, consumer: SyncCheckpointConsumer) -> None:
    for _ in range(count):
        consumer.receive(timeout_seconds=60)
    raise MessageTooLarge(size_bytes=2, limit_bytes=1)


def test_what_is_closed_says_so_and_may_be_closed_again(live_node: LiveNode, topic: str) -> None:
    with SyncKeySharedConsumer(live_node.url, topic, "s", live_node.admin_token) as consumer:
        consumer.close()
    with pytest.raises(ConnectionLost):
        consumer.receive(timeout_seconds=60)


@pytest.mark.parametrize(
    ("face", "original"),
    [
        (SyncProducer, Producer),
        (SyncStreamConsumer, StreamConsumer),
        (SyncKeySharedConsumer, KeySharedConsumer),
        (SyncCheckpointConsumer, CheckpointConsumer),
        (SyncQueueConsumer, QueueConsumer),
    ],
)
def test_a_face_has_the_operations_of_its_type_and_no_others(face: type, original: type) -> None:
    assert operations(face) == operations(original) - {"start"} - ASKED_BY_CONSUMERS_OF_MANY_TOPICS
    assert hasattr(face, "skipped") == (original is CheckpointConsumer)


def operations(kind: type) -> set[str]:
    found = inspect.getmembers(kind, lambda each: inspect.isfunction(each) or isinstance(each, property))
    return {name for name, _ in found if not name.startswith("_")} - {"name", "skipped"}


def test_a_start_that_fails_leaves_no_thread_behind(live_node: LiveNode) -> None:
    with pytest.raises(TopicNotFound):
        SyncProducer(live_node.url, "topic://public/default/none", live_node.admin_token)
    assert "scalable-client" not in {thread.name for thread in threading.enumerate()}
