"""What a namespace says of the sampling of its topics: nodes take it at once, whatever they waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from launch.sandbox import LiveNode
from scalable.api import sampler as module
from scalable.api.executor import Call
from scalable.api.hub import hub
from scalable.api.sample_feed import SampleFeed
from scalable.api.sampler import Sampler
from scalable.domain.names import TopicName
from scalable.services import namespace_policies, namespaces, sampling, topics
from scalable.services.sampling import TopicSampling
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, decode_header, encode_batch
from scalable.wire.frames import Publish
from tests.api.peers import ask, eventually

SOON_SECONDS = 10.0
HOUR_SECONDS = 3_600
BATCH = encode_batch([Record(None, b"")], published_at_ms=1)
HOURLY = {"loadReportIntervalSeconds": HOUR_SECONDS, "rateWindowSeconds": HOUR_SECONDS}
QUICK = {"loadReportIntervalSeconds": 0.2, "rateWindowSeconds": 2}


class Watcher:
    """The product's sampler over the real services, and what it was told of topics."""

    def __init__(self) -> None:
        self.sampler = Sampler()
        self._feed = SampleFeed(node_id="watcher")
        self._told: asyncio.Queue[TopicSampling | None] = asyncio.Queue()

    def count(self, *counted: TopicView) -> None:
        """Count a message of each of these topics."""
        for topic in counted:
            publish = Publish(request_id=1, segment_id=0, restart=False, batch=BATCH)
            self.sampler.count_in(topic.name, topic.incarnation, publish, decode_header(BATCH))

    async def until(self, intervals_ms: dict[int, int]) -> list[int]:
        """Wait until it was told these intervals, and give the topics that it was told of."""
        told: dict[int, int] = {}
        asked = []
        async with asyncio.timeout(SOON_SECONDS):
            while told != intervals_ms:
                topic = await self._told.get()
                assert topic is not None
                told[topic.incarnation] = topic.interval_ms
                asked.append(topic.incarnation)
        return asked

    async def told(self) -> int | None:
        """Wait for what it is told next, and give the topic that it was told of."""
        topic = await self._told.get()
        return None if topic is None else topic.incarnation

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run its loop."""
        task = asyncio.create_task(self.sampler.run(self._feed, cast(Call, self._call)))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _call(self, function: Callable[..., Any], **given: Any) -> Any:
        found = await ask(function, **given)
        if function is sampling.topic_sampling:
            self._told.put_nowait(found)
        return found


def make(namespace: str, count: int) -> list[TopicView]:
    """Make a namespace whose topics are sampled once an hour."""
    namespaces.create_namespace(tenant="public", namespace=namespace, actor="test")
    set_policy(namespace, HOURLY)
    names = [TopicName("public", namespace, f"topic-{number}") for number in range(count)]
    return [topics.create_topic(name=name, initial_segments=1, actor="test") for name in names]


def set_policy(namespace: str, override: dict[str, Any]) -> None:
    namespace_policies.set_auto_scale_policy(
        tenant="public", namespace=namespace, override=override, actor="test"
    )


def remove_policy(namespace: str) -> None:
    namespace_policies.remove_auto_scale_policy(tenant="public", namespace=namespace, actor="test")


def intervals(found: Collection[TopicView], milliseconds: int) -> dict[int, int]:
    """Give the same interval for each topic."""
    return dict.fromkeys((topic.incarnation for topic in found), milliseconds)


async def test_topics_are_sampled_as_their_namespace_says_from_now_on(
    live_node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKED_AT_ONCE", 2)
    ours, others = await ask(make, "ours", 5), await ask(make, "others", 1)
    watcher = Watcher()
    watcher.count(*others, *ours)
    async with watcher.running():
        await watcher.until(intervals([*ours, *others], HOUR_SECONDS * 1_000))
        await ask(set_policy, "ours", QUICK)
        asked = await watcher.until(intervals(ours, 200))
        await ask(remove_policy, "ours")
        asked += await watcher.until(intervals(ours, 10_000))
        assert len(asked) == 2 * len(ours), "no other topic is asked for, and none twice"
        await ask(set_policy, "others", QUICK)
        assert await watcher.until(intervals(others, 200)) == [others[0].incarnation]


async def test_what_changed_while_the_loop_was_down_is_taken_as_it_begins_again(live_node: LiveNode) -> None:
    ours = await ask(make, "ours", 2)
    watcher = Watcher()
    watcher.count(*ours)
    async with watcher.running():
        await watcher.until(intervals(ours, HOUR_SECONDS * 1_000))
    await ask(set_policy, "ours", QUICK)
    async with watcher.running():
        await watcher.until(intervals(ours, 200))
        await ask(set_policy, "ours", HOURLY)
        await watcher.until(intervals(ours, HOUR_SECONDS * 1_000))
    assert not hub.is_watched


async def watched_no_more() -> bool:
    return not hub.is_watched


async def test_a_namespace_without_topics_is_watched_no_longer(live_node: LiveNode) -> None:
    (topic,) = await ask(make, "ours", 1)
    watcher = Watcher()
    watcher.count(topic)
    async with watcher.running():
        await watcher.until(intervals([topic], HOUR_SECONDS * 1_000))
        await ask(topics.delete_topic, name=topic.name, actor="test")
        assert await eventually(watched_no_more)


class Hasty(Watcher):
    """One whose topics are deleted as soon as they were read for the first time."""

    async def _call(self, function: Callable[..., Any], **given: Any) -> Any:
        found = await super()._call(function, **given)
        if isinstance(found, TopicSampling):
            assert hub.is_watched
            await ask(topics.delete_topic, name=found.name, actor="test")
        return found


async def test_so_is_one_whose_only_topic_ends_between_two_looks_at_it(live_node: LiveNode) -> None:
    (topic,) = await ask(make, "ours", 1)
    watcher = Hasty()
    watcher.count(topic)
    async with watcher.running():
        async with asyncio.timeout(SOON_SECONDS):
            assert await watcher.told() == topic.incarnation
            assert await watcher.told() is None
        assert await eventually(watched_no_more)
