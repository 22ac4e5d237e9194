"""What was delivered too often, against a real node: stored elsewhere once, lost never."""

from __future__ import annotations

import asyncio

import pytest

from scalable.client import Admin, Producer, QueueConsumer
from scalable.client.batches import MessageId
from scalable.client.dead_letters import DeadLetters, default_topic
from scalable.client.queue_inbox import QueueMessage
from scalable.domain.errors import Forbidden, InvalidName
from scalable.domain.names import TopicName
from tests.client.proxy import Relay
from tests.client.test_consumer import fill
from tests.client.test_queue_consumer import PATIENT, WAIT_SECONDS, member, numbers, take, until
from tests.processes import LiveNode


async def test_a_message_that_nobody_can_process_becomes_a_dead_letter(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        poison = await producer.send("k", b"poison", properties={"colour": "red"}, event_time_ms=5)
        await producer.send("k", b"good")
    options = {"max_deliveries": 3, "negative_ack_backoff": (0.0, 0.1, 2.0)}
    tries = 0
    async with member(live_node, topic, "a", **options) as consumer:
        dead_letter_topic = str(consumer.dead_letter_topic)
        assert dead_letter_topic == f"{topic}-tasks-DLQ"
        while tries < 3:
            message = await consumer.receive(timeout_seconds=WAIT_SECONDS)
            if message.value == b"poison":
                tries += 1
                assert message.deliveries == tries
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
        async with QueueConsumer(
            live_node.url, await created(admin, dead_letter_topic), "undertaker", live_node.admin_token
        ) as undertaker:
            (letter,) = await take(undertaker, 1)
            undertaker.acknowledge(letter)
        assert (letter.key, letter.value, letter.event_time_ms) == ("k", b"poison", 5)
        assert letter.properties == {
            "colour": "red",
            "original-topic": topic,
            "original-subscription": "tasks",
            "original-message-id": f"{poison.segment_id}:{poison.offset}",
            "deliveries": "4",
        }
        await until(lambda: not consumer._inbox.waiting_count)
        await consumer.flush()
    async with member(live_node, topic, "late") as late:
        with pytest.raises(TimeoutError):
            await late.receive(timeout_seconds=0.5)


async def test_a_dead_letter_with_no_room_for_its_origin_goes_without_it(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        await producer.send("k", bytes(5 * 1024 * 1024 - 2), properties={"a": "b"})
    options = {"max_deliveries": 1, "prefetch_messages": 1}
    async with member(live_node, topic, "a", **options) as consumer:
        consumer.negative_acknowledge(*await take(consumer, 1))
        dead_letter_topic = await created(admin, str(consumer.dead_letter_topic))
        async with QueueConsumer(
            live_node.url, dead_letter_topic, "undertaker", live_node.admin_token
        ) as undertaker:
            (letter,) = await take(undertaker, 1)
        assert letter.properties == {"a": "b"}
        await until(lambda: not consumer._inbox.waiting_count)


async def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await fill(live_node, topic, 0, 1)
    async with Relay(live_node.url) as relay:
        for deliveries in (1, 2):
            consumer = QueueConsumer(relay.url, topic, "tasks", live_node.admin_token, **PATIENT)
            await consumer.start()
            (message,) = await take(consumer, 1)
            assert message.deliveries == deliveries
            relay.cut()
            await consumer._stop()
    async with member(live_node, topic, "a", max_deliveries=2) as consumer:
        dead_letter_topic = await created(admin, str(consumer.dead_letter_topic))
        async with QueueConsumer(
            live_node.url, dead_letter_topic, "undertaker", live_node.admin_token
        ) as undertaker:
            assert numbers(await take(undertaker, 1)) == [0]


async def test_skips_make_no_dead_letters_of_what_nobody_saw(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a", max_deliveries=1) as consumer:
        (first,) = await take(consumer, 1)
        consumer.acknowledge(first)
        await consumer.flush()
        await until(lambda: consumer._inbox.waiting_count == 9)
        for _ in range(2):
            admin.skip(topic, "tasks", 1)
        left: list[QueueMessage] = []
        while len(left) < 7:  # before them may come what the skips had not yet taken back
            (message,) = await take(consumer, 1)
            left += [message] if message.incarnation == first.incarnation + 2 else []
    assert numbers(left) == list(range(3, 10))
    assert {message.deliveries for message in left} == {1}


async def test_a_consumer_that_leaves_lets_its_dead_letters_arrive_so_that_none_is_stored_twice(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await fill(live_node, topic, 0, 300)
    options = {"max_deliveries": 1, "prefetch_messages": 300}
    async with member(live_node, topic, "a", negative_ack_backoff=(0.0, 0.0, 1.0)) as consumer:
        for message in await take(consumer, 300):
            consumer.negative_acknowledge(message)
    async with member(live_node, topic, "b", **options) as leaving:
        letters = leaving._dead_letters
        assert letters is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while letters._producer is None or not letters._producer.pending_messages:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    dead_letter_topic = await created(admin, f"{topic}-tasks-DLQ")
    async with (
        member(live_node, topic, "c", **options),
        QueueConsumer(live_node.url, dead_letter_topic, "undertaker", live_node.admin_token) as undertaker,
    ):
        assert numbers(await take(undertaker, 300)) == list(range(300))
        await until(lambda: admin.subscription(topic, "tasks")["msgBacklog"] == 0)
        with pytest.raises(TimeoutError):
            await undertaker.receive(timeout_seconds=0.5)


async def test_dead_letters_wait_for_a_topic_that_cannot_be_had_and_are_not_lost(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await fill(live_node, topic, 0, 1)
    options = {"max_deliveries": 1, "dead_letter_topic": "topic://public/elsewhere/graves"}
    async with member(live_node, topic, "a", **options) as consumer:
        consumer.negative_acknowledge(await consumer.receive(timeout_seconds=WAIT_SECONDS))
        await until(lambda: consumer._inbox.waiting_count == 1)
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_seconds=1)
    async with member(live_node, topic, "b") as consumer:
        assert numbers(await take(consumer, 1)) == [0]


async def created(admin: Admin, topic: str) -> str:
    """A topic, once it is there."""
    await until(lambda: topic in admin.list_topics("public/default"))
    return topic


class Refused(DeadLetters):
    """Dead letters to a topic that this client may not produce to; it ends with the first attempt."""

    opened = 0

    async def _open(self) -> Producer:
        self.opened += 1
        self.end()
        await asyncio.sleep(0)  # the others come meanwhile
        raise Forbidden(role="reader", right="produce")


async def test_many_dead_letters_that_cannot_be_stored_are_one_attempt() -> None:
    """A handshake for each of some hundreds, again and again, would be a burden to the node."""
    source = TopicName("public", "default", "source")
    letters = Refused("http://node", "token", source, source=source, subscription="s")
    message = QueueMessage(source, None, b"", MessageId(0, 0, 0), 0, 0, {}, deliveries=2, incarnation=0)
    stored = await asyncio.gather(*(letters.bury(message) for _ in range(50)))
    assert (set(stored), letters.opened) == ({False}, 1)


def test_the_name_of_a_dead_letter_topic_must_fit() -> None:
    with pytest.raises(InvalidName):
        default_topic(TopicName("public", "default", "t" * 250), "tasks")
