"""Consumer sessions at the leader: lost and late connections, grace, leaving, leaders that come and go."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from launch.sandbox import LiveNode, ProcessFactory
from scalable.api.leader import SessionState
from scalable.api.node import node as this_node
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import subscriptions
from scalable.services.topics import TopicView
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Assignment,
    ErrorFrame,
    Hello,
    Leave,
    Register,
    Released,
    Welcome,
    encode,
)
from tests.api.members import CONTROL, Member, member, version
from tests.api.peers import ask, eventually, raw_socket, socket
from tests.api.stalled import StalledPeer
from tests.topology import make_topic

SHORT_GRACE = {"SCALABLE_SESSION_GRACE_SECONDS": "1.5"}
LONG_GRACE = {"SCALABLE_SESSION_GRACE_SECONDS": "600"}
QUICK_FAILOVER = {"SCALABLE_NODE_HEARTBEAT_SECONDS": "0.2", "SCALABLE_NODE_TIMEOUT_SECONDS": "1.5"}


@pytest.fixture
def topic(processes: ProcessFactory) -> TopicView:
    """The topic `orders` with four segments."""
    return make_topic("orders", segments=4)


async def share(a: Member, b: Member) -> None:
    """Let the second of two members get its half."""
    releasing = [segment_id for segment_id, _ in (await a.next_assignment()).releasing]
    for segment_id in releasing:
        released = Released(segment_id=segment_id, generation=a.owned[segment_id])
        await a.peer.send(released)
    await a.until_owned(*(set(a.owned) - set(releasing)))
    await b.until_owned(*releasing)


async def nothing_is_pushed(to: Member, seconds: float) -> None:
    """No assignment comes for a while."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await to.peer.connection.recv()


async def owners(topic: TopicView) -> dict[int, str | None]:
    """Who owns which segment, as written down."""

    def read() -> dict[int, str | None]:
        (subscription,) = store.of_topic(topic.incarnation)
        owned = store.ownerships(subscription.subscription_id).owned
        return {key.segment_id: known.owner for key, known in owned.items()}

    return await ask(read)


async def test_who_comes_back_in_time_finds_its_segments_and_disturbs_nobody(
    processes: ProcessFactory, topic: TopicView
) -> None:
    node = processes.node(**LONG_GRACE)
    async with member(node, "b") as b:
        async with member(node, "a") as a:
            await share(b, a)
            before = a.owned
            a.peer.connection.transport.abort()
        async with member(node, "a") as back:
            assert (back.owned, len(before)) == (before, 2)
            assert version(back.assignment) == version(a.assignment)
        await nothing_is_pushed(b, 1)


async def test_a_change_is_told_to_those_whom_it_concerns(
    processes: ProcessFactory, topic: TopicView
) -> None:
    node = processes.node(**LONG_GRACE)
    async with member(node, "a") as a, member(node, "b") as b:
        await share(a, b)
        async with member(node, "c") as c:
            (segment_id, _) = (await b.next_assignment()).releasing[0]
            await b.peer.send(Released(segment_id=segment_id, generation=b.owned[segment_id]))
            await c.until_owned(segment_id)
            await b.until_owned(*(set(b.owned) - {segment_id}))
            await nothing_is_pushed(a, 1)


async def test_a_socket_that_stands_in_a_send_ends_with_its_connection_and_the_grace_begins(
    transactional_db: None, redis_url: str
) -> None:
    subscription = await ask(_group)
    key = subscription.subscription_id, "a"
    await this_node.start()
    try:
        peer = StalledPeer(CONTROL)
        await peer.open(consumer="a")
        await peer.session.send(type="websocket.receive", text=encode(Register()))
        await eventually(lambda: _is(SessionState.CONNECTED, subscription.incarnation, key))
        assert [message["type"] for message in peer.sent] == ["websocket.accept"]
        await peer.session.send(type="websocket.disconnect", code=1006)
        await eventually(lambda: _is(SessionState.GRACE, subscription.incarnation, key))
        await peer.session.ended()
    finally:
        await this_node.stop()


def _group() -> SubscriptionView:
    topic = make_topic("orders")
    return subscriptions.create_subscription(name=topic.name, subscription="s", kind=SubscriptionType.STREAM)


async def _is(state: SessionState, incarnation: int, key: tuple[int, str]) -> bool:
    return this_node.leader.state(incarnation, key) is state


async def test_whose_grace_is_over_loses_its_segments_and_may_come_back(
    processes: ProcessFactory, topic: TopicView
) -> None:
    node = processes.node(**SHORT_GRACE)
    async with member(node, "b") as b:
        async with member(node, "a") as a:
            await share(b, a)
        await b.until_owned(0, 1, 2, 3)
        async with member(node, "a") as back:
            await share(b, back)
            assert len(back.owned) == 2


async def test_the_newer_connection_wins_and_the_late_end_of_the_older_harms_nothing(
    processes: ProcessFactory, topic: TopicView
) -> None:
    node = processes.node(**SHORT_GRACE)
    async with member(node, "a") as old, member(node, "a") as new:
        assert (await old.peer.expect(ErrorFrame)).code == "session_superseded"
        assert await old.peer.close_code() == 4423
        assert new.owned == old.owned
        await nothing_is_pushed(new, 3)
        assert set((await owners(topic)).values()) == {"a"}


async def test_who_leaves_is_replaced_at_once(processes: ProcessFactory, topic: TopicView) -> None:
    node = processes.node(**LONG_GRACE)
    async with member(node, "b") as b:
        async with member(node, "a") as a:
            await share(b, a)
            await a.peer.send(Leave())
            assert await a.peer.close_code() == 1000
        await b.until_owned(0, 1, 2, 3)
        async with socket(node, CONTROL, consumer="b") as stranger:
            await stranger.expect(Welcome)
            await stranger.send(Leave())
            assert await stranger.close_code() == 1000
        await nothing_is_pushed(b, 0.5)


async def test_a_leave_that_is_followed_at_once_by_the_end_of_the_connection_counts(
    processes: ProcessFactory, topic: TopicView
) -> None:
    """The frames of one write: registration, leave, and the connection is cut without waiting for a word."""
    node = processes.node(**LONG_GRACE)
    async with member(node, "b") as b:
        async with member(node, "a") as a:
            await share(b, a)
            await a.peer.send(Leave())
            a.peer.connection.transport.close()
        await b.until_owned(0, 1, 2, 3)
        before = await generation(topic)
        async with socket(node, CONTROL, consumer="c") as hasty:
            await hasty.send(Register())
            await hasty.send(Leave())
            hasty.connection.transport.close()

        async def was_registered() -> bool:
            return await generation(topic) > before

        await eventually(was_registered)  # `b` may hear nothing of it: what it has may be as before
        await eventually(lambda: are_registered(topic, "b"))
        assert await owners(topic) == dict.fromkeys(range(4), "b")


async def generation(topic: TopicView) -> int:
    """The generation of the subscription's owners."""
    (subscription,) = await ask(store.of_topic, topic.incarnation)
    return subscription.generation


async def test_a_leave_for_the_session_of_a_former_leader_ends_a_grace_and_nobody_who_is_here(
    processes: ProcessFactory, topic: TopicView
) -> None:
    """It registers nothing: that would take the session of a successor of the name."""
    node = processes.node(**LONG_GRACE)
    async with member(node, "b") as b:
        async with member(node, "a") as a:
            await share(b, a)
            await leave_from_elsewhere(node, a)
            await nothing_is_pushed(a, 0.5)
            a.peer.connection.transport.abort()

        async def left() -> bool:
            await leave_from_elsewhere(node, a)
            return await are_registered(topic, "b")

        await eventually(left)
        await b.until_owned(0, 1, 2, 3)
        await leave_from_elsewhere(node, a)
        await nothing_is_pushed(b, 0.5)


async def test_a_leave_ends_the_peers_own_session_on_a_connection_that_only_the_peer_knows_to_be_broken(
    processes: ProcessFactory, topic: TopicView
) -> None:
    """A namesake's session, of another id, stays."""
    node = processes.node(**LONG_GRACE)
    async with member(node, "b") as b, member(node, "a", session_id="mine") as a:
        await share(b, a)
        for session_id in ("", "another"):
            await leave_from_elsewhere(node, a, session_id=session_id)
        await nothing_is_pushed(a, 0.5)
        await leave_from_elsewhere(node, a, session_id="mine")
        assert await are_registered(topic, "b")
        await b.until_owned(0, 1, 2, 3)


async def leave_from_elsewhere(node: LiveNode, left: Member, *, session_id: str = "") -> None:
    """Leave on a new socket, which knows what the member was told and registers nothing."""
    told = left.assignment
    async with raw_socket(node, CONTROL) as peer:
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            session_id=session_id,
            consumer="a",
            incarnation=told.incarnation,
            subscription_id=told.subscription_id,
        )
        await peer.send(hello)
        await peer.expect(Welcome)
        await peer.send(Leave())
        assert await peer.close_code() == 1000


async def are_registered(topic: TopicView, *names: str) -> bool:
    """Tell whether exactly these consumers are registered."""
    return [name for _, name in await registered(topic)] == list(names)


async def test_leaving_twice_is_fine(processes: ProcessFactory, topic: TopicView) -> None:
    node = processes.node(**LONG_GRACE)
    for _ in range(2):
        async with member(node, "a") as a:
            await a.peer.send(Leave())
            await a.peer.send(Leave())
            assert await a.peer.close_code() == 1000
    assert await registered(topic) == []


async def test_a_registration_whose_answer_was_lost_is_repeated(
    processes: ProcessFactory, topic: TopicView
) -> None:
    node = processes.node(**LONG_GRACE)
    async with socket(node, CONTROL, consumer="a") as lost:
        await lost.expect(Welcome)
        await lost.send(Register())
        await eventually(lambda: registered(topic))
        lost.connection.transport.abort()
    async with member(node, "a") as again:
        assert set(again.owned) == {0, 1, 2, 3}
        await again.peer.send(Register())
        assert (await again.peer.expect(ErrorFrame)).code == "frame_invalid"


async def registered(topic: TopicView) -> list[tuple[int, str]]:
    """The registered consumers."""
    return await ask(store.registrations, topic.incarnation)


async def test_another_node_names_the_leader(processes: ProcessFactory, topic: TopicView) -> None:
    first, second = processes.node(**LONG_GRACE), processes.node(**LONG_GRACE)
    async with member(first, "a"), socket(second, CONTROL, consumer="b") as elsewhere:
        await elsewhere.expect(Welcome)
        await elsewhere.send(Register())
        refused = await elsewhere.expect(ErrorFrame)
        assert (refused.code, refused.fields["url"]) == ("not_leader", first.url)
        assert await elsewhere.close_code() == 4421


async def test_a_new_leader_keeps_everyone_for_a_full_grace(
    processes: ProcessFactory, topic: TopicView
) -> None:
    timing = {"SCALABLE_SESSION_GRACE_SECONDS": "4", **QUICK_FAILOVER}
    first = processes.node(**timing)
    async with member(first, "a") as a, member(first, "b") as b:
        await share(a, b)
        kept = a.owned
        first.process.send_signal(signal.SIGKILL)
    second = processes.node(**timing)
    await eventually(lambda: leads(second, topic))
    async with member(second, "a") as back:
        assert back.owned == kept
        assert version(back.assignment) > version(a.assignment)
        assert back.assignment.term == a.assignment.term + 1
        await back.until_owned(0, 1, 2, 3)


async def leads(node: LiveNode, topic: TopicView) -> bool:
    """Tell whether a node can lead the topic by now."""
    async with socket(node, CONTROL, consumer="probe") as peer:
        await peer.expect(Welcome)
        await peer.send(Register())
        if not isinstance(await peer.receive(), Assignment):
            return False
        await peer.send(Leave())
        await peer.close_code()
        return True


async def test_a_leader_that_wakes_up_too_late_changes_nothing(
    processes: ProcessFactory, topic: TopicView
) -> None:
    timing = {"SCALABLE_SESSION_GRACE_SECONDS": "600", **QUICK_FAILOVER}
    first, second = processes.node(**timing), processes.node(**timing)
    async with member(first, "a") as old:
        with paused(first):
            await eventually(lambda: leads(second, topic))
            async with member(second, "b") as b:
                await nothing_is_pushed(old, 0.1)
                before = await owners(topic)
                assert b.assignment.term > old.assignment.term
        assert (await old.peer.wait_for(ErrorFrame)).code in {"term_superseded", "not_leader"}
        assert await old.peer.close_code() in {4409, 4421}
        assert await owners(topic) == before


@contextmanager
def paused(node: LiveNode) -> Iterator[None]:
    """Stop a node in its tracks, then let it go on."""
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


async def test_a_queue_subscription_has_no_sessions(processes: ProcessFactory, topic: TopicView) -> None:
    node = processes.node()
    await ask(
        subscriptions.create_subscription, name=topic.name, subscription="s", kind=SubscriptionType.QUEUE
    )
    async with socket(node, CONTROL, consumer="a") as peer:
        await peer.expect(Welcome)
        await peer.send(Register())
        assert (await peer.expect(ErrorFrame)).code == "subscription_type_mismatch"
        assert await peer.close_code() == 4409
