"""The calls of one socket: a few at a time, all of them, whatever becomes of one."""

import asyncio
from functools import partial

import pytest

from scalable.api.sockets.some_at_once import CALLS_AT_ONCE, some_at_once

CALLS = 5_000


class Counted:
    """Calls that count how many of them run."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.done: list[int] = []

    async def call(self, number: int) -> None:
        """Run for a moment; every third one fails."""
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.done.append(number)
        if number % 3 == 0:
            raise ValueError(number)


async def test_thousands_of_calls_are_made_a_few_at_a_time() -> None:
    counted = Counted()
    failures = await some_at_once(partial(counted.call, number) for number in range(CALLS))
    assert [failure.args for failure in failures] == [(number,) for number in range(0, CALLS, 3)]
    assert sorted(counted.done) == list(range(CALLS))
    assert counted.most == CALLS_AT_ONCE


async def test_the_end_of_who_waits_ends_the_calls() -> None:
    counted = Counted()
    making = asyncio.create_task(some_at_once(partial(counted.call, number) for number in range(CALLS)))
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    await asyncio.sleep(0)
    assert len(counted.done) < CALLS
