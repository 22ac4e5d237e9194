"""A bare peer of the namespace watch for tests, that holds what its frames add up to."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from launch.sandbox import LiveNode
from scalable.client.namespace_watch import TopicsFeed
from scalable.domain.names import TopicName
from scalable.services import topics
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Frame,
    Hello,
    TopicsDiff,
    TopicsSnapshot,
    WatchTopics,
    Welcome,
)
from tests.api.peers import Peer, raw_socket

ACTOR = "test"
WITHIN_SECONDS = 30.0


class ListPeer:
    """One watch socket, and the list of names that its frames add up to."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.names: set[str] = set()
        self.frames: list[TopicsSnapshot | TopicsDiff] = []
        self._feed = TopicsFeed(self.names)

    @property
    def diffs(self) -> list[TopicsDiff]:
        """The differences that came."""
        return [frame for frame in self.frames if isinstance(frame, TopicsDiff)]

    async def next(self) -> Frame:
        """The next frame, applied to the list."""
        frame = await self.peer.receive()
        assert isinstance(frame, Frame)
        if isinstance(frame, TopicsSnapshot | TopicsDiff):
            self.frames.append(frame)
            self._feed.take(frame)
        return frame

    async def next_diff(self) -> TopicsDiff:
        """The next frame, which must be a difference."""
        frame = await self.next()
        assert isinstance(frame, TopicsDiff), frame
        return frame

    async def snapshot(self) -> set[str]:
        """Take the whole list."""
        while True:
            frame = await self.next()
            assert isinstance(frame, TopicsSnapshot), frame
            if not frame.remaining:
                return self.names

    async def until(self, names: set[str]) -> None:
        """Receive until exactly these are held."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while self.names != names:
                await self.next()

    async def stays_silent(self, seconds: float) -> bool:
        """True when no frame comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self.next()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def list_socket(
    node: LiveNode,
    namespace: str,
    *,
    filters: Mapping[str, str] | None = None,
    known_hash: str | None = None,
    token: str | None = None,
) -> AsyncIterator[ListPeer]:
    """Open a watch and take its welcome."""
    async with raw_socket(node, f"topics/{namespace}", token=token) as peer:
        await peer.send(Hello(protocol=PROTOCOL_VERSION))
        await peer.send(WatchTopics(filters=dict(filters or {}), hash=known_hash))
        watcher = ListPeer(peer)
        assert isinstance(await watcher.next(), Welcome)
        yield watcher


@asynccontextmanager
async def listing(
    node: LiveNode, namespace: str, *, filters: Mapping[str, str] | None = None
) -> AsyncIterator[ListPeer]:
    """Open a watch and take its list."""
    async with list_socket(node, namespace, filters=filters) as watcher:
        await watcher.snapshot()
        yield watcher


def name_in(namespace: str, name: str) -> TopicName:
    """The full name of a topic."""
    return TopicName.parse(f"topic://{namespace}/{name}")


def create(namespace: str, name: str, **properties: str) -> str:
    """Create a topic and give its full name."""
    found = name_in(namespace, name)
    topics.create_topic(name=found, properties=properties, actor=ACTOR)
    return str(found)


def delete(namespace: str, name: str) -> None:
    """Delete a topic."""
    topics.delete_topic(name=name_in(namespace, name), actor=ACTOR)
