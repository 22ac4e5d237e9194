"""Multi-topic consumers against real nodes: a namespace is followed, acks find their topic, nothing stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from scalable.client import (
    Admin,
    CheckpointConsumer,
    KeySharedConsumer,
    MultiTopicQueueConsumer,
    MultiTopicStreamConsumer,
    Producer,
    QueueConsumer,
    StreamConsumer,
    SyncMultiTopicQueueConsumer,
    SyncMultiTopicStreamConsumer,
)
from scalable.domain.errors import (
    InvalidName,
    InvalidParameter,
    NamespaceNotFound,
    SessionSuperseded,
    SubscriptionTypeMismatch,
)
from scalable.domain.names import TopicName
from tests.processes import LiveNode

WAIT_SECONDS = 60
_spaces = count(1)


@pytest.fixture
def space(admin: Admin) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"public/many-{next(_spaces)}"
    admin.create_namespace(name)
    yield name
    admin.delete_namespace(name, force=True)


def make(admin: Admin, space: str, name: str, **properties: str) -> TopicName:
    topic = TopicName.parse(f"topic://{space}/{name}")
    admin.create_topic(topic, properties=properties)
    admin.set_policy(topic, {"enabled": False})
    return topic


async def send(node: LiveNode, topic: TopicName, *values: str) -> None:
    async with Producer(node.url, topic, node.admin_token) as producer:
        for value in values:
            await producer.send(value, value.encode())


def stream(node: LiveNode, space: str, **options: Any) -> MultiTopicStreamConsumer:
    return MultiTopicStreamConsumer(node.url, space, "sub", node.admin_token, **options)


def queue(node: LiveNode, space: str, **options: Any) -> MultiTopicQueueConsumer:
    return MultiTopicQueueConsumer(node.url, space, "tasks", node.admin_token, **options)


async def take(consumer: Any, number: int) -> list[Any]:
    return [await consumer.receive(timeout_seconds=WAIT_SECONDS) for _ in range(number)]


def told(messages: list[Any]) -> set[tuple[str, str]]:
    """Topic and value of each."""
    return {(message.topic.name, message.value.decode()) for message in messages}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_messages_of_all_topics_name_theirs(live_node: LiveNode, admin: Admin, space: str) -> None:
    one, two = make(admin, space, "one"), make(admin, space, "two")
    await send(live_node, one, "a", "b")
    await send(live_node, two, "c")
    async with stream(live_node, space) as consumer:
        assert consumer.topics == {one, two}
        assert told(await take(consumer, 3)) == {("one", "a"), ("one", "b"), ("two", "c")}
    async with queue(live_node, space) as workers:
        assert told(await take(workers, 3)) == {("one", "a"), ("one", "b"), ("two", "c")}


async def test_topics_are_followed_as_they_come_and_go(live_node: LiveNode, admin: Admin, space: str) -> None:
    """One that comes is read from its first message on; of one that goes, acknowledgements are kept."""
    red = make(admin, space, "red", team="red")
    blue = make(admin, space, "blue", team="blue")
    async with stream(live_node, space, properties={"team": "red"}, initial_position="latest") as consumer:
        assert consumer.topics == {red}
        later = make(admin, space, "later", team="red")
        await send(live_node, later, "a", "b", "c")
        messages = await take(consumer, 3)
        assert told(messages) == {("later", "a"), ("later", "b"), ("later", "c")}
        assert consumer.acknowledge(messages[1])
        admin.set_properties(later, {"team": "none"})
        await until(lambda: later not in consumer.topics and later not in consumer.owned_segments)
        assert not consumer.acknowledge(messages[2])
        admin.set_properties(blue, {"team": "red"})
        await send(live_node, blue, "d")
        assert told(await take(consumer, 1)) == {("blue", "d")}
        admin.set_properties(later, {"team": "red"})
        assert told(await take(consumer, 1)) == {("later", "c")}  # what was acknowledged does not come again
        assert consumer.topics == {red, blue, later}


async def test_acknowledgements_find_their_topic(live_node: LiveNode, admin: Admin, space: str) -> None:
    one, two = make(admin, space, "one"), make(admin, space, "two")
    await send(live_node, one, "a", "b")
    await send(live_node, two, "c", "d")
    async with queue(live_node, space, negative_ack_backoff=(0.0, 0.0, 1.0)) as workers:
        first = await take(workers, 4)
        for message in first:
            if message.value in {b"a", b"d"}:
                assert workers.acknowledge(message)
            elif message.value == b"b":
                assert workers.negative_acknowledge(message)
        (again,) = await take(workers, 1)
        assert (again.topic, again.value, again.deliveries) == (one, b"b", 2)
        workers.acknowledge(again)
    async with queue(live_node, space) as workers:
        assert told(await take(workers, 1)) == {("two", "c")}
        with pytest.raises(TimeoutError):
            await workers.receive(timeout_seconds=0.5)


async def test_one_acknowledgement_covers_what_came_before_of_every_topic(
    live_node: LiveNode, admin: Admin, space: str
) -> None:
    topics = [make(admin, space, name) for name in ("one", "two", "three")]
    for topic in topics:
        await send(live_node, topic, *(f"{topic.name}-{number}" for number in range(4)))
    async with stream(live_node, space) as consumer:
        messages = await take(consumer, 12)
        assert consumer.acknowledge_cumulative(messages[6])
    async with stream(live_node, space) as consumer:
        rest = await take(consumer, 5)
        assert told(rest) == told(messages[7:])
        vector = consumer.positions()
        await send(live_node, topics[0], "new")
        (new,) = await take(consumer, 1)
        consumer.acknowledge_positions(vector)
        await consumer.flush()
    async with stream(live_node, space) as consumer:
        assert told(await take(consumer, 1)) == told([new])
        consumer.acknowledge_all()
    async with stream(live_node, space) as consumer:
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_seconds=0.5)


@pytest.mark.parametrize("make_consumer", [stream, queue])
async def test_what_another_consumer_handed_out_is_not_acknowledged_here(
    live_node: LiveNode, admin: Admin, space: str, make_consumer: Callable[..., Any]
) -> None:
    """The first of another object may have been of another topic than the first of this one."""
    topics = [make(admin, space, name) for name in ("one", "two", "three")]
    for topic in topics:
        await send(live_node, topic, "a", "b")
    async with make_consumer(live_node, space) as former:
        late = await take(former, 6)
    async with make_consumer(live_node, space) as consumer:
        held = await take(consumer, 6)  # and not processed
        for message in late:
            assert not acknowledge_with_all_before(consumer, message)
            assert not consumer.acknowledge(message)
        await consumer.flush()
    for topic in topics:
        assert admin.subscription(topic, consumer.subscription)["msgBacklog"] == 2
    assert told(held) == told(late)


def acknowledge_with_all_before(consumer: Any, message: Any) -> bool:
    several = isinstance(consumer, MultiTopicStreamConsumer)
    return bool((consumer.acknowledge_cumulative if several else consumer.negative_acknowledge)(message))


async def test_a_topic_that_cannot_be_subscribed_to_is_tried_again(
    live_node: LiveNode, admin: Admin, space: str
) -> None:
    good, bad = make(admin, space, "good"), make(admin, space, "bad")
    admin.create_subscription(bad, "sub", kind="QUEUE")
    await send(live_node, good, "a")
    await send(live_node, bad, "b")
    async with stream(live_node, space) as consumer:
        assert isinstance(consumer.troubles[bad], SubscriptionTypeMismatch)
        assert consumer.topics == {good, bad}
        assert told(await take(consumer, 1)) == {("good", "a")}
        admin.delete_subscription(bad, "sub")
        assert told(await take(consumer, 1)) == {("bad", "b")}
        assert not consumer.troubles


async def test_a_topic_made_again_is_another_one(live_node: LiveNode, admin: Admin, space: str) -> None:
    """What was received of the former acknowledges nothing of the new one."""
    topic = make(admin, space, "again")
    await send(live_node, topic, "old")
    async with queue(live_node, space) as workers, stream(live_node, space) as consumer:
        (old_work,), (old,) = await take(workers, 1), await take(consumer, 1)
        vector = consumer.positions()
        admin.delete_topic(topic, force=True)
        make(admin, space, "again")
        await send(live_node, topic, "new")
        (work,), (new,) = await take(workers, 1), await take(consumer, 1)
        assert {work.value, new.value} == {b"new"}
        assert not workers.acknowledge(old_work)
        assert not consumer.acknowledge(old)
        consumer.acknowledge_positions(vector)
    async with queue(live_node, space) as workers, stream(live_node, space) as consumer:
        assert told(await take(workers, 1)) == told(await take(consumer, 1)) == {("again", "new")}


def connections(node: LiveNode) -> int:
    """How many sockets of this process lead to the node."""
    port = urlsplit(node.url).port
    return sum(1 for each in psutil.Process().net_connections() if each.raddr and each.raddr.port == port)


async def test_what_comes_and_goes_quickly_leaves_nothing(
    live_node: LiveNode, admin: Admin, space: str
) -> None:
    make(admin, space, "lasting")
    before = len(asyncio.all_tasks())
    async with stream(live_node, space) as consumer, queue(live_node, space) as workers:
        last = make(admin, space, "last")
        await until(lambda: last in consumer.owned_segments)
        await send(live_node, last, "x")
        assert told(await take(workers, 1)) == told(await take(consumer, 1)) == {("last", "x")}
        await asyncio.to_thread(admin.delete_topic, last, force=True)
        both = (consumer, workers)
        await until(lambda: all(last not in each.topics for each in both))
        await until(lambda: not any(each.departing for each in both))
        held, tasks = connections(live_node), len(asyncio.all_tasks())
        for number in range(6):
            name = f"passing-{number % 2}"
            await asyncio.to_thread(make, admin, space, name)
            if number % 3:
                await until(lambda: len(consumer.topics) > 1)
            await asyncio.to_thread(admin.delete_topic, f"topic://{space}/{name}", force=True)
        await until(lambda: all(len(each.topics) == 1 and not each.departing for each in both))
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: connections(live_node) <= held)
        assert not consumer.troubles
    await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_two_of_one_name_and_the_end_of_the_namespace(
    live_node: LiveNode, admin: Admin, space: str
) -> None:
    """The newer one wins and the older one does not come back; with the namespace, all ends."""
    make(admin, space, "one")
    async with stream(live_node, space, name="me") as older, stream(live_node, space, name="me") as newer:
        with pytest.raises(SessionSuperseded):
            await older.receive(timeout_seconds=WAIT_SECONDS)
        await asyncio.to_thread(admin.delete_namespace, space, force=True)
        with pytest.raises(NamespaceNotFound):
            await newer.receive(timeout_seconds=WAIT_SECONDS)
    admin.create_namespace(space)  # for the fixture


async def test_dead_letters_are_not_read_as_if_they_were_topics(
    live_node: LiveNode, admin: Admin, space: str
) -> None:
    topic = make(admin, space, "one")
    await send(live_node, topic, "poison")
    options: dict[str, Any] = {"max_deliveries": 1, "negative_ack_backoff": (0.0, 0.0, 1.0)}
    async with queue(live_node, space, **options) as workers:
        (poison,) = await take(workers, 1)
        workers.negative_acknowledge(poison)
        buried = f"topic://{space}/one-tasks-DLQ"
        await until(lambda: buried in admin.list_topics(space))
        other = make(admin, space, "other")
        await until(lambda: other in workers.topics)
        assert workers.topics == {topic, other}


def test_synchronous_faces(live_node: LiveNode, admin: Admin, space: str) -> None:
    one, two = make(admin, space, "one"), make(admin, space, "two")
    asyncio.run(send(live_node, one, "a"))
    asyncio.run(send(live_node, two, "b"))
    with SyncMultiTopicStreamConsumer(live_node.url, space, "sub", live_node.admin_token) as consumer:
        assert consumer.topics == {one, two}
        messages = [consumer.receive(timeout_seconds=WAIT_SECONDS) for _ in range(2)]
        assert told(messages) == {("one", "a"), ("two", "b")}
        assert consumer.acknowledge_cumulative(messages[1])
        consumer.flush()
        assert consumer.owned_segments == {one: (0,), two: (0,)}
    with SyncMultiTopicQueueConsumer(live_node.url, space, "tasks", live_node.admin_token) as workers:
        assert workers.acknowledge(workers.receive(timeout_seconds=WAIT_SECONDS))
        assert not workers.troubles


def test_options_that_no_topic_takes_are_refused_at_once() -> None:
    url, token = "http://localhost", "token"
    with pytest.raises(InvalidName):
        MultiTopicStreamConsumer(url, "no-namespace", "s", token)
    with pytest.raises(InvalidParameter):
        MultiTopicStreamConsumer(url, "a/b", "s", token, initial_position="middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefetch"):
        MultiTopicStreamConsumer(url, "a/b", "s", token, prefetch_messages=0)
    with pytest.raises(ValueError, match="ack_timeout"):
        MultiTopicQueueConsumer(url, "a/b", "s", token, ack_timeout_seconds=0.0)


def member_of_group(url: str, topic: str, group: str, token: str, *, name: str = "c") -> CheckpointConsumer:
    return CheckpointConsumer(url, topic, token, group=group, name=name)


@pytest.mark.parametrize("bad", ["a/b", "a\n", "..", "x" * 256])
@pytest.mark.parametrize(
    ("kind", "of"),
    [
        (MultiTopicStreamConsumer, "a/b"),
        (MultiTopicQueueConsumer, "a/b"),
        (StreamConsumer, "topic://a/b/c"),
        (QueueConsumer, "topic://a/b/c"),
        (KeySharedConsumer, "topic://a/b/c"),
        (member_of_group, "topic://a/b/c"),
    ],
)
def test_names_that_no_consumer_can_have_are_refused_at_once(
    kind: Callable[..., Any], of: str, bad: str
) -> None:
    for subscription, name in ((bad, "c"), ("s", bad)):
        with pytest.raises(InvalidName):
            kind("http://localhost", of, subscription, "token", name=name)
    with pytest.raises(InvalidName):
        kind("http://localhost", of, "", "token")
