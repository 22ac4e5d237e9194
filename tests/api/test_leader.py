"""The leader's memory of sessions, on a clock that the test turns."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ParamSpec, TypeVar

import pytest
import pytest_asyncio
from pytest_django import Settings

from scalable.api.executor import ServiceExecutor
from scalable.api.leader import LeaderMemory, SessionState
from scalable.domain.errors import NotLeader
from scalable.models import Namespace, Topic
from scalable.services import controller, topics
from scalable.store import subscriptions as store
from tests.services.group import Group, leader_of, new_node
from tests.topology import ACTOR, make_topic

P = ParamSpec("P")
T = TypeVar("T")

pytestmark = pytest.mark.django_db(transaction=True)
GRACE_SECONDS = 60.0


class Node:
    """A node's threads and clock, and the error that its next removal of a consumer meets."""

    def __init__(self) -> None:
        self.executor = ServiceExecutor(threads=1)
        self.now = 0.0
        self.trouble: Exception | None = None
        self.memory = LeaderMemory(call=self.call, clock=lambda: self.now)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        trouble = self.trouble
        if trouble is not None and function == controller.remove_consumers:
            self.trouble = None
            raise trouble
        return self.executor.call(function, *args, **kwargs)


class Connection:
    """A socket that notes why it was closed."""

    error: BaseException | None = None
    session_id = ""

    def fail(self, error: BaseException) -> None:
        self.error = error


@pytest_asyncio.fixture
async def node(settings: Settings) -> AsyncIterator[Node]:
    """A node whose grace is a minute."""
    settings.SCALABLE_SESSION_GRACE_SECONDS = GRACE_SECONDS
    made = Node()
    yield made
    await asyncio.to_thread(made.executor.close)


@pytest_asyncio.fixture
async def group(node: Node) -> Group:
    """A subscription with the registered consumer `a`."""

    def make() -> Group:
        made = Group(make_topic(segments=2))
        made.join("a")
        return made

    return await node.executor.call(make)


async def consumers(node: Node, group: Group) -> list[str]:
    """The registered consumers."""
    return await node.executor.call(lambda: store.consumers(group.subscription_id))


async def key_of(node: Node, group: Group) -> tuple[int, str]:
    """The key of the session of `a`."""
    return await node.executor.call(lambda: group.subscription_id), "a"


async def test_a_leave_that_fails_is_made_up_for_after_the_grace(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key, connection = await key_of(node, group), Connection()
    node.memory.connect(led, key, connection)
    node.trouble = ConnectionError("once")
    with pytest.raises(ConnectionError):
        await node.memory.leave(led, key, connection)
    node.now = GRACE_SECONDS - 1
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == ["a"]
    node.now = GRACE_SECONDS
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == []


async def test_an_expiry_that_fails_is_tried_again(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    await node.memory.lead(group.topic.name, node_id=node_id)
    node.now = GRACE_SECONDS
    node.trouble = ConnectionError("once")
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == ["a"]
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == []


@pytest.mark.parametrize(
    ("topic_seconds", "namespace_seconds", "expected_seconds"),
    [(None, None, GRACE_SECONDS), (None, 5.0, 5.0), (90.0, 5.0, 90.0), (0.0, 5.0, 0.0)],
)
async def test_the_grace_is_the_topics_over_the_namespaces_over_the_instances(
    node: Node,
    group: Group,
    topic_seconds: float | None,
    namespace_seconds: float | None,
    expected_seconds: float,
) -> None:
    def write() -> None:
        Topic.objects.update(session_grace_seconds=topic_seconds)
        Namespace.objects.update(session_grace_seconds=namespace_seconds)

    await node.executor.call(write)
    node_id = group.leader.node_id
    await node.memory.lead(group.topic.name, node_id=node_id)
    if expected_seconds:
        node.now = expected_seconds - 1
        await node.memory.sweep(node_id=node_id)
        assert await consumers(node, group) == ["a"]
    node.now = expected_seconds
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == []


async def test_a_grace_that_is_made_longer_counts_for_who_is_away_already(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key = await key_of(node, group)
    assert node.memory.state(group.topic.incarnation, key) is SessionState.GRACE
    await node.executor.call(lambda: Topic.objects.update(session_grace_seconds=2 * GRACE_SECONDS))
    node.now = GRACE_SECONDS
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == ["a"]
    node.memory.connect(led, key, Connection())
    assert node.memory.state(group.topic.incarnation, key) is SessionState.CONNECTED
    assert node.memory.state(group.topic.incarnation + 1, key) is SessionState.UNKNOWN


async def test_the_sessions_of_a_deleted_topic_are_forgotten(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    await node.memory.lead(group.topic.name, node_id=node_id)
    key = await key_of(node, group)
    await node.executor.call(topics.delete_topic, name=group.topic.name, actor=ACTOR, force=True)
    await node.memory.sweep(node_id=node_id)
    assert node.memory.state(group.topic.incarnation, key) is SessionState.UNKNOWN


async def test_a_new_leader_begins_everyones_grace_anew(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    node.now = 1_000.0
    await node.memory.lead(group.topic.name, node_id=node_id)
    node.now += GRACE_SECONDS - 1
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == ["a"]
    node.now += 1
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == []


async def test_who_is_away_when_the_leader_changes_has_one_more_grace_and_no_third(
    node: Node, group: Group
) -> None:
    """A leader does not know what its predecessor had counted; still nobody is forgotten or kept for ever."""
    key = await key_of(node, group)
    led = await node.memory.lead(group.topic.name, node_id=group.leader.node_id)
    connection = Connection()
    node.memory.connect(led, key, connection)
    node.memory.disconnect(led, key, connection)
    node.now = GRACE_SECONDS / 2
    await node.executor.call(controller.remove_node, node_id=group.leader.node_id)
    successor_id = await node.executor.call(new_node)
    successor = LeaderMemory(call=node.call, clock=lambda: node.now)
    await successor.lead(group.topic.name, node_id=successor_id)
    node.now += GRACE_SECONDS - 1
    await successor.sweep(node_id=successor_id)
    assert await consumers(node, group) == ["a"]
    node.now += 1
    await successor.sweep(node_id=successor_id)
    assert await consumers(node, group) == []


async def test_vector_79_two_connections_of_a_name_are_one_session(node: Node, group: Group) -> None:
    led = await node.memory.lead(group.topic.name, node_id=group.leader.node_id)
    key, first, second = await key_of(node, group), Connection(), Connection()
    for connection in (first, second):
        registering = Registering(node, group, key)
        registering.go.set()
        await node.memory.enter(led, key, connection, registering)
    assert await consumers(node, group) == ["a"]
    await node.memory.leave(led, key, first)
    assert (node.memory.holds(led, key, second), await consumers(node, group)) == (True, ["a"])
    await node.memory.leave(led, key, second)
    assert (node.memory.holds(led, key, second), await consumers(node, group)) == (False, [])


async def test_the_late_end_of_an_older_connection_is_nothing(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key, older, newer = await key_of(node, group), Connection(), Connection()
    assert node.memory.connect(led, key, older) is None
    assert node.memory.connect(led, key, newer) is older
    node.memory.disconnect(led, key, older)
    node.now = 10 * GRACE_SECONDS
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == ["a"]
    assert node.memory.holds(led, key, newer)


async def test_a_superseded_leader_lets_its_connections_go(node: Node, group: Group) -> None:
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key, connection = await key_of(node, group), Connection()
    node.memory.connect(led, key, connection)
    node.memory.session(led, (key[0], "gone"))
    await node.executor.call(controller.remove_node, node_id=node_id)
    await node.executor.call(leader_of, group.topic)
    node.now = GRACE_SECONDS
    await node.memory.sweep(node_id=node_id)
    assert getattr(connection.error, "code", None) == "term_superseded"
    assert await consumers(node, group) == ["a"]


class Registering:
    """Writes the registration of `a`, once it is let go; `begun` tells that the session's lock is held."""

    def __init__(self, node: Node, group: Group, key: tuple[int, str]) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self._node, self._group, self._key = node, group, key

    async def __call__(self) -> None:
        self.begun.set()
        await self.go.wait()
        subscription_id, consumer = self._key
        await self._node.executor.call(
            controller.register_consumer,
            leader=self._group.leader,
            subscription_id=subscription_id,
            consumer=consumer,
        )


async def without_grace(node: Node) -> None:
    await node.executor.call(lambda: Topic.objects.update(session_grace_seconds=0.0))


async def test_a_leave_ends_no_newer_connection_that_was_registering(node: Node, group: Group) -> None:
    """A process that is stopped in good order, and its successor under the same name."""
    led = await node.memory.lead(group.topic.name, node_id=group.leader.node_id)
    key, older, newer = await key_of(node, group), Connection(), Connection()
    node.memory.connect(led, key, older)
    registering = Registering(node, group, key)
    coming = asyncio.create_task(node.memory.enter(led, key, newer, registering))
    await registering.begun.wait()
    leaving = asyncio.create_task(node.memory.leave(led, key, older))
    await asyncio.sleep(0)  # it waits for the lock now
    registering.go.set()
    assert await coming is older
    await leaving
    assert node.memory.holds(led, key, newer)
    assert await consumers(node, group) == ["a"]


@pytest.mark.parametrize("ends", [False, True])
async def test_who_comes_while_it_leaves_is_there_or_in_its_grace(
    node: Node, group: Group, ends: bool
) -> None:
    """The session that was waited for is gone by then; a sweep that waited for it too ends no other."""
    await without_grace(node)
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key, older, newer = await key_of(node, group), Connection(), Connection()
    node.memory.connect(led, key, older)
    registering = Registering(node, group, key)
    leaving = asyncio.create_task(node.memory.leave(led, key, older))
    await asyncio.sleep(0)  # it has the lock
    coming = asyncio.create_task(node.memory.enter(led, key, newer, registering))
    await asyncio.sleep(0)
    sweeping = asyncio.create_task(node.memory.sweep(node_id=node_id))
    await leaving
    await registering.begun.wait()
    if ends:
        coming.cancel()
    registering.go.set()
    await asyncio.wait({coming, sweeping})
    await node.memory.sweep(node_id=node_id)
    assert node.memory.holds(led, key, newer) is not ends
    assert await consumers(node, group) == ([] if ends else ["a"])


async def test_a_grace_begins_only_when_the_registration_is_written(node: Node, group: Group) -> None:
    """A socket that ends while a slow database registers its consumer, with a grace shorter than that."""
    await without_grace(node)
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key = (await key_of(node, group))[0], "b"
    registering = Registering(node, group, key)
    coming = asyncio.create_task(node.memory.enter(led, key, Connection(), registering))
    await registering.begun.wait()
    coming.cancel()
    sweeping = asyncio.create_task(node.memory.sweep(node_id=node_id))
    for _ in range(3):
        await asyncio.sleep(0.01)  # a sweep that did not wait would be over by now
    registering.go.set()
    await asyncio.wait({coming, sweeping})
    await node.memory.sweep(node_id=node_id)
    assert await consumers(node, group) == []
    assert node.memory.state(group.topic.incarnation, key) is SessionState.UNKNOWN


async def test_nobody_enters_what_is_led_no_longer(node: Node, group: Group) -> None:
    """Else nobody would look after its session."""
    node_id = group.leader.node_id
    led = await node.memory.lead(group.topic.name, node_id=node_id)
    key = await key_of(node, group)
    await node.executor.call(controller.remove_node, node_id=node_id)
    await node.executor.call(leader_of, group.topic)
    await node.memory.sweep(node_id=node_id)
    with pytest.raises(NotLeader):
        await node.memory.enter(led, key, Connection(), Registering(node, group, key))
