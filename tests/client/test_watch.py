"""What the watches of topics and of namespaces share, without a server."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from scalable.client import Endpoint
from scalable.client.watch import Watch
from scalable.domain.errors import TopicDeleted


class OfATopicThatEnds(Watch[int]):
    """Knows its state at once and ends with its topic."""

    async def _session(self) -> None:
        self._pulse()
        await asyncio.sleep(0)
        raise TopicDeleted(topic="topic://public/default/gone")

    def _state(self) -> int:
        return 1


def watch() -> OfATopicThatEnds:
    return OfATopicThatEnds(Endpoint("http://127.0.0.1:1", "token"), "a topic", client="test")


async def ended(started: OfATopicThatEnds) -> None:
    await started.start()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=10)


async def test_a_watch_that_ended_and_is_dropped_without_a_close_leaves_no_error_that_nobody_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(
        logging.CRITICAL, "scalable.client"
    )  # a line that is kept holds its error, and that the task
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    await ended(watch())
    gc.collect()
    assert reported == []


async def test_a_watch_that_ended_tells_its_error_to_each_who_waits() -> None:
    one = watch()
    await ended(one)
    for _ in range(2):
        with pytest.raises(TopicDeleted):
            await one.wait_for(lambda state: state > 1, timeout_seconds=10)
