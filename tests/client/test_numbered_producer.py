"""Producers whose application gives the sequences, messages that are due later, and what is refused early."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, BatchLimits, Producer
from scalable.domain.errors import BatchInvalid, MessageTooLarge
from tests.client.proxy import Relay
from tests.client.reading import stored_records
from tests.processes import LiveNode

MIB = 1024 * 1024


async def test_what_is_sent_again_under_its_number_is_acknowledged_and_stored_once(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token, name="meter") as producer:
        assert producer.last_sequence == -1
        for number in range(0, 60, 3):
            key = f"key-{number}" if number % 2 else None
            assert not (await producer.send(key, b"%d" % number, sequence=number)).duplicate
    await asyncio.to_thread(admin.split, topic, 0)
    async with Producer(live_node.url, topic, live_node.admin_token, name="meter") as producer:
        assert producer.last_sequence == 57
        for number in range(30, 90, 3):
            key = f"key-{number}" if number % 2 else None
            place = await producer.send(key, b"%d" % number, sequence=number)
            assert place.duplicate == (number < 60)
    records = await asyncio.to_thread(stored_records, admin, topic)
    assert sorted(record.sequence for record in records) == list(range(0, 90, 3))
    assert all(record.value == b"%d" % record.sequence for record in records)


async def test_numbers_must_rise_and_belong_to_all_messages_or_none(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        await producer.send("k", b"", sequence=5)
        for wrong in (5, 4, -1, 2**63, None):
            with pytest.raises(BatchInvalid):
                await producer.send("k", b"", sequence=wrong)
        await producer.send("k", b"", sequence=2**63 - 1)
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        await producer.send("k", b"")
        with pytest.raises(BatchInvalid):
            await producer.send("k", b"", sequence=1)


async def test_a_number_whose_message_found_no_room_in_time_is_free_again(
    live_node: LiveNode, topic: str
) -> None:
    async with (
        Relay(live_node.url) as relay,
        Producer(relay.url, topic, live_node.admin_token, max_pending_messages=1) as producer,
    ):
        relay.hold()
        await producer.submit("k", b"first", sequence=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send("k", b"second", sequence=2), 0.1)
        relay.let_go()
        assert not (await producer.send("k", b"second", sequence=2)).duplicate
        with pytest.raises(BatchInvalid):
            await producer.send("k", b"third", sequence=2)


async def test_what_cannot_be_written_is_refused_alone_and_before_it_is_sent(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        naive = datetime(2100, 1, 1)
        both = {"deliver_at": datetime.now(UTC), "deliver_after": timedelta(1)}
        for options in (
            {"properties": {"n" * 70_000: ""}},
            {"event_time_ms": 2**63},
            {"deliver_at": naive},
            {"deliver_at": datetime(1960, 1, 1, tzinfo=UTC)},
            {"deliver_after": timedelta.max},
            both,
        ):
            with pytest.raises(BatchInvalid):
                await producer.send("k", b"", **options)
        with pytest.raises(BatchInvalid):
            await producer.send("k" * 70_000, b"")
        with pytest.raises(MessageTooLarge):
            await producer.send("k", bytes(5 * MIB - 10), properties={"note": "with them it is too large"})
        assert (await producer.send("k", b"good")).offset == 0


async def test_messages_that_are_due_later_say_so_and_keep_apart(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "jobs", kind="QUEUE")
    due = datetime(2100, 1, 1, tzinfo=UTC)
    async with Producer(live_node.url, topic, live_node.admin_token, compression="zstd") as producer:
        sent = [await producer.submit("k", b"later", deliver_at=due), await producer.submit("k", b"now")]
        sent.append(await producer.submit(None, b"soon", deliver_after=timedelta(hours=1)))
        await asyncio.gather(*sent)
    messages = await asyncio.to_thread(admin.peek, topic, "jobs")
    dues = [message["deliverAtMs"] for message in messages]
    assert dues[0] == due.timestamp() * 1000
    assert sorted(dues)[0] == 0
    assert len(set(dues)) == 3


async def test_a_split_under_five_hundred_messages_costs_few_look_ups_and_lines(
    live_node: LiveNode,
    admin: Admin,
    topic: str,
    reshaping: ManagedProcess,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "scalable.client")
    async with (
        Relay(live_node.url) as relay,
        Producer(relay.url, topic, live_node.admin_token, limits=BatchLimits(max_records=5)) as producer,
    ):
        relay.hold()
        sends = [asyncio.create_task(producer.send(f"key-{n}", b"%d" % n)) for n in range(500)]
        await asyncio.to_thread(admin.split, topic, 0)
        relay.let_go()
        await asyncio.gather(*sends)
        assert relay.connections == 2, "the watch told the layout: nobody had to ask"
    own = [record for record in caplog.records if record.name == "scalable.client"]
    assert len(own) <= 5
    records = await asyncio.to_thread(stored_records, admin, topic)
    assert sorted(int(record.value) for record in records) == list(range(500))


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"max_pending_bytes": 0},
        {"max_pending_messages": -1},
        {"max_records": 0},
        {"max_bytes": -1},
        {"linger_seconds": -0.001},
        {"linger_seconds": float("nan")},
        {"linger_seconds": float("inf")},
    ],
)
def test_options_out_of_bounds_are_refused_at_once(options: dict[str, Any]) -> None:
    of_batches = {field.name for field in fields(BatchLimits)}
    with pytest.raises(ValueError, match="is not"):
        BatchLimits(**options) if options.keys() <= of_batches else _make(**options)


def _make(**options: Any) -> Producer:
    return Producer("http://localhost", "topic://public/default/t", "token", **options)
