"""The client's watch of a namespace: it comes back by itself, in silence when nothing changed."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
from websockets.asyncio.server import ServerConnection, serve

from scalable.client import Admin, Endpoint, NamespaceWatch, TopicsChange
from scalable.client.namespace_watch import GenerationGap, TopicsFeed
from scalable.domain.errors import Forbidden, InvalidName, NamespaceNotFound
from scalable.domain.names import TopicName
from scalable.domain.topic_list import hash_of
from scalable.services.access import mint_token
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    NamespaceClientFrame,
    TopicsDiff,
    TopicsSnapshot,
    WatchTopics,
    Welcome,
    decode,
    decoder,
    encode,
)
from tests.client.proxy import Relay
from tests.processes import LiveNode

WAIT_SECONDS = 60
CUTS = 6
FIRST_WAIT_SECONDS = 0.05


def name_of(name: str) -> TopicName:
    return TopicName("public", "default", name)


async def has(watch: NamespaceWatch, *names: str) -> None:
    await watch.wait_for(lambda topics: topics == {name_of(name) for name in names}, WAIT_SECONDS)


async def test_a_watch_follows_and_comes_back(
    live_node: LiveNode, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut off again and again it hears nothing new, and waits no longer than after the first cut."""
    caplog.set_level(logging.INFO, logger="scalable.client")
    admin.create_topic(name_of("red"), properties={"team": "red"})
    admin.create_topic(name_of("blue"), properties={"team": "blue"})
    heard: list[TopicsChange] = []
    async with Relay(live_node.url) as relay:
        watch = NamespaceWatch(
            Endpoint(relay.url, live_node.admin_token),
            "public/default",
            properties={"team": "red"},
            on_change=heard.append,
        )
        async with watch:
            assert watch.topics == {name_of("red")}
            for cut in range(CUTS):
                relay.cut()
                async with asyncio.timeout(WAIT_SECONDS):
                    while relay.connections < cut + 2 or caplog.text.count("again in") <= cut:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                admin.set_properties(name_of("blue"), {"team": "red" if cut % 2 == 0 else "blue"})
                await has(watch, *(("red", "blue") if cut % 2 == 0 else ("red",)))
            waits = [float(text) for text in re.findall(r"again in ([\d.]+) s", caplog.text)]
            assert len(waits) >= CUTS
            assert max(waits) <= FIRST_WAIT_SECONDS
            assert len(heard) == 1 + CUTS  # the list, and one change after each cut
            relay.hold()
            relay.cut()
            admin.create_topic(name_of("third"), properties={"team": "red"})
            relay.let_go()
            await has(watch, "red", "third")
    assert heard[-1] == TopicsChange(removed=(), added=(name_of("third"),))


async def test_what_ends_a_watch(live_node: LiveNode) -> None:
    endpoint = Endpoint(live_node.url, live_node.admin_token)
    with pytest.raises(NamespaceNotFound):
        await NamespaceWatch(endpoint, "public/nowhere").start()
    stranger = Endpoint(live_node.url, mint_token(role="stranger"))
    with pytest.raises(Forbidden):
        await NamespaceWatch(stranger, "public/default").start()
    with pytest.raises(InvalidName):
        NamespaceWatch(endpoint, "public")


def test_a_push_that_is_missing_is_noticed() -> None:
    with pytest.raises(GenerationGap):
        TopicsFeed(set()).take(TopicsSnapshot(generation=2, remaining=0, topics=[]))
    for remaining, generation in ((0, 3), (0, 1), (1, 2)):
        feed = TopicsFeed(set())
        feed.take(TopicsSnapshot(generation=1, remaining=remaining, topics=[]))
        with pytest.raises(GenerationGap):
            feed.take(TopicsDiff(generation=generation, removed=[], added=[]))


def test_a_list_counts_when_it_is_whole() -> None:
    held = {"topic://a/b/old"}
    feed = TopicsFeed(held)
    assert feed.take(TopicsSnapshot(generation=1, remaining=1, topics=["topic://a/b/1"])) is None
    assert held == {"topic://a/b/old"}
    change = feed.take(TopicsSnapshot(generation=2, remaining=0, topics=["topic://a/b/2"]))
    assert change == TopicsChange(
        removed=(TopicName("a", "b", "old"),), added=(TopicName("a", "b", "1"), TopicName("a", "b", "2"))
    )
    again = feed.take(TopicsDiff(generation=3, removed=["topic://a/b/1"], added=["topic://a/b/1"]))
    assert again is not None
    assert again.removed == again.added == (TopicName("a", "b", "1"),)
    assert held == {"topic://a/b/1", "topic://a/b/2"}


async def test_a_gap_is_closed_by_a_new_connection() -> None:
    """A server that leaves a push out is left, and the next one learns by the hash what is held."""
    frames = decoder(NamespaceClientFrame)
    asked: list[str | None] = []
    topics = [["topic://public/default/a"], ["topic://public/default/a", "topic://public/default/b"]]

    async def speak(socket: ServerConnection) -> None:
        await socket.recv()
        limits = Welcome(protocol=PROTOCOL_VERSION, node="", max_frame_bytes=1, max_message_bytes=1)
        await socket.send(encode(limits))
        watch = decode(frames, await socket.recv())
        assert isinstance(watch, WatchTopics)
        asked.append(watch.hash)
        await socket.send(encode(TopicsSnapshot(generation=1, remaining=0, topics=topics[len(asked) - 1])))
        if len(asked) == 1:
            await socket.send(
                encode(TopicsDiff(generation=3, removed=[], added=["topic://public/default/c"]))
            )
        await socket.wait_closed()

    async with serve(speak, "127.0.0.1", 0, subprotocols=["scalable.v1"]) as server:  # type: ignore[list-item]
        port = next(iter(server.sockets)).getsockname()[1]
        async with NamespaceWatch(Endpoint(f"http://127.0.0.1:{port}", "token"), "public/default") as watch:
            await has(watch, "a", "b")
    assert asked == [None, hash_of(topics[0])]
