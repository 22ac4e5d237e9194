"""Hints between processes over a real Valkey, and over none."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import redis
from pytest_django.fixtures import Settings

from scalable import announce
from scalable.api import bus
from scalable.api.bus import Publisher
from scalable.api.hub import hub
from tests.processes import Sandbox

SOON_SECONDS = 10.0


@pytest.fixture
async def following(redis_url: str) -> AsyncIterator[None]:
    """This process follows the others."""
    with redis.Redis.from_url(redis_url) as server, hub.watch("any") as watch:
        task = asyncio.create_task(bus.run())
        await asyncio.wait_for(watch.wait(), SOON_SECONDS)  # everybody wakes when the link is up
        assert server.pubsub_numsub(bus.channel()) == [(bus.channel().encode(), 1)]
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def publish(redis_url: str, origin: str, *keys: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.publish(bus.channel(), json.dumps({"origin": origin, "keys": keys}))


async def test_what_others_publish_wakes_waiters_here(following: None, redis_url: str) -> None:
    with hub.watch("topic:1", "topic:2") as watch:
        await asyncio.to_thread(publish, redis_url, "another process", "topic:1", "unwatched")
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"topic:1"}


@pytest.mark.parametrize("strange", ["{", "[]", '{"origin": "x", "keys": [], "more": ' + "[" * 60_000])
async def test_what_cannot_be_read_is_passed_over(following: None, redis_url: str, strange: str) -> None:
    with hub.watch("topic:1", "any") as watch, redis.Redis.from_url(redis_url) as server:
        server.publish(bus.channel(), strange)
        await asyncio.to_thread(publish, redis_url, "another process", "topic:1")
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"topic:1"}


async def test_another_process_is_heard(following: None, sandbox: Sandbox) -> None:
    program = (
        "import django; django.setup()\n"
        "from scalable import announce\n"
        "from scalable.api import bus\n"
        "bus.publish(announce.TopicChanged(7, 'topic://a/b/c', 1))\n"
    )
    with hub.watch("topic:7") as watch:
        environment = {**os.environ, **sandbox.environment()}
        await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], env=environment, check=True, timeout=60
        )
        # It published on its way out: a process that ends at once is heard all the same.
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"topic:7"}


async def test_a_message_nobody_understands_does_no_harm(following: None, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server, hub.watch("topic:1") as watch:
        for odd in (b"\xff", b"[]", b'{"origin":"x"}', b'{"origin":"x","keys":7}'):
            server.publish(bus.channel(), odd)
        await asyncio.to_thread(publish, redis_url, "x", "topic:1")
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"topic:1"}


def test_nobody_waits_for_a_server_that_is_not_there(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SCALABLE_REDIS_URL = "redis://127.0.0.1:1/0"
    publisher = Publisher()
    with caplog.at_level(logging.WARNING):
        started = time.monotonic()
        for number in range(10_000):
            publisher.offer([f"topic:{number}"])
        assert time.monotonic() - started < 1.0
        publisher.close()
    assert caplog.text.count("Hints do not leave") == 1


def test_what_waits_to_be_published_is_bounded(settings: Settings) -> None:
    settings.SCALABLE_REDIS_URL = "redis://127.0.0.1:1/0"
    publisher = Publisher()
    publisher.offer(f"topic:{number}" for number in range(bus.PENDING_KEYS_MAX * 2))
    assert publisher.pending <= bus.PENDING_KEYS_MAX
    publisher.close()


def test_a_commit_wakes_this_process_without_any_server(settings: Settings) -> None:
    settings.SCALABLE_HINTS_ENABLED = False
    woken: list[bool | None] = []
    asked = threading.Event()
    values = iter([None, True])

    def predicate() -> bool | None:
        asked.set()
        return next(values)

    waiter = threading.Thread(
        target=lambda: woken.append(hub.wait_blocking("topic:9", timeout_seconds=30, predicate=predicate))
    )
    waiter.start()
    asked.wait(SOON_SECONDS)
    bus.publish(announce.TopicChanged(9, "topic://a/b/c", 1))
    waiter.join(SOON_SECONDS)
    assert woken == [True]
