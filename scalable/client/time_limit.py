"""A bound on a wait that holds in a task that is being cancelled, too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[None]:
    """Bound what is awaited inside; raises TimeoutError.

    `asyncio.timeout` before Python 3.11.3 raises CancelledError in its place in a task that cleans up after
    its cancellation (as by Ctrl-C), and who catches TimeoutError leaves out what follows: a leave, a close.
    """
    limit, requests = asyncio.timeout(seconds), _cancel_requests()
    try:
        async with limit:
            yield
    except asyncio.CancelledError as cancelled:
        if not limit.expired() or _cancel_requests() > requests:
            raise
        raise TimeoutError from cancelled


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
