"""One feed for all watchers of a namespace on a node: reads once, builds once, loses and leaves nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from scalable.api import namespace_feeds as module
from scalable.api.hub import hub
from scalable.api.namespace_feeds import Feed, NamespaceFeeds, Numbered, namespace_feeds
from scalable.api.node import node
from scalable.asgi import socket_application
from scalable.client.namespace_watch import TopicsFeed
from scalable.domain.errors import TooManyRequests
from scalable.domain.names import NamespaceName
from scalable.domain.topic_list import hash_of
from scalable.services import namespace_watching, namespaces
from scalable.services.access import mint_token
from scalable.wire.frames import (
    Hello,
    ServerFrame,
    TopicsDiff,
    TopicsSnapshot,
    WatchTopics,
    decode,
    decoder,
    encode,
)
from tests.api.knocking import Session, socket_scope
from tests.api.list_watchers import create, delete
from tests.api.peers import ask
from tests.api.stalled import StalledPeer

SPACE = "public/default"
NAME = NamespaceName.parse(SPACE)
LIMIT_SECONDS = 30.0
NEVER_SECONDS = 3_600
CROWD = 200
MANY = 10_000

_decoder = decoder(ServerFrame)


class Listener:
    """A watcher in memory."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.frames: list[TopicsSnapshot | TopicsDiff] = []
        self.error: BaseException | None = None
        self._feed = TopicsFeed(self.names)
        self._changed = asyncio.Event()

    def tell(self, frames: Sequence[Numbered]) -> None:
        for frame in frames:
            read = decode(_decoder, frame.text(len(self.frames) + 1))
            assert isinstance(read, TopicsSnapshot | TopicsDiff)
            self.frames.append(read)
            self._feed.take(read)
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._changed.set()

    async def until(self, *names: str) -> None:
        """Wait until exactly these are held."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not self.frames or self.names != set(names):
                self._changed.clear()
                await self._changed.wait()

    async def until_failed(self) -> BaseException:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.error is None:
                self._changed.clear()
                await self._changed.wait()
        return self.error


def join(registry: NamespaceFeeds, listener: Listener, known_hash: str | None = None, **filters: str) -> Feed:
    return registry.join(listener, name=NAME, filters=filters, known_hash=known_hash)


@pytest.fixture
async def hints_only(transactional_db: None, redis_url: str, settings: Settings) -> AsyncIterator[None]:
    """Nothing is read again without a hint, so that a lost one is seen as a hang."""
    settings.SCALABLE_WATCH_RESYNC_SECONDS = NEVER_SECONDS
    yield
    await node.stop()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What feeds read: whole lists, and changes."""
    seen: list[str] = []
    for service in ("topic_list", "changes_since"):
        monkeypatch.setattr(namespace_watching, service, partial(_noted, seen, service))
    return seen


_services = {name: getattr(namespace_watching, name) for name in ("topic_list", "changes_since")}


def _noted(seen: list[str], service: str, **arguments: Any) -> Any:
    found = _services[service](**arguments)
    seen.append(service)
    return found


async def nobody_waits() -> None:
    """Whoever was told to stop has stopped, within a few turns of the loop."""
    for _ in range(100):
        if not hub.is_watched:
            return
        await asyncio.sleep(0)
    raise AssertionError("somebody waits still")


async def test_a_topic_made_between_reading_and_listening(
    hints_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed after the first read, before its result is back: it is told, though nothing follows."""
    pending = [partial(create, SPACE, "gap")]

    def held_back(**arguments: Any) -> Any:
        found = _services["topic_list"](**arguments)
        while pending:
            pending.pop()()
        return found

    monkeypatch.setattr(namespace_watching, "topic_list", held_back)
    registry, listener = NamespaceFeeds(), Listener()
    feed = join(registry, listener)
    await listener.until("topic://public/default/gap")
    registry.part(listener, feed)


async def test_one_read_and_one_frame_for_all(hints_only: None, reads: list[str]) -> None:
    first = await ask(create, SPACE, "first")
    registry = NamespaceFeeds()
    crowd = [Listener() for _ in range(CROWD)]
    feeds = {join(registry, each) for each in crowd}
    assert (len(registry), len(feeds)) == (1, 1)
    for each in crowd:
        await each.until(first)
    assert reads == ["topic_list"]
    second = await ask(create, SPACE, "second")
    for each in crowd:
        await each.until(first, second)
    assert reads == ["topic_list", "changes_since"]
    (feed,) = feeds
    for each in crowd:
        registry.part(each, feed)
    assert len(registry) == 0


async def test_watchers_with_different_filters_share_the_read_of_changes(
    hints_only: None, reads: list[str]
) -> None:
    registry, everything, red = NamespaceFeeds(), Listener(), Listener()
    first = await ask(create, SPACE, "first", team="red")
    feed = join(registry, everything)
    assert join(registry, red, team="red") is feed
    await everything.until(first)
    await red.until(first)
    reads.clear()
    second = await ask(create, SPACE, "second", team="blue")
    await everything.until(first, second)
    assert reads == ["changes_since"]
    third = await ask(create, SPACE, "third", team="red")
    await red.until(first, third)
    assert [frame.added for frame in red.frames if isinstance(frame, TopicsDiff)] == [[third]]
    registry.part(everything, feed)
    registry.part(red, feed)


async def test_who_comes_later_is_told_the_list_of_then(hints_only: None) -> None:
    registry, early, late, same = NamespaceFeeds(), Listener(), Listener(), Listener()
    first = await ask(create, SPACE, "first")
    feed = join(registry, early)
    await early.until(first)
    second = await ask(create, SPACE, "second")
    join(registry, late)
    join(registry, same, known_hash=hash_of([first, second]))
    await late.until(first, second)
    await early.until(first, second)
    assert not same.frames  # it holds that list
    await ask(delete, SPACE, "first")
    await late.until(second)
    await early.until(second)
    assert [frame.generation for frame in same.frames] == [1]
    for each in (early, late, same):
        registry.part(each, feed)


async def test_the_registry_is_clean_after_the_last_one_left(hints_only: None) -> None:
    registry, one, other = NamespaceFeeds(), Listener(), Listener()
    feed = join(registry, one)
    join(registry, other, team="red")
    registry.part(one, feed)
    registry.part(one, feed)  # a second time does no harm
    assert (len(registry), len(feed)) == (1, 1)
    registry.part(other, feed)
    assert (len(registry), len(feed)) == (0, 0)
    await nobody_waits()


async def test_a_deleted_namespace_ends_all_and_one_made_again_is_read_anew(hints_only: None) -> None:
    space = NamespaceName("public", "passing")
    await ask(namespaces.create_namespace, tenant="public", namespace="passing", actor="test")
    only = await ask(create, str(space), "only")
    registry, one, late = NamespaceFeeds(), Listener(), Listener()
    feed = registry.join(one, name=space, filters={}, known_hash=None)
    await one.until(only)
    await ask(namespaces.delete_namespace, tenant="public", namespace="passing", force=True, actor="test")
    assert getattr(await one.until_failed(), "code", None) == "namespace_not_found"
    await ask(namespaces.create_namespace, tenant="public", namespace="passing", actor="test")
    again = registry.join(late, name=space, filters={}, known_hash=None)
    assert again is not feed
    await late.until()
    registry.part(one, feed)
    assert len(registry) == 1
    registry.part(late, again)
    assert len(registry) == 0
    await nobody_waits()


async def test_a_list_that_must_be_read_anew_is_told_as_a_difference(
    hints_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ask(create, SPACE, "first")
    registry, listener = NamespaceFeeds(), Listener()
    feed = join(registry, listener)
    await listener.until(first)
    monkeypatch.setattr(namespace_watching, "changes_since", lambda **_: None)
    await ask(delete, SPACE, "first")
    await ask(create, SPACE, "first")
    second = await ask(create, SPACE, "second")
    await listener.until(first, second)
    diffs = [frame for frame in listener.frames if isinstance(frame, TopicsDiff)]
    assert first in {name for frame in diffs for name in frame.removed}  # it is another one by now
    registry.part(listener, feed)


async def test_a_read_that_fails_is_tried_again(
    hints_only: None, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SCALABLE_WATCH_RESYNC_SECONDS = 0.05
    first = await ask(create, SPACE, "first")
    failures = [ConnectionError("out of reach")] * 2

    def failing(**arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return _services["topic_list"](**arguments)

    monkeypatch.setattr(namespace_watching, "topic_list", failing)
    registry, listener = NamespaceFeeds(), Listener()
    feed = join(registry, listener)
    await listener.until(first)
    assert caplog.text.count("Cannot read the topics") == 2
    registry.part(listener, feed)


async def test_no_frame_is_larger_than_the_limit(hints_only: None, settings: Settings) -> None:
    settings.SCALABLE_MAX_FRAME_BYTES = 1_024
    names = [await ask(create, SPACE, f'{number}"\\' + "ä" * 50) for number in range(12)]
    registry, listener = NamespaceFeeds(), Listener()
    feed = join(registry, listener)
    await listener.until(*names)
    assert len(listener.frames) > 3
    assert [frame.remaining for frame in listener.frames if isinstance(frame, TopicsSnapshot)] == list(
        reversed(range(len(listener.frames)))
    )
    assert max(len(encode(frame).encode()) for frame in listener.frames) <= 1_024
    registry.part(listener, feed)


async def test_lists_are_bounded_together(hints_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_MAX", 3)
    names = [await ask(create, SPACE, f"t{number}", team="red") for number in range(2)]
    registry, one, other, small = NamespaceFeeds(), Listener(), Listener(), Listener()
    feed = join(registry, one)
    await one.until(*names)
    join(registry, other, team="red")
    assert isinstance(await other.until_failed(), TooManyRequests)
    registry.part(other, feed)
    join(registry, small, team="blue")
    await small.until()
    assert one.error is small.error is None
    for each in (one, small):
        registry.part(each, feed)


# Readers that do not read, and many that come and go.


def knock() -> Session:
    headers = {"authorization": f"Bearer {mint_token(role='admin')}"}
    scope = socket_scope(f"/ws/v2/scalable/topics/{SPACE}", headers=headers, subprotocols=[])
    return Session(socket_application, scope)


async def greet(session: Session) -> None:
    await session.send(type="websocket.connect")
    await session.send(type="websocket.receive", text=encode(Hello(protocol=1)))
    await session.send(type="websocket.receive", text=encode(WatchTopics()))


async def test_a_slow_reader_is_closed_with_a_code_and_others_are_not_held_up(
    hints_only: None, settings: Settings
) -> None:
    settings.SCALABLE_WATCH_QUEUE_FRAMES = 4
    other, peer = Listener(), StalledPeer(f"topics/{SPACE}")
    feed = join(namespace_feeds, other)
    await greet(peer.session)
    await other.until()
    names: list[str] = []
    for number in range(20):
        names.append(await ask(create, SPACE, f"t{number}"))
        await other.until(*names)
    peer.flowing.set()
    await asyncio.wait_for(peer.closed.wait(), LIMIT_SECONDS)
    assert (peer.sent[-1]["code"], peer.sent[-1]["reason"]) == (4408, "reader_too_slow")
    await peer.session.send(type="websocket.disconnect", code=4408)
    await peer.session.ended()
    namespace_feeds.part(other, feed)
    assert len(namespace_feeds) == 0


@pytest.mark.slow
async def test_many_watches_that_were_opened_and_closed_leave_no_trace(
    hints_only: None, reads: list[str]
) -> None:
    """Ten thousand, some of them before they were told anything; what follows is told with one read."""
    name = await ask(create, SPACE, "there")
    stays = Listener()
    feed = join(namespace_feeds, stays)
    await stays.until(name)
    tasks = len(asyncio.all_tasks())
    for begun in range(0, MANY, 100):
        sessions = [knock() for _ in range(100)]
        for session in sessions:
            await greet(session)
        for session in sessions[begun % 3 :: 3]:
            while "topics_snapshot" not in str(await session.receive(LIMIT_SECONDS)):
                pass
        for session in sessions:
            await session.send(type="websocket.disconnect", code=1000)
            await session.ended()
    assert (len(namespace_feeds), len(feed)) == (1, 1)
    assert len(asyncio.all_tasks()) <= tasks
    reads.clear()
    second = await ask(create, SPACE, "second")
    await stays.until(name, second)
    assert reads == ["changes_since"]
    namespace_feeds.part(stays, feed)
    assert len(namespace_feeds) == 0
    await nobody_waits()
