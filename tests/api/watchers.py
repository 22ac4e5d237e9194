"""A watcher for tests: a bare peer of the DAG watch that holds what its frames add up to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from django.db import transaction

from launch.sandbox import LiveNode
from scalable.client.topology import Topology, apply_delta, from_snapshot
from scalable.domain.layout import Layout
from scalable.domain.names import TopicName
from scalable.services import driver, scaling, topics
from scalable.services.topics import TopicView
from scalable.store import topics as store
from scalable.store.clock import database_now, milliseconds
from scalable.wire.frames import PROTOCOL_VERSION, Delta, Frame, Hello, Snapshot, Welcome
from tests.api.peers import Peer, raw_socket

ACTOR = "test"


class Watcher:
    """One watch socket, and the topology that its frames add up to."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.deltas: list[Delta] = []
        self._topology: Topology | None = None

    @property
    def topology(self) -> Topology:
        """What is known by now."""
        assert self._topology is not None, "no snapshot came yet"
        return self._topology

    async def next(self) -> Frame:
        """The next frame, applied to the topology."""
        frame = await self.peer.receive()
        if isinstance(frame, Snapshot):
            self._topology = from_snapshot(frame)
        elif isinstance(frame, Delta):
            self.deltas.append(frame)
            self._topology = apply_delta(self.topology, frame)
        assert isinstance(frame, Frame)
        return frame

    async def until(self, holds: Callable[[Topology], bool], *, within_seconds: float = 20) -> Topology:
        """Receive until a condition on the topology holds."""
        async with asyncio.timeout(within_seconds):
            while not holds(self.topology):
                await self.next()
        return self.topology

    async def until_epoch(self, epoch: int, *, within_seconds: float = 20) -> Topology:
        """Receive until the topology has reached the epoch."""
        return await self.until(lambda topology: topology.epoch >= epoch, within_seconds=within_seconds)

    async def stays_silent(self, seconds: float) -> bool:
        """True when no frame comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self.next()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def watching(
    node: LiveNode,
    name: TopicName,
    *,
    detail: Literal["layout", "full"] = "layout",
    session_id: str = "session",
) -> AsyncIterator[Watcher]:
    """Open a watch and take its welcome and its snapshot."""
    async with raw_socket(node, lookup_path(name)) as peer:
        await peer.send(Hello(protocol=PROTOCOL_VERSION, session_id=session_id, detail=detail))
        watcher = Watcher(peer)
        assert isinstance(await watcher.next(), Welcome)
        assert isinstance(await watcher.next(), Snapshot)
        yield watcher


def lookup_path(name: TopicName) -> str:
    """The path of a topic's watch below the root of all sockets."""
    return f"lookup/{name.path}"


def create(name: TopicName, *, segments: int = 1) -> TopicView:
    """Create a topic."""
    return topics.create_topic(name=name, initial_segments=segments, actor=ACTOR)


def create_with_history(name: TopicName, layout: Layout) -> TopicView:
    """Create a topic that has this layout already, with a store for each active segment."""
    with transaction.atomic():
        topic = store.insert(name=name, layout=layout, properties={}, created_at=database_now())
    topics.heal_topic(incarnation=topic.incarnation)
    return topic


def grown_layout(*, active: int, sealed: int) -> Layout:
    """A layout with this many active and sealed segments, grown by splits and merges."""
    layout = Layout.initial(active, milliseconds(database_now()))
    while len(layout.segments) - len(layout.active) < sealed:
        split = layout.plan_split(layout.active[0].segment_id)
        layout = layout.reserve(split).apply(split, now_ms=layout.epoch)
        merge = layout.plan_merge(split.child_ids)
        layout = layout.reserve(merge).apply(merge, now_ms=layout.epoch)
    return layout


def split(name: TopicName, segment_id: int) -> int:
    """Split a segment here and now, and give the new epoch."""
    operation = scaling.request_split(name=name, segment_id=segment_id, actor=ACTOR)
    driver.drive_operation(operation_id=operation.operation_id, runner=ACTOR)
    return topics.get_topic(name=name).epoch


def merge(name: TopicName, *segment_ids: int) -> int:
    """Merge segments here and now, and give the new epoch."""
    operation = scaling.request_merge(name=name, segment_ids=segment_ids, actor=ACTOR)
    driver.drive_operation(operation_id=operation.operation_id, runner=ACTOR)
    return topics.get_topic(name=name).epoch
