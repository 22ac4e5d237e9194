"""How many claims the readers of one socket may hold in memory at once."""

import asyncio
from collections import deque


class Pages:
    """A bound that readers take from when there is something to claim, and wait for where nothing is left.

    Not a semaphore: it counts those that wait as if they held something, and with many readers in turn before
    it none would ever find a page free. Nor an event, which wakes thousands of readers for each page.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a page, if one is free."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def put_back(self) -> None:
        """Let another reader have the page."""
        self._free += 1
        self._wake_next()

    async def wait(self) -> None:
        """Wait until a page is free; somebody else may be faster to take it."""
        place = self._waiting.append
        while self._free == 0:
            woken = asyncio.get_running_loop().create_future()
            place(woken)
            await woken
            place = self._waiting.appendleft  # who was overtaken stays the first

    def _wake_next(self) -> None:
        """Wake who waits longest, and the next one if that one leaves the page: it may have no turn."""
        while self._free and self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                asyncio.get_running_loop().call_soon(self._wake_next)
                return
