"""One feed for all watchers of a topic on a node: reads once, builds once, loses nothing, leaves nothing."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from scalable.api.feeds import Feeds, feeds
from scalable.api.hub import hub
from scalable.api.node import node
from scalable.client.topology import Topology, apply_delta, from_snapshot
from scalable.domain.errors import TopicNotFound
from scalable.domain.names import TopicName
from scalable.services import topics, watching
from scalable.wire.frames import Delta, ServerFrame, Snapshot, decode, decoder
from tests.api.peers import ask
from tests.api.stalled import StalledPeer
from tests.api.watchers import ACTOR, create, lookup_path, split

NAME = TopicName("public", "default", "fed")
LIMIT_SECONDS = 15.0
NEVER_SECONDS = 3_600

_decoder = decoder(ServerFrame)


class Listener:
    """A watcher in memory."""

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.texts: list[str] = []
        self.ended_as: int | None = None
        self._changed = asyncio.Event()

    def push(self, frame: str) -> None:
        self.texts.append(frame)
        read = decode(_decoder, frame)
        if isinstance(read, Snapshot):
            self.topology = from_snapshot(read)
        elif isinstance(read, Delta) and self.topology is not None:
            self.topology = apply_delta(self.topology, read)
        self._changed.set()

    def gone(self, incarnation: int) -> None:
        self.ended_as = incarnation
        self._changed.set()

    async def until_epoch(self, epoch: int) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.topology is None or self.topology.epoch < epoch:
                self._changed.clear()
                await self._changed.wait()

    async def until_gone(self) -> int:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.ended_as is None:
                self._changed.clear()
                await self._changed.wait()
        return self.ended_as


@pytest.fixture
async def hints_only(transactional_db: None, redis_url: str, settings: Settings) -> AsyncIterator[None]:
    """Nothing is read again without a hint, so that a lost one is seen as a hang."""
    settings.SCALABLE_WATCH_RESYNC_SECONDS = NEVER_SECONDS
    yield
    await node.stop()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The revisions that feeds read."""
    seen: list[int] = []
    read = watching.topology

    def counted(**arguments: Any) -> Any:
        state = read(**arguments)
        seen.append(-1 if state is None else state.revision)
        return state

    monkeypatch.setattr(watching, "topology", counted)
    return seen


async def nobody_waits() -> None:
    """Whoever was told to stop has stopped, within a few turns of the loop."""
    for _ in range(100):
        if not hub.is_watched:
            return
        await asyncio.sleep(0)
    raise AssertionError("somebody waits still")


async def test_a_change_between_reading_and_listening(
    hints_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split commits after the first read, before its result is back: it is told, though nothing follows."""
    await ask(create, NAME)
    read = watching.topology
    pending = [partial(split, NAME, 0)]

    def held_back(**arguments: Any) -> Any:
        state = read(**arguments)
        while pending:
            pending.pop()()
        return state

    monkeypatch.setattr(watching, "topology", held_back)
    registry, listener = Feeds(), Listener()
    feed = await registry.join(listener, name=NAME, detail=False, session_id="s")
    await listener.until_epoch(1)
    registry.part(listener, feed)


async def test_one_read_and_one_frame_for_all(hints_only: None, reads: list[int]) -> None:
    await ask(create, NAME)
    registry = Feeds()
    crowd = [Listener() for _ in range(200)]
    joined = await asyncio.gather(
        *(
            registry.join(each, name=NAME, detail=False, session_id=str(number))
            for number, each in enumerate(crowd)
        )
    )
    assert len(registry) == 1
    for each in crowd:
        await each.until_epoch(0)
    assert len(reads) == 1
    await ask(split, NAME, 0)
    for each in crowd:
        await each.until_epoch(1)
    assert len(reads) == 2  # of a split, one commit is news to who watches the layout
    told = {each.texts[-1].replace(f'"session_id":"{number}"', "") for number, each in enumerate(crowd)}
    assert len(told) == 1
    for each, feed in zip(crowd, joined, strict=True):
        registry.part(each, feed)


async def test_a_burst_of_hints_is_one_read(hints_only: None, reads: list[int]) -> None:
    topic = await ask(create, NAME)
    registry, listener = Feeds(), Listener()
    feed = await registry.join(listener, name=NAME, detail=False, session_id="s")
    await listener.until_epoch(0)
    for _ in range(500):
        hub.fire(f"topic:{topic.incarnation}")
    await ask(split, NAME, 0)
    await listener.until_epoch(1)
    assert len(reads) <= 6
    registry.part(listener, feed)


async def test_the_registry_is_clean_after_the_last_one_left(hints_only: None) -> None:
    await ask(create, NAME)
    registry, one, other = Feeds(), Listener(), Listener()
    feed = await registry.join(one, name=NAME, detail=False, session_id="1")
    assert await registry.join(other, name=NAME, detail=False, session_id="2") is feed
    full = await registry.join(other, name=NAME, detail=True, session_id="2")
    registry.part(one, feed)
    registry.part(one, feed)  # a second time does no harm
    assert len(registry) == 2
    registry.part(other, feed)
    registry.part(other, full)
    assert len(registry) == 0
    await nobody_waits()


async def test_a_deleted_topic_ends_all_and_nobody_joins_its_feed_any_more(hints_only: None) -> None:
    topic = await ask(create, NAME)
    registry, one, late = Feeds(), Listener(), Listener()
    feed = await registry.join(one, name=NAME, detail=False, session_id="1")
    await one.until_epoch(0)
    await ask(topics.delete_topic, name=NAME, actor=ACTOR)
    assert await one.until_gone() == topic.incarnation
    feed.join(late, session_id="2")
    assert await late.until_gone() == topic.incarnation
    with pytest.raises(TopicNotFound):
        await registry.join(late, name=NAME, detail=False, session_id="3")
    registry.part(one, feed)
    assert len(registry) == 0


async def test_a_name_is_looked_up_after_the_newcomer_came(
    hints_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes while a look-up runs must not share it: it may not see the topic that they just made."""
    find = watching.find_incarnation
    started, release = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(**arguments: Any) -> int:
        try:
            return find(**arguments)
        finally:
            if not started.is_set():
                loop.call_soon_threadsafe(started.set)
                asyncio.run_coroutine_threadsafe(release.wait(), loop).result(LIMIT_SECONDS)

    monkeypatch.setattr(watching, "find_incarnation", slow)
    registry, early, late = Feeds(), Listener(), Listener()
    refused = asyncio.create_task(registry.join(early, name=NAME, detail=False, session_id="1"))
    await started.wait()
    await ask(create, NAME)
    found = asyncio.create_task(registry.join(late, name=NAME, detail=False, session_id="2"))
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(TopicNotFound):
        await refused
    registry.part(late, await found)


async def test_a_read_that_fails_is_tried_again(
    hints_only: None, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SCALABLE_WATCH_RESYNC_SECONDS = 0.05
    await ask(create, NAME)
    read, failures = watching.topology, [ConnectionError("out of reach")] * 2

    def failing(**arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(**arguments)

    monkeypatch.setattr(watching, "topology", failing)
    registry, listener = Feeds(), Listener()
    feed = await registry.join(listener, name=NAME, detail=False, session_id="s")
    await listener.until_epoch(0)
    assert caplog.text.count("Cannot read topic") == 2
    registry.part(listener, feed)


# Readers that do not read.


async def change_until_closed(changes: int) -> None:
    for number in range(changes):
        await ask(topics.set_auto_scale_policy, name=NAME, override={"maxSegments": number + 1}, actor=ACTOR)
        await asyncio.sleep(0.02)


async def test_a_slow_reader_is_closed_with_a_code_and_others_are_not_held_up(
    hints_only: None, settings: Settings
) -> None:
    settings.SCALABLE_WATCH_QUEUE_FRAMES = 8
    await ask(create, NAME)
    other, peer = Listener(), StalledPeer(lookup_path(NAME))
    feed = await feeds.join(other, name=NAME, detail=True, session_id="other")
    await peer.open()
    await other.until_epoch(0)
    await change_until_closed(20)
    assert len(other.texts) >= 10  # it heard of the changes while the slow one stood still
    assert len(feed) == 2
    peer.flowing.set()
    await asyncio.wait_for(peer.closed.wait(), LIMIT_SECONDS)
    assert (peer.sent[-1]["code"], peer.sent[-1]["reason"]) == (4408, "reader_too_slow")
    assert len(peer.sent) <= 4  # what waited was thrown away
    await peer.session.send(type="websocket.disconnect", code=4408)
    await peer.session.ended()
    feeds.part(other, feed)
    assert len(feeds) == 0


async def test_a_reader_that_never_reads_again_leaves_the_registry(
    hints_only: None, settings: Settings, reads: list[int]
) -> None:
    settings.SCALABLE_WATCH_QUEUE_FRAMES = 4
    settings.SCALABLE_SOCKET_SEND_SECONDS = 0.5
    await ask(create, NAME)
    peer = StalledPeer(lookup_path(NAME))
    await peer.open()
    await peer.session.ended()
    assert reads  # it was let in, and told
    assert len(feeds) == 0
    await nobody_waits()
