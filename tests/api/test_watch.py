"""The DAG watch over real sockets of real nodes; the test itself commits the changes."""

import asyncio
import uuid

import pytest
import redis
from django.db import transaction
from pytest_django.fixtures import Settings

from launch.sandbox import LiveNode, ProcessFactory
from scalable.client import Producer
from scalable.client.topology import Topology
from scalable.domain.names import TopicName
from scalable.services import controller, scaling, topics
from scalable.wire.frames import PROTOCOL_VERSION, Attach, ErrorFrame, Gone, Hello, Snapshot
from tests.api.peers import ask, raw_socket
from tests.api.watchers import (
    ACTOR,
    create,
    create_with_history,
    grown_layout,
    lookup_path,
    merge,
    split,
    watching,
)

NAME = TopicName("public", "default", "watched")
HEAL_SECONDS = 5.0
NEVER = "3600"


def source_of(topology: Topology, field: str) -> object:
    """Where a field of the effective policy comes from."""
    assert topology.detail is not None
    sources = topology.detail.policy["sources"]
    assert isinstance(sources, dict)
    return sources[field]


async def test_a_snapshot_and_then_what_changes(live_node: LiveNode) -> None:
    await ask(create, NAME, segments=2)
    async with watching(live_node, NAME, session_id="mine") as watcher:
        assert [segment.nodeUrl for segment in watcher.topology.active] == [live_node.url] * 2
        await ask(split, NAME, 0)
        topology = await watcher.until_epoch(1)
        assert [segment.segmentId for segment in topology.active] == [2, 3, 1]
        assert (topology.segments[0].state, topology.segments[0].nodeUrl) == ("SEALED", None)
        (told,) = watcher.deltas  # the steps in between are no news to who watches the layout
        assert told.session_id == "mine"
        assert [segment.segmentId for segment in told.segments] == [0, 2, 3]


async def test_any_node_serves_the_watch(processes: ProcessFactory) -> None:
    await ask(create, NAME)
    nodes = [processes.node(), processes.node()]
    async with watching(nodes[0], NAME) as one, watching(nodes[1], NAME) as other:
        await ask(split, NAME, 0)
        assert (await one.until_epoch(1)).epoch == (await other.until_epoch(1)).epoch


async def test_the_leader_is_told_and_its_end(live_node: LiveNode) -> None:
    await ask(create, NAME)
    leader = uuid.uuid4()
    async with watching(live_node, NAME) as watcher:
        assert watcher.topology.controller_url is None
        await ask(controller.heartbeat_node, node_id=leader, url="https://leader.example:8443")
        await ask(controller.acquire_leadership, name=NAME, node_id=leader)
        topology = await watcher.until(lambda topology: topology.controller_url is not None)
        assert topology.controller_url == topology.controller_url_tls == "https://leader.example:8443"
        assert topology.term == 1
        await ask(controller.remove_node, node_id=leader)
        await watcher.until(lambda topology: topology.controller_url is None, within_seconds=HEAL_SECONDS)


async def test_details_for_a_dashboard(live_node: LiveNode) -> None:
    await ask(create, NAME)
    async with watching(live_node, NAME, detail="full") as watcher:
        assert watcher.topology.detail is not None
        assert watcher.topology.detail.operations == []
        assert not watcher.topology.detail.loadKnown
        operation = await ask(scaling.request_split, name=NAME, segment_id=0, actor=ACTOR)
        seen = await watcher.until(lambda topology: bool(topology.detail and topology.detail.operations))
        assert seen.detail is not None
        assert seen.detail.operations[0]["operationId"] == operation.operation_id
        assert seen.detail.operations[0]["phase"] == "PLANNED"
        await ask(topics.set_auto_scale_policy, name=NAME, override={"maxSegments": 7}, actor=ACTOR)
        await watcher.until(lambda topology: source_of(topology, "maxSegments") == "topic")


async def test_details_are_not_pushed_to_those_who_watch_the_layout(live_node: LiveNode) -> None:
    await ask(create, NAME)
    async with watching(live_node, NAME) as watcher:
        assert watcher.topology.detail is None
        await ask(topics.set_auto_scale_policy, name=NAME, override={"maxSegments": 7}, actor=ACTOR)
        await ask(scaling.request_split, name=NAME, segment_id=0, actor=ACTOR)
        assert await watcher.stays_silent(1.0)


# The ends of a session.


async def test_an_explicit_close(live_node: LiveNode) -> None:
    await ask(create, NAME)
    async with watching(live_node, NAME) as watcher:
        await watcher.peer.send_raw('{"type":"close"}')
        assert await watcher.peer.close_code() == 1000


async def test_an_unknown_topic(live_node: LiveNode) -> None:
    async with raw_socket(live_node, lookup_path(NAME)) as peer:
        await peer.send(Hello(protocol=PROTOCOL_VERSION))
        assert (await peer.wait_for(ErrorFrame)).code == "topic_not_found"
        assert await peer.close_code() == 4404


async def test_a_deleted_topic_and_one_made_again(live_node: LiveNode) -> None:
    first = await ask(create, NAME)
    async with watching(live_node, NAME) as watcher:
        await ask(topics.delete_topic, name=NAME, actor=ACTOR)
        second = await ask(create, NAME)
        gone = await watcher.next()
        assert gone == Gone(topic=str(NAME), incarnation=first.incarnation)
        assert await watcher.peer.close_code() == 4410
    async with watching(live_node, NAME) as watcher:
        assert watcher.topology.incarnation == second.incarnation


async def test_frames_of_another_kind_of_session(live_node: LiveNode) -> None:
    await ask(create, NAME)
    async with watching(live_node, NAME) as watcher:
        await watcher.peer.send(Attach(segment_id=0, generation=0, permits=1))
        assert (await watcher.peer.wait_for(ErrorFrame)).code == "frame_unknown_type"
        assert await watcher.peer.close_code() == 4400
    async with watching(live_node, NAME) as other:  # the node goes on serving others
        assert other.topology.epoch == 0


async def test_the_server_pings_and_notices_who_does_not_answer(processes: ProcessFactory) -> None:
    """A silent watch stays open behind a proxy that cuts idle connections; a peer that is gone is let go."""
    node = processes.node(UVICORN_WS_PING_INTERVAL="0.2", UVICORN_WS_PING_TIMEOUT="0.5")
    await ask(create, NAME)
    async with watching(node, NAME) as watcher, watching(node, NAME) as gone:
        gone.peer.connection.transport.pause_reading()
        assert await watcher.stays_silent(2.0)
        gone.peer.connection.transport.resume_reading()
        assert await gone.peer.close_code() == 1011
        await ask(split, NAME, 0)
        await watcher.until_epoch(1)  # it answered, and is still there


# Lost hints.


async def test_a_lost_hint_heals_by_itself(live_node: LiveNode, settings: Settings) -> None:
    await ask(create, NAME)
    settings.SCALABLE_HINTS_ENABLED = False
    async with watching(live_node, NAME) as watcher:
        await ask(split, NAME, 0)
        await watcher.until_epoch(1, within_seconds=HEAL_SECONDS)


async def test_a_cut_feed_of_hints(processes: ProcessFactory, redis_url: str, settings: Settings) -> None:
    """What was missed while the link was down is read when it is up again, without any further change."""
    node = processes.node(SCALABLE_WATCH_RESYNC_SECONDS=NEVER)
    await ask(create, NAME)
    async with watching(node, NAME) as watcher:
        settings.SCALABLE_HINTS_ENABLED = False
        await ask(split, NAME, 0)
        assert await watcher.stays_silent(0.5)
        with redis.Redis.from_url(redis_url) as server:
            assert server.client_kill_filter(_type="pubsub") == 1
        await watcher.until_epoch(1, within_seconds=HEAL_SECONDS)


async def test_a_cut_socket(live_node: LiveNode) -> None:
    await ask(create, NAME)
    async with watching(live_node, NAME) as watcher:
        watcher.peer.connection.transport.abort()
    await ask(split, NAME, 0)
    async with watching(live_node, NAME) as watcher:
        assert watcher.topology.epoch == 1


# Commits.


async def test_nothing_is_told_before_the_commit(live_node: LiveNode) -> None:
    await ask(create, NAME)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow_commit() -> None:
        with transaction.atomic():
            split(NAME, 0)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)

    async with watching(live_node, NAME) as watcher:
        committing = asyncio.create_task(ask(slow_commit))
        assert await watcher.stays_silent(1.0)
        release.set()
        await committing
        await watcher.until_epoch(1)


async def test_a_rollback_is_told_to_nobody(live_node: LiveNode) -> None:
    await ask(create, NAME)

    def rolled_back() -> None:
        with transaction.atomic():
            split(NAME, 0)
            transaction.set_rollback(True)

    async with watching(live_node, NAME) as watcher:
        await ask(rolled_back)
        assert await watcher.stays_silent(1.0)


async def test_a_long_history_under_a_long_name(live_node: LiveNode) -> None:
    """A hint carries ids alone, so that no size of a name or a layout stands in the way of a commit."""
    name = TopicName("public", "default", "ü" * 255)
    layout = await ask(grown_layout, active=64, sealed=500)
    await ask(create_with_history, name, layout)
    async with watching(live_node, name) as watcher:
        assert len(watcher.topology.segments) == len(layout.segments) >= 564
        await ask(split, name, layout.active[7].segment_id)
        topology = await watcher.until_epoch(layout.epoch + 1)
        assert len(topology.active) == 65
    async with Producer(live_node.url, name, live_node.admin_token) as producer:
        await producer.send("ü" * 255, b"x" * 1024 * 1024)


# Everything together.


@pytest.mark.parametrize("detail", ["layout", "full"])
async def test_what_deltas_add_up_to_is_what_a_newcomer_sees(live_node: LiveNode, detail: str) -> None:
    await ask(create, NAME, segments=4)
    async with watching(live_node, NAME, detail=detail) as watcher:  # type: ignore[arg-type]
        await ask(split, NAME, 0)
        await ask(merge, NAME, 5, 1)
        await ask(topics.set_auto_scale_policy, name=NAME, override={"enabled": False}, actor=ACTOR)
        await ask(split, NAME, 6)
        await ask(controller.heartbeat_node, node_id=uuid.uuid4(), url="http://leader")
        await watcher.until_epoch(3)
        async with watching(live_node, NAME, detail=detail) as newcomer:  # type: ignore[arg-type]
            seen = newcomer.topology
            await watcher.until(lambda topology: topology.segments == seen.segments)
            await watcher.until(lambda topology: topology.detail == seen.detail)


async def test_newcomers_at_every_moment_of_a_split(live_node: LiveNode) -> None:
    """Whenever a watcher comes, it ends with the newest epoch, though nothing changes after it came."""
    await ask(create, NAME, segments=8)

    async def newcomer(delay_seconds: float) -> None:
        await asyncio.sleep(delay_seconds)
        async with watching(live_node, NAME) as watcher:
            await watcher.until_epoch(8)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(newcomer(number * 0.01))
        for segment_id in range(8):
            await ask(split, NAME, segment_id)


async def test_what_a_session_is_told_never_goes_back(live_node: LiveNode) -> None:
    await ask(create, NAME, segments=4)
    async with watching(live_node, NAME) as watcher:
        for segment_id in range(4):
            await ask(split, NAME, segment_id)
        await watcher.until_epoch(4)
        revisions = [frame.revision for frame in watcher.deltas]
        assert revisions == sorted(revisions)
        assert not any(isinstance(frame, Snapshot) for frame in watcher.deltas)
