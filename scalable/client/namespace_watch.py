"""The namespace watch: which topics have certain properties, as the server pushes it (PR-25648)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from scalable.client.connection import Connection, ConnectionLost, Endpoint, open_connection
from scalable.client.watch import CLOSED, Watch
from scalable.domain.names import NamespaceName, TopicName
from scalable.domain.topic_list import hash_of
from scalable.wire.frames import PROTOCOL_VERSION, Hello, TopicsDiff, TopicsSnapshot, WatchTopics


class GenerationGap(Exception):
    """A push is missing before this one; the list has to be read anew."""


@dataclass(frozen=True, slots=True)
class TopicsChange:
    """What changed at once: all of `removed` first; a topic in both was deleted and made again."""

    removed: tuple[TopicName, ...]
    added: tuple[TopicName, ...]


class TopicsFeed:
    """What the pushes of one connection add up to; `held` is the list of before, and is kept up to date."""

    def __init__(self, held: set[str]) -> None:
        self._held = held
        self._generation = 0
        self._parts: set[str] = set()
        self._remaining = 0

    def take(self, frame: TopicsSnapshot | TopicsDiff) -> TopicsChange | None:
        """Apply a push and give what it changed; None amid a list of several parts. Raises GenerationGap."""
        if frame.generation != self._generation + 1:
            raise GenerationGap(f"push {frame.generation} came behind {self._generation}")
        self._generation = frame.generation
        if isinstance(frame, TopicsDiff):
            if self._remaining:
                raise GenerationGap(f"{self._remaining} parts of the list did not come")
            return self._apply(frame.removed, frame.added)
        self._parts.update(frame.topics)
        self._remaining = frame.remaining
        if frame.remaining:
            return None
        found, self._parts = self._parts, set()
        return self._apply(sorted(self._held - found), sorted(found - self._held))

    def _apply(self, removed: Iterable[str], added: Iterable[str]) -> TopicsChange:
        self._held.difference_update(removed)
        self._held.update(added)
        return TopicsChange(*(tuple(TopicName.parse(name) for name in names) for names in (removed, added)))


class NamespaceWatch(Watch[frozenset[TopicName]]):
    """Follows the topics of a namespace that have all of some properties, over one socket.

    It reconnects by itself, and hears nothing then unless something changed meanwhile. `on_change` is called
    in the event loop with each change, the first of which adds all topics that there are; what it raises ends
    the watch.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        namespace: NamespaceName | str,
        *,
        properties: Mapping[str, str] | None = None,
        client: str = "python",
        on_change: Callable[[TopicsChange], None] | None = None,
    ) -> None:
        """Take a namespace, as `tenant/namespace`; raises InvalidName."""
        self.namespace = namespace if isinstance(namespace, NamespaceName) else NamespaceName.parse(namespace)
        self.properties = dict(properties or {})
        super().__init__(endpoint, self.namespace, client=client)
        self._on_change = on_change
        self._held: set[str] = set()
        self._known = False
        self._topics: frozenset[TopicName] | None = None

    @property
    def topics(self) -> frozenset[TopicName]:
        """Give the topics that match, as far as they are known."""
        if self._topics is None:
            self._topics = frozenset(TopicName.parse(name) for name in self._held)
        return self._topics

    def _state(self) -> frozenset[TopicName] | None:
        return self.topics if self._known else None

    async def _session(self) -> None:
        hello = Hello(protocol=PROTOCOL_VERSION, client=self._client, session_id=self._session_id)
        connection = await open_connection(self._endpoint, "topics", self.namespace, hello=hello)
        try:
            known_hash = await asyncio.to_thread(hash_of, self._held) if self._known else None
            await connection.send(WatchTopics(filters=self.properties, hash=known_hash))
            # Not with the first push: none comes to whoever holds the list already.
            self.backoff.reset()
            await self._follow(connection)
        except GenerationGap as gap:
            raise ConnectionLost(CLOSED, str(gap)) from gap
        finally:
            await connection.close()

    async def _follow(self, connection: Connection) -> None:
        feed = TopicsFeed(self._held)
        while True:
            frame = await connection.receive()
            if isinstance(frame, TopicsSnapshot | TopicsDiff) and (change := feed.take(frame)) is not None:
                self._adopt(change)

    def _adopt(self, change: TopicsChange) -> None:
        self._known, self._topics = True, None
        self._pulse()
        self._tell(self._on_change, change)
