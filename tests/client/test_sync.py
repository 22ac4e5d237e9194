"""The synchronous face: threads share a producer, futures resolve, errors arrive where the call was made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scalable.client import Admin, SyncProducer, SyncStreamConsumer
from scalable.domain.errors import MessageTooLarge, TopicNotFound
from tests.client.reading import stored_records
from tests.processes import LiveNode


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


def test_a_start_that_fails_leaves_no_thread_behind(live_node: LiveNode) -> None:
    with pytest.raises(TopicNotFound):
        SyncProducer(live_node.url, "topic://public/default/none", live_node.admin_token)
    assert "scalable-client" not in {thread.name for thread in threading.enumerate()}
