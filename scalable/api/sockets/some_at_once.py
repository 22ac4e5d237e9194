"""Many calls of one socket, a few at a time: one client's thousands must not fill the node's queue."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

CALLS_AT_ONCE = 16
"""Enough to keep all threads of a node busy; the calls of others wait behind these, not behind thousands."""


async def some_at_once(calls: Iterable[Callable[[], Awaitable[None]]]) -> list[BaseException]:
    """Make all calls, `CALLS_AT_ONCE` at a time, wait for them, and give what they raised."""
    room = asyncio.Semaphore(CALLS_AT_ONCE)

    async def make(call: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await call()

    outcomes = await asyncio.gather(*map(make, calls), return_exceptions=True)
    return [outcome for outcome in outcomes if outcome is not None]
