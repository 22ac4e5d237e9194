"""Consumers whose subscription was deleted, or deleted and made again, while their sockets were cut.

All kinds of them at once, each with a subscription of its own. The node names a relay as its address, so that
every socket leads through it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest

from scalable.client import (
    Admin,
    CheckpointConsumer,
    KeySharedConsumer,
    MultiTopicQueueConsumer,
    MultiTopicStreamConsumer,
    QueueConsumer,
    StreamConsumer,
)
from scalable.domain.errors import SubscriptionNotFound
from scalable.domain.names import TopicName
from scalable.models import ConsumerRegistration
from tests.api.peers import ask
from tests.client.proxy import Relay
from tests.client.test_consumer import fill
from tests.client.test_nodes import QUICK
from tests.processes import LiveNode, ProcessFactory

TOPIC = TopicName.parse("topic://public/default/graves")
MESSAGES = 5
WAIT_SECONDS = 60
KINDS: dict[str, dict[str, Any]] = {
    "stream": {"kind": "STREAM"},
    "shared": {"kind": "STREAM", "key_shared": True},
    "checkpoint": {"kind": "CHECKPOINT"},
    "queue": {"kind": "QUEUE"},
}
"""What each subscription is made with, by its name."""
Consumer = StreamConsumer | KeySharedConsumer | CheckpointConsumer | QueueConsumer


class Place:
    """A node behind a relay, with a topic and some messages."""

    def __init__(self, node: LiveNode, relay: Relay, admin: Admin) -> None:
        self.node, self.relay, self.admin = node, relay, admin

    def consumers(self) -> dict[str, Consumer]:
        url, token = self.relay.url, self.node.admin_token
        return {
            "stream": StreamConsumer(url, TOPIC, "stream", token),
            "shared": KeySharedConsumer(url, TOPIC, "shared", token),
            "checkpoint": CheckpointConsumer(url, TOPIC, token, group="checkpoint"),
            "queue": QueueConsumer(url, TOPIC, "queue", token),
        }

    async def delete(self, names: Iterable[str], *, again: bool) -> None:
        """Delete subscriptions, and make each again."""
        for name in names:
            await asyncio.to_thread(self.admin.delete_subscription, TOPIC, name)
            if again:
                await asyncio.to_thread(self.admin.create_subscription, TOPIC, name, **KINDS[name])

    async def subscriptions(self) -> dict[str, int]:
        """How many messages each subscription has to get, by its name."""
        found = await asyncio.to_thread(self.admin.subscriptions, TOPIC)
        told = [await asyncio.to_thread(self.admin.subscription, TOPIC, each["name"]) for each in found]
        return {one["name"]: each["msgBacklog"] for one, each in zip(found, told, strict=True)}


@asynccontextmanager
async def place(processes: ProcessFactory, **environment: str) -> AsyncIterator[Place]:
    async with Relay() as relay:
        node = await asyncio.to_thread(lambda: processes.node(SCALABLE_NODE_URL=relay.url, **environment))
        relay.target_url = node.url
        with Admin(node.url, node.admin_token) as admin:
            await asyncio.to_thread(admin.create_topic, TOPIC)
            await asyncio.to_thread(admin.set_policy, TOPIC, {"enabled": False})
            await fill(node, str(TOPIC), 0, MESSAGES)
            yield Place(node, relay, admin)


async def read_all(
    consumer: Consumer | MultiTopicStreamConsumer | MultiTopicQueueConsumer,
) -> None:
    for _ in range(MESSAGES):
        message = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        if not isinstance(consumer, CheckpointConsumer):
            consumer.acknowledge(message)  # type: ignore[arg-type]
    if not isinstance(consumer, CheckpointConsumer):
        await consumer.flush()


def registered() -> bool:
    return ConsumerRegistration.objects.exists()


@pytest.mark.parametrize("first", ["controller", "consume"])
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
async def test_who_was_away_ends_and_nothing_is_made_or_joined(
    processes: ProcessFactory, again: bool, first: Literal["controller", "consume"]
) -> None:
    """Whichever socket comes back first; a queue has one alone."""
    async with place(processes) as here, AsyncExitStack() as stack:
        consumers = here.consumers()
        for each in consumers.values():
            await stack.enter_async_context(each)
            await read_all(each)
        here.relay.shut("/ws/")
        await here.delete(KINDS, again=again)
        here.relay.shut(
            "/ws/v2/scalable/consume/" if first == "controller" else "/ws/v2/scalable/controller/"
        )
        for each in consumers.values():
            with pytest.raises(SubscriptionNotFound):
                await each.receive(timeout_seconds=WAIT_SECONDS)
        here.relay.shut()
        await stack.aclose()
        assert await here.subscriptions() == (dict.fromkeys(KINDS, MESSAGES) if again else {})
        assert not await ask(registered)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
async def test_to_leave_what_was_deleted_is_no_error_and_makes_nothing(
    processes: ProcessFactory, again: bool
) -> None:
    """What was acknowledged last is not durable: there is nothing left in which it could be."""
    async with place(processes) as here:
        consumers = here.consumers()
        for each in consumers.values():
            await each.start()
        taken = {name: await each.receive(WAIT_SECONDS) for name, each in consumers.items()}
        here.relay.shut("/ws/")
        for name, each in consumers.items():
            if not isinstance(each, CheckpointConsumer):
                each.acknowledge(taken[name])  # type: ignore[arg-type]
        await here.delete(KINDS, again=again)
        here.relay.shut()
        await asyncio.gather(*(each.close(WAIT_SECONDS) for each in consumers.values()))
        assert await here.subscriptions() == (dict.fromkeys(KINDS, MESSAGES) if again else {})
        assert not await ask(registered)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
async def test_another_leader_makes_and_joins_nothing_either(processes: ProcessFactory, again: bool) -> None:
    """The node dies, and the next one, which never saw the consumers, takes its place."""
    async with place(processes, **QUICK) as here, AsyncExitStack() as stack:
        consumers = here.consumers()
        for each in consumers.values():
            await stack.enter_async_context(each)
            await read_all(each)
        successor = await asyncio.to_thread(lambda: processes.node(**QUICK))
        here.relay.target_url = successor.url
        here.relay.shut("/ws/")
        here.node.process.send_signal(signal.SIGKILL)
        with Admin(successor.url, successor.admin_token) as here.admin:
            await here.delete(KINDS, again=again)
            here.relay.shut()
            for each in consumers.values():
                with pytest.raises(SubscriptionNotFound):
                    await each.receive(timeout_seconds=WAIT_SECONDS)
            await stack.aclose()
            assert await here.subscriptions() == (dict.fromkeys(KINDS, MESSAGES) if again else {})
        assert not await ask(registered)


class LosesTheFirst(Relay):
    """A relay whose connections are cut by the first assignment, which arrives nowhere."""

    def passed(self, data: bytes, *, answers: bool) -> None:
        if answers and b'"type":"assignment"' in data and not self.lost.is_set():
            self.lost.set()
            self.cut()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "queue"])
async def test_a_registration_whose_answer_was_lost_is_repeated(
    live_node: LiveNode, admin: Admin, name: str
) -> None:
    await asyncio.to_thread(admin.create_topic, TOPIC)
    await fill(live_node, str(TOPIC), 0, MESSAGES)
    async with LosesTheFirst(live_node.url) as relay:
        here = Place(live_node, relay, admin)
        async with here.consumers()[name] as consumer:
            assert relay.lost.is_set()
            await read_all(consumer)
        assert list(await here.subscriptions()) == [name]


async def test_a_new_consumer_may_make_the_subscription_again(
    processes: ProcessFactory,
) -> None:
    async with place(processes) as here:
        for _ in range(2):
            consumers = here.consumers()
            for each in consumers.values():
                async with each:
                    await read_all(each)
            await here.delete(KINDS, again=False)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
async def test_among_many_topics_the_one_is_given_up_and_the_others_go_on(
    processes: ProcessFactory, again: bool
) -> None:
    other = TopicName.parse("topic://public/default/alive")
    async with place(processes) as here, AsyncExitStack() as stack:
        await asyncio.to_thread(here.admin.create_topic, other)
        url, token = here.relay.url, here.node.admin_token
        consumers: dict[str, MultiTopicStreamConsumer | MultiTopicQueueConsumer] = {
            "stream": MultiTopicStreamConsumer(url, "public/default", "stream", token),
            "queue": MultiTopicQueueConsumer(url, "public/default", "queue", token),
        }
        for each in consumers.values():
            await stack.enter_async_context(each)
            await read_all(each)
        here.relay.shut("/ws/")
        await here.delete(consumers, again=again)
        await fill(here.node, str(other), 0, 1)
        here.relay.shut()
        for each in consumers.values():
            assert (await each.receive(timeout_seconds=WAIT_SECONDS)).topic == other
            async with asyncio.timeout(WAIT_SECONDS):
                while TOPIC not in each.troubles:
                    await each._changed.wait()
            assert isinstance(each.troubles[TOPIC], SubscriptionNotFound)
            with pytest.raises(TimeoutError):  # longer than the first pauses before it is tried again
                await each.receive(timeout_seconds=1.0)
        assert await here.subscriptions() == (dict.fromkeys(consumers, MESSAGES) if again else {})
        # The topic's next life has another subscription.
        await asyncio.to_thread(here.admin.delete_topic, TOPIC, force=True)
        await asyncio.to_thread(here.admin.create_topic, TOPIC)
        await fill(here.node, str(TOPIC), 0, MESSAGES)
        for each in consumers.values():
            await read_all(each)
