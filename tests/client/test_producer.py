"""The producer against a real node and worker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime
from itertools import cycle
from typing import Any

import pytest
from django.db import connections
from pytest_django import Settings

from launch.process import ManagedProcess
from launch.sandbox import ProcessFactory
from scalable.client import Admin, BatchLimits, MessageId, Producer
from scalable.client.connection import ConnectionLost
from scalable.domain.errors import (
    BatchInvalid,
    MessageTooLarge,
    StreamBroken,
    TopicDeleted,
    TopicNotFound,
    Unauthenticated,
)
from scalable.domain.operations import OperationKind
from scalable.services import scaling
from scalable.services.topics import TopicView
from tests.client.proxy import Relay
from tests.client.reading import stored_records, values_by_key
from tests.processes import LiveNode
from tests.topology import ACTOR, drive, make_topic, request

MIB = 1024 * 1024


def active_ids(admin: Admin, topic: str) -> list[int]:
    segments = admin.get_topic(topic)["segments"].values()
    active = [segment for segment in segments if segment["state"] == "ACTIVE"]
    return [each["segmentId"] for each in sorted(active, key=lambda each: each["hashRange"]["start"])]


async def test_a_message_is_durable_when_send_returns(live_node: LiveNode, admin: Admin, topic: str) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        first = await producer.send("a", b"one", properties={"unit": "kg"}, event_time_ms=5)
        second = await producer.send(None, b"two")
        records = await asyncio.to_thread(stored_records, admin, topic)
    assert (first, second) == (MessageId(0, 0, 0), MessageId(0, 1, 0))
    assert [(record.key, record.value) for record in records] == [("a", b"one"), (None, b"two")]
    assert (records[0].properties, records[0].event_time_ms) == ({"unit": "kg"}, 5)


async def test_what_cannot_be_sent_is_refused_by_name(live_node: LiveNode, admin: Admin, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        await Producer(live_node.url, "topic://public/default/none", live_node.admin_token).start()
    with pytest.raises(Unauthenticated):
        await Producer(live_node.url, topic, "no-token").start()
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        with pytest.raises(MessageTooLarge):
            await producer.send("a", b"x" * (5 * MIB + 1))
        await producer.send("a", b"x" * (5 * MIB))


UNWRITABLE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a value that is text": ("k", "text", {}),
    "no value": ("k", None, {}),
    "a key that is no text": (b"k", b"v", {}),
    "a key without a form in UTF-8": ("\ud800", b"v", {}),
    "a key that is too long": ("k" * 65_536, b"v", {}),
    "a property without a form in UTF-8": ("k", b"v", {"properties": {"a": "\ud800"}}),
    "a property that is no text": ("k", b"v", {"properties": {"a": 1}}),
    "a property that is too long": ("k", b"v", {"properties": {"a": "x" * 65_536}}),
    "a property's name that is too long": ("k", b"v", {"properties": {"x" * 65_536: "a"}}),
    "a property that is nothing": ("k", b"v", {"properties": {"a": None}}),
    "properties that are no mapping": ("k", b"v", {"properties": ["a"]}),
    "properties that are nothing, and no mapping": ("k", b"v", {"properties": ""}),
    "half a millisecond": ("k", b"v", {"event_time_ms": 1.5}),
    "a time that is nothing": ("k", b"v", {"event_time_ms": None}),
    "a time of no whole number": ("k", b"v", {"event_time_ms": 0.0}),
    "a time that is too late": ("k", b"v", {"event_time_ms": 2**63}),
    "a time that is too early": ("k", b"v", {"event_time_ms": -(2**63) - 1}),
    "a property that is too long under a long name": (
        "k",
        b"v",
        {"properties": {"n" * 65_535: "x" * 65_536}},
    ),
    "half a sequence": ("k", b"v", {"sequence": 1.5}),
    "a time without its zone": ("k", b"v", {"deliver_at": datetime(2030, 1, 1)}),
}


async def test_what_cannot_be_written_is_refused_alone_and_harms_no_other(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        for what, (key, value, options) in UNWRITABLE.items():
            neighbour = await producer.submit("k", what.encode())
            with pytest.raises(BatchInvalid) as refused:
                await producer.send(key, value, **options)
            assert "format requires" not in str(refused.value), "the words of a library"
            assert len(str(refused.value)) < 1_000, "an error is read by people"
            await neighbour
        octets: Any = memoryview(b"octets of any kind")
        await producer.send("k", octets)
        for extreme in (-(2**63), 2**63 - 1):
            await producer.send("k", b"a time", event_time_ms=extreme)
    stored = await asyncio.to_thread(stored_records, admin, topic)
    values = [each.value.decode() for each in stored]
    assert values == [*UNWRITABLE, "octets of any kind", "a time", "a time"]
    assert [each.event_time_ms for each in stored[-2:]] == [-(2**63), 2**63 - 1]


async def test_texts_of_every_length_that_is_possible_arrive(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    longest = "x" * 65_535
    many = {str(number): "" for number in range(70_000)}
    told: list[tuple[str, dict[str, str]]] = [
        (longest, {longest: longest}),
        ("", {"": ""}),
        ("\u00e9" * 32_767, many),
    ]
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        for key, properties in told:
            await producer.send(key, b"v", properties=properties)
    records = await asyncio.to_thread(stored_records, admin, topic)
    assert [(record.key, record.properties) for record in records] == told


async def test_what_an_application_does_with_its_properties_later_changes_no_message(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    properties: dict[str, Any] = {"place": "0"}
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        sent = []
        for number in range(3):
            properties["place"] = str(number)
            sent.append(await producer.submit("k", b"v", properties=properties))
        properties["place"] = None
        await asyncio.gather(*sent)
    records = await asyncio.to_thread(stored_records, admin, topic)
    assert [record.properties for record in records] == [{"place": str(number)} for number in range(3)]


async def test_a_deleted_topic_ends_its_producer(live_node: LiveNode, admin: Admin, topic: str) -> None:
    producer = Producer(live_node.url, topic, live_node.admin_token)
    await producer.start()
    await producer.send("a", b"while it is there")
    await asyncio.to_thread(admin.delete_topic, topic, force=True)
    with pytest.raises(TopicDeleted):
        await _send_for(producer, seconds=10)
    with pytest.raises(TopicDeleted):
        await producer.close()


async def _send_for(producer: Producer, *, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            await producer.send("a", b"into the void")


async def test_one_key_every_five_ms_through_ten_generations(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scalable.client")
    async with Relay(live_node.url) as relay, asyncio.TaskGroup() as group:
        async with Producer(relay.url, topic, live_node.admin_token) as producer:
            done = asyncio.Event()
            sending = group.create_task(_send_until(producer, done))
            for turn in range(10):
                await asyncio.to_thread(_reshape, admin, topic, turn)
            done.set()
            sent = await sending
            connections = relay.connections
        stored = values_by_key(await asyncio.to_thread(stored_records, admin, topic))
    assert stored == {key: values for key, values in sent.items() if values}
    assert len(sent["the one key"]) > 50
    assert connections == 2, "the watch and the producer each kept their one connection"
    own = [record for record in caplog.records if record.name == "scalable.client"]
    assert len(own) <= 10, "not a line per message"


def _reshape(admin: Admin, topic: str, turn: int) -> None:
    active = active_ids(admin, topic)
    if turn % 3 == 2:
        admin.merge(topic, active[:2])
    else:
        admin.split(topic, active[-1] if turn % 2 else active[0])


async def test_a_split_that_the_watch_does_not_tell_is_told_by_the_refusal(
    processes: ProcessFactory, settings: Settings
) -> None:
    settings.SCALABLE_HINTS_ENABLED = False
    node = processes.node(SCALABLE_WATCH_RESYNC_SECONDS="600")
    topic = await asyncio.to_thread(make_topic, segments=1)
    async with Producer(node.url, topic.name, node.admin_token) as producer:
        await producer.send("a", b"before")
        for kind, children in ((OperationKind.SPLIT, {1, 2}), (OperationKind.MERGE, {3})):
            await asyncio.to_thread(_reshape_unheard, topic, kind)
            async with asyncio.timeout(60):
                assert (await producer.send("a", b"after")).segment_id in children
        assert producer.topology is not None
        assert (producer.topology.epoch, [each.segmentId for each in producer.topology.active]) == (2, [3])


def _reshape_unheard(topic: TopicView, kind: OperationKind) -> None:
    try:
        if kind is OperationKind.SPLIT:
            drive(request(kind, topic))
        else:
            drive(scaling.request_merge(name=topic.name, segment_ids=[1, 2], actor=ACTOR))
    finally:
        connections.close_all()


async def _send_until(producer: Producer, done: asyncio.Event) -> dict[str | None, list[bytes]]:
    """Send one key and, beside it, a few others; each `send` must succeed by itself."""
    sent: dict[str | None, list[bytes]] = {"the one key": []}
    others = cycle([f"other-{number}" for number in range(50)])
    async with asyncio.TaskGroup() as group:
        for number in range(100_000):
            value = str(number).encode()
            for key in ("the one key", next(others)):
                sent.setdefault(key, []).append(value)
                delivered = await producer.submit(key, value)
                group.create_task(_await(delivered))
            await asyncio.sleep(0.005)
            if done.is_set():
                break
    return sent


async def _await(delivered: asyncio.Future[MessageId]) -> None:
    await delivered


async def test_cut_connections_neither_lose_nor_double_nor_reorder(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    sent: dict[str | None, list[bytes]] = {}
    async with (
        Relay(live_node.url) as relay,
        Producer(relay.url, topic, live_node.admin_token, limits=BatchLimits(max_records=20)) as producer,
    ):
        for number in range(6_000):
            key = f"key-{number % 40}" if number % 10 else None
            sent.setdefault(key, []).append(str(number).encode())
            await producer.submit(key, str(number).encode())
            if number % 500 == 250:
                relay.hold()  # the node stores what it gets, and its answers are lost
            if number % 500 == 350:
                await asyncio.sleep(0.05)
                relay.cut()
                relay.let_go()
            if number % 1_500 == 700:
                await asyncio.to_thread(_reshape, admin, topic, number // 1_500)
    stored = values_by_key(await asyncio.to_thread(stored_records, admin, topic))
    assert sorted(stored.pop(None)) == sorted(sent.pop(None))
    assert stored == sent


async def test_memory_stays_bounded_when_the_node_takes_nothing(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Relay(live_node.url) as relay:
        producer = Producer(
            relay.url, topic, live_node.admin_token, max_pending_bytes=MIB, max_pending_messages=500
        )
        async with producer:
            relay.hold()
            flood = [asyncio.create_task(producer.send("k", str(n).encode() * 100)) for n in range(5_000)]
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert producer.pending_messages <= 500
                assert producer.pending_bytes <= MIB
            assert not any(task.done() for task in flood), "senders wait: that is the back-pressure"
            relay.let_go()
            places = await asyncio.gather(*flood)
    assert [place.offset for place in places] == list(range(5_000)), "waiting senders are served in order"


async def test_keyless_messages_reach_every_active_segment(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await asyncio.to_thread(admin.split, topic, 0, boundaries=[0x4000, 0x8000, 0xC000])
    limits = BatchLimits(max_records=50)
    async with Producer(live_node.url, topic, live_node.admin_token, limits=limits) as producer:
        futures = [await producer.submit(None, b"x") for _ in range(2_000)]
        places = await asyncio.gather(*futures)
    per_segment = Counter(place.segment_id for place in places)
    assert set(per_segment) == set(active_ids(admin, topic))
    assert max(per_segment.values()) - min(per_segment.values()) <= 100


async def test_a_producer_that_comes_back_under_its_name_goes_on_above_its_last_sequence(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    for value in (b"first life", b"second life"):
        async with Producer(live_node.url, topic, live_node.admin_token, name="meter-7") as producer:
            await producer.send("k", value)
    first, second = await asyncio.to_thread(stored_records, admin, topic)
    assert (first.value, second.value) == (b"first life", b"second life")
    assert second.sequence > first.sequence + 64 * 65_535, "what the first had in flight cannot collide"


async def test_two_living_producers_of_one_name_are_noticed_before_a_message_is_lost(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    first, second = (Producer(live_node.url, topic, live_node.admin_token, name="twin") for _ in range(2))
    await first.start()
    await second.start()
    await first.send("k", b"stored")
    with pytest.raises(StreamBroken):
        await second.send("k", b"would be taken for the first one's")
    with pytest.raises(StreamBroken):
        await second.close()
    await first.close()


async def test_a_producer_that_was_replaced_meanwhile_does_not_take_its_successors_numbers_for_its_own(
    live_node: LiveNode, topic: str
) -> None:
    async with Relay(live_node.url) as relay:
        replaced = Producer(relay.url, topic, live_node.admin_token, name="twin")
        await replaced.start()
        await replaced.send("k", b"stored")
        relay.lose()
        taken = await replaced.submit("k", b"on its way")
        await relay.lost.wait()
        async with Producer(live_node.url, topic, live_node.admin_token, name="twin") as successor:
            await successor.send("k", b"stored, too")
        relay.cut()
        with pytest.raises(StreamBroken):
            await taken
        with pytest.raises(StreamBroken):
            await replaced.close()


async def test_a_producer_may_be_closed_twice_and_from_two_tasks(live_node: LiveNode, topic: str) -> None:
    async with Relay(live_node.url) as relay:
        async with Producer(relay.url, topic, live_node.admin_token) as producer:
            relay.hold()
            taken = await producer.submit("k", b"1")
            closing = [asyncio.create_task(producer.close()) for _ in range(2)]
            await asyncio.sleep(0)
            relay.let_go()
            await asyncio.gather(*closing)
            assert (await taken).offset == 0
        await producer.close()
    never_started = Producer(live_node.url, topic, live_node.admin_token)
    await never_started.close()
    await never_started.close()


async def test_a_close_that_is_cancelled_ends_the_others_with_what_they_could_not_deliver(
    live_node: LiveNode, topic: str
) -> None:
    async with Relay(live_node.url) as relay:
        producer = Producer(relay.url, topic, live_node.admin_token)
        await producer.start()
        relay.hold()
        taken = await producer.submit("k", b"1")
        closing = [asyncio.create_task(producer.close()) for _ in range(2)]
        await asyncio.sleep(0)
        closing[0].cancel()
        found = await asyncio.gather(*closing, taken, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError, ConnectionLost, ConnectionLost]
