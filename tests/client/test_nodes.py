"""Clients that know several nodes go on when the one they speak to dies."""

from __future__ import annotations

import asyncio
import signal

import pytest

from launch.ports import free_port
from scalable.client import Admin, ConnectionLost, Endpoint, Producer, StreamConsumer
from scalable.domain.errors import TopicExists
from tests.api.peers import eventually
from tests.client.proxy import Relay
from tests.processes import LiveNode, ProcessFactory

TOPIC = "topic://public/default/several"
QUICK = {"SCALABLE_NODE_HEARTBEAT_SECONDS": "0.2", "SCALABLE_NODE_TIMEOUT_SECONDS": "2"}


def test_of_several_urls_the_first_is_used_until_it_fails() -> None:
    endpoint = Endpoint("http://a/, http://b:1,http://a", "token")
    assert endpoint.urls == ("http://a", "http://b:1")
    assert Endpoint(["http://a/", "http://b:1"], "token").urls == endpoint.urls
    endpoint.failed("http://b:1")
    assert endpoint.url == "http://a", "one that is not in use says nothing about the one that is"
    endpoint.failed("http://a")
    endpoint.failed("http://a")
    assert endpoint.url == "http://b:1", "two who noticed the same move on once"
    endpoint.failed("http://b:1")
    assert endpoint.url == "http://a"


def test_a_named_node_is_preferred_and_the_others_stand_in() -> None:
    endpoint = Endpoint("http://a,http://b", "token")
    leader = endpoint.at("http://b/")
    assert leader.urls == ("http://b", "http://a")
    leader.failed("http://b")
    assert (leader.url, endpoint.url) == ("http://a", "http://a")
    assert endpoint.at("http://elsewhere").urls == ("http://elsewhere", "http://a", "http://b")


@pytest.mark.parametrize("url", [None, "", " ", "node-1", "http://", "http://node:port"])
def test_a_node_that_names_no_address_changes_nothing(url: str | None) -> None:
    endpoint = Endpoint("http://a,http://b", "token")
    assert endpoint.at(url) is endpoint


@pytest.mark.parametrize("urls", [[], "http://a,", ["http://a", "b"]])
def test_a_list_with_what_is_no_url_is_refused(urls: list[str] | str) -> None:
    with pytest.raises(ValueError, match="URL of a node"):
        Endpoint(urls, "token")


@pytest.fixture
def nodes(processes: ProcessFactory) -> list[LiveNode]:
    """Two nodes and the topic `several` of two segments."""
    started = [processes.node(**QUICK), processes.node(**QUICK)]
    with Admin(started[0].url, started[0].admin_token) as admin:
        admin.create_topic(TOPIC, initial_segments=2)
    return started


def test_an_admin_asks_the_next_node(nodes: list[LiveNode]) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with Admin([dead, nodes[1].url], nodes[0].admin_token) as admin:
        with pytest.raises(TopicExists):
            admin.create_topic(TOPIC)
        assert admin.get_topic(TOPIC)["epoch"] == 0
    with (
        Admin([dead, f"http://127.0.0.1:{free_port()}"], nodes[0].admin_token) as admin,
        pytest.raises(ConnectionLost),
    ):
        admin.get_topic(TOPIC)


async def test_what_a_node_may_have_done_is_asked_of_another_and_done_once(nodes: list[LiveNode]) -> None:
    """The relay takes the request and holds the answer up; the other node gives it from memory."""
    async with Relay(nodes[0].url) as relay:
        relay.hold()

        def ask() -> dict[str, str]:
            with Admin([relay.url, nodes[1].url], nodes[0].admin_token, timeout_seconds=5.0) as admin:
                admin.create_topic(f"{TOPIC}-too", properties={"a": "b"})
                return admin.properties(f"{TOPIC}-too")

        assert await asyncio.to_thread(ask) == {"a": "b"}
        assert relay.connections == 1


async def test_a_token_is_not_asked_for_twice(nodes: list[LiveNode]) -> None:
    async with Relay(nodes[0].url) as relay:
        relay.hold()

        def ask() -> None:
            with Admin([relay.url, nodes[1].url], nodes[0].admin_token, timeout_seconds=5.0) as admin:
                admin.mint_token("worker")

        with pytest.raises(ConnectionLost):
            await asyncio.to_thread(ask)


async def test_producer_and_consumers_go_on_when_the_node_they_speak_to_is_killed(
    nodes: list[LiveNode],
) -> None:
    urls, token = [node.url for node in nodes], nodes[0].admin_token
    async with (
        Producer(urls, TOPIC, token) as producer,
        StreamConsumer(urls, TOPIC, "s", token, name="a") as consumer,
    ):
        expected = set()
        for number in range(400):
            expected.add(str(number).encode())
            await producer.submit(f"key-{number % 7}", str(number).encode())
            if number == 200:
                nodes[0].process.send_signal(signal.SIGKILL)
        await producer.flush(60)
        found: set[bytes] = set()
        while found != expected:
            message = await consumer.receive(timeout_seconds=60)
            consumer.acknowledge(message)
            found.add(message.value)
        await consumer.flush()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_leave_while_the_leader_dies_is_told_to_the_next(
    processes: ProcessFactory, end: signal.Signals
) -> None:
    """The next one leads after 7 s; who stays has all segments then, not after the grace of a minute."""
    slow = {**QUICK, "SCALABLE_NODE_TIMEOUT_SECONDS": "7"}
    leader, other = processes.node(**slow), processes.node(**slow)
    urls, token = [leader.url, other.url], leader.admin_token
    with Admin(leader.url, token) as admin:
        admin.create_topic(TOPIC, initial_segments=2)
    async with StreamConsumer(urls, TOPIC, "s", token, name="stays") as stays:
        leaves = StreamConsumer(urls, TOPIC, "s", token, name="leaves")
        await leaves.start()
        await owns(stays, 1)
        leader.process.send_signal(end)
        await leaves.close()
        await owns(stays, 2)


async def test_who_leaves_late_does_not_end_a_successor_of_its_name(nodes: list[LiveNode]) -> None:
    """Both wait for the next leader; whoever comes to it first, the one that stays has its place."""
    urls, token = [node.url for node in nodes], nodes[0].admin_token
    async with StreamConsumer(urls, TOPIC, "s", token, name="stays") as stays:
        former = StreamConsumer(urls, TOPIC, "s", token, name="again")
        await former.start()
        await owns(stays, 1)
        nodes[0].process.send_signal(signal.SIGKILL)
        closing = asyncio.create_task(former.close())
        async with StreamConsumer(urls, TOPIC, "s", token, name="again") as successor:
            await closing
            await owns(successor, 1)
            await owns(stays, 1)


async def test_who_still_makes_acknowledgements_durable_does_not_end_a_successor_either(
    processes: ProcessFactory,
) -> None:
    """It finds the next leader before it can acknowledge there, and after its successor."""
    first = processes.node(**QUICK)
    token = first.admin_token
    with Admin(first.url, token) as admin:
        admin.create_topic(TOPIC)
    async with Controlled(first.url) as relay:
        former = StreamConsumer(relay.url, TOPIC, "s", token, name="again")
        await former.start()
        async with Producer(first.url, TOPIC, token) as producer:
            await producer.send("key", b"one")
        message = await former.receive(timeout_seconds=60)
        relay.shut("/consume/", "/controller/")
        first.process.send_signal(signal.SIGKILL)
        former.acknowledge(message)
        closing = asyncio.create_task(former.close(60))
        second = processes.node(**QUICK)
        relay.target_url = second.url
        async with StreamConsumer(second.url, TOPIC, "s", token, name="again") as successor:
            relay.let_in("/consume/")
            await relay.controlled.wait()
            relay.let_in()
            await closing
            async with Producer(second.url, TOPIC, token) as producer:
                await producer.send("key", b"two")
            await reads(successor, b"two")
            with pytest.raises(TimeoutError):  # what had ended it would be raised
                await successor.receive(timeout_seconds=0.2)


class Controlled(Relay):
    """Tells when a controller's session had its first frame from the node, since the relay was shut last."""

    def __init__(self, target_url: str) -> None:
        super().__init__(target_url)
        self.controlled = asyncio.Event()
        self._asked = False

    def shut(self, *requests: str) -> None:
        super().shut(*requests)
        self._asked = False
        self.controlled.clear()

    def passed(self, data: bytes, *, answers: bool) -> None:
        self._asked |= b"/controller/" in data
        if answers and self._asked and b"101 Switching" not in data:
            self.controlled.set()


async def reads(consumer: StreamConsumer, value: bytes) -> None:
    """Read until a value comes; what a former one did not acknowledge may come before it."""
    while (message := await consumer.receive(timeout_seconds=60)).value != value:
        consumer.acknowledge(message)
    consumer.acknowledge(message)


async def owns(consumer: StreamConsumer, count: int) -> None:
    async def look() -> bool:
        return len(consumer.owned_segments) == count

    await eventually(look)


async def test_a_consumer_without_a_leader_reads_and_acknowledges_at_another_node(
    nodes: list[LiveNode], processes: ProcessFactory
) -> None:
    """The leader is dead and its lease, of an hour, is not over: the other node may not lead."""
    patient = processes.node(**{**QUICK, "SCALABLE_NODE_TIMEOUT_SECONDS": "3600"})
    other = processes.node(**{**QUICK, "SCALABLE_NODE_TIMEOUT_SECONDS": "3600"})
    for node in nodes:
        node.process.stop()
    urls, token = [patient.url, other.url], patient.admin_token
    async with StreamConsumer(urls, TOPIC, "s", token, name="a") as consumer:
        patient.process.send_signal(signal.SIGKILL)
        patient.process.wait(30)
        async with Producer(other.url, TOPIC, token) as producer:
            for number in range(20):
                await producer.send(f"key-{number}", b"")
        for _ in range(20):
            consumer.acknowledge(await consumer.receive(timeout_seconds=60))
        await consumer.flush()
        with Admin(other.url, token) as admin:
            left = await asyncio.to_thread(admin.subscription, TOPIC, "s")
        assert left["msgBacklog"] == 0
