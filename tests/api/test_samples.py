"""Load samples of a real node, read back from the system topic."""

import json
import time
from typing import Any

import pytest

from launch.sandbox import LiveNode
from scalable.domain.keyspace import HashRange, key_hash, segment_hash
from scalable.domain.names import TopicName
from scalable.services import messages, topics
from scalable.services.sampling import SAMPLES_TOPIC
from scalable.wire.batch import decode_batch
from scalable.wire.frames import Publish, Receipt, Welcome, count_parts
from tests.api.peers import ask, batch, eventually, keys_in, socket

NAME = TopicName("public", "default", "orders")
PATH = "produce/public/default/orders"
LOW, HIGH = HashRange(0, 0x7FFF), HashRange(0x8000, 0xFFFF)


def now_ms() -> int:
    """The clock that nodes read."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def topic(live_node: LiveNode) -> topics.TopicView:
    """A topic of two segments that is sampled every 200 ms."""
    made = topics.create_topic(name=NAME, initial_segments=2, actor="test")
    topics.set_auto_scale_policy(
        name=NAME, override={"loadReportIntervalSeconds": 0.2, "rateWindowSeconds": 2}, actor="test"
    )
    return made


async def sample_messages() -> list[dict[str, Any]]:
    """All messages of the samples topic."""
    page = await ask(
        messages.read_by_name,
        name=SAMPLES_TOPIC,
        segment_id=0,
        offset=0,
        max_bytes=10_000_000,
        max_batches=10_000,
    )
    return [json.loads(record.value) for stored in page.batches for record in decode_batch(stored.payload)]


async def samples_of(incarnation: int, *, until: int) -> list[dict[str, Any]]:
    """The samples of a topic, once there are as many."""

    async def look() -> list[dict[str, Any]]:
        samples = [
            {"atMs": message["atMs"], **sample}
            for message in await sample_messages()
            for sample in message["samples"]
        ]
        found = [sample for sample in samples if sample["incarnation"] == incarnation]
        return found if len(found) >= until else []

    return await eventually(look)


async def test_counts_zeros_and_numbers(live_node: LiveNode, topic: topics.TopicView) -> None:
    await samples_of(topic.incarnation, until=2)  # one zero for each segment that is new to the node
    keys = keys_in(LOW, 40)
    hashes = [segment_hash(key_hash(key)) for key in keys]
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sent_ms = now_ms()
        await peer.send(Publish(1, 0, False, batch(keys), count_parts(LOW, hashes)))
        await peer.expect(Receipt)
        stored_ms = now_ms()
    first, second, busy, idle = await samples_of(topic.incarnation, until=4)
    assert {first["segmentId"], second["segmentId"]} == {0, 1}
    assert first["msgIn"] == second["msgIn"] == 0
    assert (busy["segmentId"], busy["msgIn"], busy["everyMs"], busy["windowMs"]) == (0, 40, 200, 2000)
    since_ms = busy["atMs"] - busy["intervalMs"]
    assert sent_ms <= since_ms <= stored_ms, "it covers the time since the first count"
    assert busy["parts"] == list(count_parts(LOW, hashes))
    looked_at = busy["hotKeys"]
    assert looked_at["seen"] == 40
    assert len(looked_at["counts"]) <= 8
    assert looked_at["counts"].keys() <= set(keys)
    assert "hotKeys" not in idle
    assert (idle["segmentId"], idle["msgIn"], sum(idle["parts"])) == (0, 0, 0)
    by_node: dict[str, list[dict[str, Any]]] = {}
    for message in await sample_messages():  # those of nodes of earlier tests may be there too
        by_node.setdefault(message["node"], []).append(message)
    for found in by_node.values():
        assert [message["sequence"] for message in found] == list(range(len(found)))
        assert all(message["complete"] for message in found)
