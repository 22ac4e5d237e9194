"""Bounded waits of a task that is being cancelled, and of one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scalable.client.time_limit import time_limit

SHORT_SECONDS = 0.01


async def wait_for_nothing(seconds: float | None) -> None:
    async with time_limit(seconds):
        await asyncio.Event().wait()


async def in_a_clean_up(clean_up: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Cancel a task that then cleans up, and give it."""
    begun, cleaning = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean_up()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    await cleaning.wait()
    return task


async def test_a_wait_ends() -> None:
    with pytest.raises(TimeoutError):
        await wait_for_nothing(SHORT_SECONDS)


async def test_what_ends_in_time_is_left_alone() -> None:
    async with time_limit(60), time_limit(None):
        await asyncio.sleep(0)


async def test_a_wait_ends_in_a_task_that_is_being_cancelled() -> None:
    task = await in_a_clean_up(lambda: wait_for_nothing(SHORT_SECONDS))
    with pytest.raises(TimeoutError):
        await task


@pytest.mark.parametrize("seconds", [60, None])
async def test_a_second_cancellation_is_one(seconds: float | None) -> None:
    task = await in_a_clean_up(lambda: wait_for_nothing(seconds))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_is_raised() -> None:
    with pytest.raises(KeyError):
        async with time_limit(60):
            raise KeyError
