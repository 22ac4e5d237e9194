"""One feed per watched topic and node: reads once for all its watchers and builds each frame once.

A feed joins the hub before it reads, so that no change falls between reading and listening. It reads again at
each hint, and at a slow pace without any, because hints may be lost.
"""

import asyncio
import logging
from typing import Protocol

import msgspec
from django.conf import settings

from scalable.api.crowds import SharedReads
from scalable.api.hub import activity_key, hub, topic_key
from scalable.api.node import node
from scalable.domain.names import TopicName
from scalable.services import watching
from scalable.services.watching import Topology
from scalable.wire.frames import Delta, Snapshot, encode

logger = logging.getLogger(__name__)

_SESSION_FIELD = '"session_id":""'


class Watcher(Protocol):
    """Who is told: a socket with the name that its client gave to the session."""

    def push(self, frame: str) -> None:
        """Send a frame, or close a reader that is too far behind."""

    def gone(self, incarnation: int) -> None:
        """Say that the topic was deleted, and close."""


class Shared:
    """A frame that was encoded once; each watcher's copy differs in the session id alone."""

    def __init__(self, frame: Snapshot | Delta) -> None:
        self._head, self._tail = encode(frame).split(_SESSION_FIELD, 1)

    def text(self, session_field: str) -> str:
        """The frame for one session."""
        return f"{self._head}{session_field}{self._tail}"


def session_field(session_id: str) -> str:
    """The part of a frame that names the session."""
    return f'"session_id":{msgspec.json.encode(session_id).decode()}'


class Feed:
    """The watchers of one topic at one level of detail, who all hold the same state."""

    def __init__(self, incarnation: int, *, detail: bool) -> None:
        self.incarnation = incarnation
        self.detail = detail
        self._watchers: dict[Watcher, str] = {}
        self._state: Topology | None = None
        self._snapshot: Shared | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    def __len__(self) -> int:
        return len(self._watchers)

    def join(self, watcher: Watcher, *, session_id: str) -> None:
        """Tell the state, as soon as it is known, and then each change."""
        if self._ended:
            watcher.gone(self.incarnation)
            return
        field = self._watchers[watcher] = session_field(session_id)
        if self._state is not None:
            watcher.push(self._snapshot_of(self._state).text(field))
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"watch of topic {self.incarnation}")

    def part(self, watcher: Watcher) -> None:
        """Tell no more; a feed without watchers reads no more."""
        self._watchers.pop(watcher, None)
        if not self._watchers and self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        keys = [topic_key(self.incarnation), *([activity_key(self.incarnation)] if self.detail else [])]
        with hub.watch(*keys) as watch:
            while await self._refresh():
                await watch.wait(settings.SCALABLE_WATCH_RESYNC_SECONDS)

    async def _refresh(self) -> bool:
        """Read and tell what changed; False once the topic is gone."""
        try:
            state = await node.call(
                watching.topology, incarnation=self.incarnation, detail=self.detail, known=self._state
            )
        except Exception:
            # The watchers hold what they have; the slow pace goes on trying.
            logger.exception("Cannot read topic %s for its watchers", self.incarnation)
            return True
        if state is None:
            self._end()
        else:
            self._tell(state)
        return state is not None

    def _tell(self, state: Topology) -> None:
        before = self._state
        if before is not None and before.looks_like(state):
            return
        self._state, self._snapshot = state, None
        shared = self._snapshot_of(state) if before is None else Shared(watching.delta(before, state))
        for watcher, field in tuple(self._watchers.items()):
            watcher.push(shared.text(field))

    def _snapshot_of(self, state: Topology) -> Shared:
        if self._snapshot is None:
            self._snapshot = Shared(watching.snapshot(state))
        return self._snapshot

    def _end(self) -> None:
        self._ended = True
        for watcher in tuple(self._watchers):
            watcher.gone(self.incarnation)


class Feeds:
    """The feeds of this node, by topic and level of detail; a feed lives as long as it has watchers."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[int, bool], Feed] = {}
        self._names: SharedReads[TopicName, int] = SharedReads()

    def __len__(self) -> int:
        return len(self._feeds)

    async def join(self, watcher: Watcher, *, name: TopicName, detail: bool, session_id: str) -> Feed:
        """Let a watcher follow the topic of this name; raises TopicNotFound."""
        incarnation = await self._names.read(name, lambda: node.call(watching.find_incarnation, name=name))
        feed = self._feeds.setdefault((incarnation, detail), Feed(incarnation, detail=detail))
        feed.join(watcher, session_id=session_id)
        return feed

    def part(self, watcher: Watcher, feed: Feed) -> None:
        """Let a watcher follow no more."""
        feed.part(watcher)
        key = (feed.incarnation, feed.detail)
        if not feed and self._feeds.get(key) is feed:
            del self._feeds[key]


feeds = Feeds()
