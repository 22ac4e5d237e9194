"""A topic that comes and goes again and again: each of its consumers begins when all before it have left."""

from __future__ import annotations

import asyncio

from scalable.client.branch import Branch
from scalable.client.queue_consumer import QueueConsumer
from scalable.domain.names import TopicName

TOPIC = TopicName.parse("topic://public/default/restless")
LIMIT_SECONDS = 30


class Slow(QueueConsumer):
    """A consumer that opens at once, and closes when it is let."""

    def __init__(self) -> None:
        self.may_close = asyncio.Event()
        self.is_closed = False

    async def start(self, timeout_seconds: float = 0) -> None: ...

    async def _wait_for_failure(self) -> Exception:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self, timeout_seconds: float = 0) -> None:
        await self.may_close.wait()
        self.is_closed = True


def branch(made: list[Slow], before: Branch[Slow] | None = None) -> Branch[Slow]:
    def make() -> Slow:
        made.append(Slow())
        return made[-1]

    return Branch(
        TOPIC,
        make,
        gate=asyncio.Semaphore(1),
        opened=lambda *_: None,
        closed=lambda _: None,
        superseded=lambda _: None,
        before=before,
    )


async def test_a_topic_that_is_left_twice_at_once_is_read_again_when_both_have_left() -> None:
    made: list[Slow] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        first = branch(made)
        await first.tried.wait()
        first.leave(LIMIT_SECONDS)
        second = branch(made, before=first)
        await asyncio.sleep(0)
        second_left = second.leave(LIMIT_SECONDS)
        third = branch(made, before=second)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(made) == 1
        assert not second_left.done()
        made[0].may_close.set()
        await third.tried.wait()
        assert made[0].is_closed
        assert len(made) == 2
        made[1].may_close.set()
        await third.leave(LIMIT_SECONDS)
