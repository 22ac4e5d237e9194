"""One feed per watched namespace and node: reads once for all its watchers and builds each frame once.

A feed joins the hub before it reads, so that no change falls between reading and listening. What follows a
hint within 50 ms is told together. It looks again at a slow pace without any, because hints may be lost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from django.conf import settings

from scalable.api.hub import Watch, hub, namespace_key
from scalable.api.node import node
from scalable.domain.errors import NamespaceNotFound, TooManyRequests
from scalable.domain.names import NamespaceName
from scalable.domain.topic_list import Difference, difference, hash_of, matches
from scalable.services import namespace_watching
from scalable.services.namespace_watching import Change, Position, TopicList
from scalable.wire.frame import encode
from scalable.wire.namespace_frames import TopicsDiff, TopicsSnapshot

T = TypeVar("T")

logger = logging.getLogger(__name__)

COALESCING_SECONDS = 0.05
PART_BYTES = 256 * 1024
"""How large the names of one frame may be together."""
LISTED_MAX = 5_000_000
"""How many names the lists of one namespace may have together: with each filter goes a list of its own."""
FILTER_BYTES_MAX = 16 * 1024 * 1024
"""How large the filters of one namespace may be together, each as often as it is held."""
READ_AT_ONCE = 64
"""So many lists of new filters are read before changes are told again."""
RETRY_AFTER_SECONDS = 30.0
LONG_LIST = 1_000
"""A list that is longer is sorted and encoded beside the event loop."""

_NEWCOMER = "newcomer"
_GENERATION_FIELD = '"generation":0'

Filters = frozenset[tuple[str, str]]
Newcomers = Mapping["ListWatcher", str | None]
"""Who was told nothing yet, each with the hash of the list that it holds."""


class Numbered:
    """A frame that was encoded once; each socket puts its own generation in."""

    def __init__(self, frame: TopicsSnapshot | TopicsDiff) -> None:
        self._head, self._tail = encode(frame).split(_GENERATION_FIELD, 1)

    def text(self, generation: int) -> str:
        """The frame for one socket."""
        return f'{self._head}"generation":{generation}{self._tail}'


class ListWatcher(Protocol):
    """Who is told: a socket."""

    def tell(self, frames: Sequence[Numbered]) -> None:
        """Send these frames in order, or close a reader that is too far behind."""

    def fail(self, error: BaseException) -> None:
        """Say that there is nothing to watch, and close."""


class Group:
    """The watchers of one namespace with the same filters, who all hold the same list."""

    def __init__(self, name: NamespaceName, filters: Mapping[str, str]) -> None:
        self.filters = filters
        self._prefix = f"topic://{name}/"
        self._watchers: set[ListWatcher] = set()
        self._newcomers: dict[ListWatcher, str | None] = {}
        self._topics: dict[str, int] | None = None
        self._is_old = False
        self._snapshot: Sequence[Numbered] | None = None
        self._hash: str | None = None

    def __len__(self) -> int:
        return len(self._watchers) + len(self._newcomers)

    @property
    def is_read(self) -> bool:
        """True once the list is known, and while changes keep it so."""
        return self._topics is not None and not self._is_old

    @property
    def size(self) -> int:
        """How many topics are on the list."""
        return len(self._topics or ())

    @property
    def newcomers(self) -> Newcomers:
        """Those who were told nothing yet, each with the hash of the list that it holds."""
        return dict(self._newcomers)

    def join(self, watcher: ListWatcher, known_hash: str | None) -> None:
        """Take in somebody who holds the list of this hash, if it is one."""
        self._newcomers[watcher] = known_hash

    def part(self, watcher: ListWatcher) -> None:
        """Tell no more."""
        self._watchers.discard(watcher)
        self._newcomers.pop(watcher, None)

    def adopt(self, found: TopicList) -> None:
        """Take a list that was read whole, and tell those who hold an earlier one what differs."""
        before, self._is_old = self._topics, False
        self._topics = {self._prefix + name: life for name, life in found.topics.items()}
        if before is not None:
            self._tell(difference(before, self._topics))

    def outdate(self) -> None:
        """Note that changes were missed: the list must be read whole again."""
        self._is_old = True

    def apply(self, changes: Iterable[Change]) -> None:
        """Take changes over, each the newest state of a topic, and tell what they come to."""
        topics = self._topics
        if topics is None:
            return
        before, after = {}, {}
        for change in changes:
            name = self._prefix + change.name
            held = topics.pop(name, None)
            if held is not None:
                before[name] = held
            if change.incarnation is not None and matches(change.properties, self.filters):
                topics[name] = after[name] = change.incarnation
        self._tell(difference(before, after))

    async def welcome(self, newcomers: Newcomers) -> None:
        """Tell the list to those who do not hold it; the others hear nothing until it changes."""
        topics = self._topics
        if topics is None or not newcomers:
            return
        if any(newcomers.values()) and self._hash is None:
            self._hash = await _beside(topics, hash_of)
        strangers = [each for each, known in newcomers.items() if known is None or known != self._hash]
        if strangers and self._snapshot is None:
            self._snapshot = await _beside(topics, partial(_snapshot_of, limit_bytes=_part_bytes()))
        for watcher in newcomers:
            if watcher in self._newcomers:  # else it left meanwhile
                del self._newcomers[watcher]
                self._watchers.add(watcher)
        for watcher in strangers:
            if watcher in self._watchers and self._snapshot is not None:
                watcher.tell(self._snapshot)

    def fail(self, error: Exception) -> None:
        """Tell everybody that there is nothing to watch."""
        for watcher in (*self._watchers, *self._newcomers):
            watcher.fail(error)

    def _tell(self, what: Difference) -> None:
        if not what:
            return
        self._snapshot = self._hash = None
        frames = _diff_of(what, limit_bytes=_part_bytes())
        for watcher in tuple(self._watchers):
            watcher.tell(frames)


class Feed:
    """All who watch one namespace on this node."""

    def __init__(self, name: NamespaceName) -> None:
        self.name = name
        self._groups: dict[Filters, Group] = {}
        self._members: dict[ListWatcher, Filters] = {}
        self._filter_bytes = 0
        self._position: Position | None = None
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        self.ended = False

    def __len__(self) -> int:
        return len(self._members)

    def join(self, watcher: ListWatcher, *, filters: Mapping[str, str], known_hash: str | None) -> None:
        """Tell the topics with these properties, as soon as they are known, and then each change.

        Raises TooManyRequests where the filters are too large together.
        """
        size = size_of(filters)
        if self._filter_bytes + size > FILTER_BYTES_MAX:
            raise TooManyRequests(limit=FILTER_BYTES_MAX, retry_after_seconds=RETRY_AFTER_SECONDS)
        self._filter_bytes += size
        key = self._members[watcher] = frozenset(filters.items())
        self._groups.setdefault(key, Group(self.name, filters)).join(watcher, known_hash)
        if self._watch is not None:
            self._watch.notify(_NEWCOMER)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"watch of namespace {self.name}")

    def part(self, watcher: ListWatcher) -> None:
        """Tell no more; a group without watchers is forgotten, and a feed without any reads no more."""
        key = self._members.pop(watcher, None)
        if key is not None:
            self._filter_bytes -= size_of(dict(key))
            self._groups[key].part(watcher)
            if not self._groups[key]:
                del self._groups[key]
        if not self._members and self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        key = namespace_key(self.name.tenant, self.name.namespace)
        with hub.watch(key) as self._watch:
            while await self._refresh(self._watch):
                if key in await self._watch.wait(settings.SCALABLE_WATCH_RESYNC_SECONDS):
                    await asyncio.sleep(COALESCING_SECONDS)

    async def _refresh(self, watch: Watch) -> bool:
        """Read what changed and tell it; False once the namespace is gone."""
        watch.forget()
        waiting = [(group, group.newcomers) for group in self._groups.values()]
        try:
            await self._tell(watch, waiting)
        except NamespaceNotFound as error:
            self._end(error)
        except Exception:
            # The watchers hold what they have; the slow pace goes on trying.
            logger.exception("Cannot read the topics of %s for its watchers", self.name)
        return not self.ended

    async def _tell(self, watch: Watch, waiting: Iterable[tuple[Group, Newcomers]]) -> None:
        """Tell changes, then each list to its newcomers: first those that need not be read."""
        await self._catch_up()
        reads = 0
        for group, newcomers in sorted(waiting, key=lambda each: not each[0].is_read):
            if not group.is_read:
                if reads == READ_AT_ONCE:
                    watch.notify(_NEWCOMER)
                    return
                reads += 1
                await self._read_whole(group)
            await group.welcome(newcomers)

    async def _catch_up(self) -> None:
        """Read and tell what changed; where that is forgotten already, all lists must be read again."""
        if self._position is None:
            return
        found = await node.call(namespace_watching.changes_since, position=self._position)
        self._position = None if found is None else found.position
        for group in self._groups.values():
            group.outdate() if found is None else group.apply(found.changes)

    async def _read_whole(self, group: Group) -> None:
        found = await node.call(
            namespace_watching.topic_list,
            tenant=self.name.tenant,
            namespace=self.name.namespace,
            filters=group.filters,
        )
        others = sum(each.size for each in self._groups.values() if each is not group)
        if others + len(found.topics) > LISTED_MAX:
            group.fail(TooManyRequests(limit=LISTED_MAX, retry_after_seconds=RETRY_AFTER_SECONDS))
            return
        # The earliest position counts: what was read later takes the same changes twice without harm.
        self._position = self._position or found.position
        group.adopt(found)

    def _end(self, error: NamespaceNotFound) -> None:
        self.ended = True
        for group in tuple(self._groups.values()):
            group.fail(error)


class NamespaceFeeds:
    """The feeds of this node, by namespace; a feed lives as long as it has watchers."""

    def __init__(self) -> None:
        self._feeds: dict[NamespaceName, Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def join(
        self, watcher: ListWatcher, *, name: NamespaceName, filters: Mapping[str, str], known_hash: str | None
    ) -> Feed:
        """Let a watcher follow the topics that have these properties; raises TooManyRequests."""
        feed = self._feeds.get(name)
        if feed is None or feed.ended:
            feed = Feed(name)
        feed.join(watcher, filters=filters, known_hash=known_hash)
        self._feeds[name] = feed
        return feed

    def part(self, watcher: ListWatcher, feed: Feed) -> None:
        """Let a watcher follow no more."""
        feed.part(watcher)
        if not feed and self._feeds.get(feed.name) is feed:
            del self._feeds[feed.name]


namespace_feeds = NamespaceFeeds()


async def _beside(topics: Mapping[str, int], work: Callable[[Iterable[str]], T]) -> T:
    """Work on a list of names, which only the awaiting feed changes; on a thread if that takes long."""
    if len(topics) <= LONG_LIST:
        return work(topics)
    return await asyncio.to_thread(work, topics)


def _snapshot_of(names: Iterable[str], *, limit_bytes: int) -> tuple[Numbered, ...]:
    parts = list(_cut(names, limit_bytes)) or [[]]
    return tuple(
        Numbered(TopicsSnapshot(generation=0, remaining=len(parts) - number, topics=part))
        for number, part in enumerate(parts, start=1)
    )


def _diff_of(what: Difference, *, limit_bytes: int) -> tuple[Numbered, ...]:
    count = len(what.removed)
    frames, done = [], 0
    for part in _cut((*what.removed, *what.added), limit_bytes):
        removed = part[: max(0, count - done)]
        frames.append(
            Numbered(TopicsDiff(generation=0, removed=removed, added=part[len(removed) :])),
        )
        done += len(part)
    return tuple(frames)


def _cut(names: Iterable[str], limit_bytes: int) -> Iterator[list[str]]:
    """Cut names into lists of a bounded size, at least one name in each."""
    part: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode())
        if part and size > limit_bytes:
            yield part
            part, size = [], len(name.encode())
        part.append(name)
    if part:
        yield part


def size_of(filters: Mapping[str, str]) -> int:
    """Give the bytes of a filter, in UTF-8."""
    return sum(len(text.encode()) for pair in filters.items() for text in pair)


def _part_bytes() -> int:
    # A name may be twice as long once it is quoted.
    return min(PART_BYTES, settings.SCALABLE_MAX_FRAME_BYTES // 4)
