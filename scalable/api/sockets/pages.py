"""How many claims the readers of one socket may hold in memory at once."""

import asyncio


class Pages:
    """A bound that readers take from when there is something to claim, and wait for where nothing is left.

    Not a semaphore: it counts those that wait as if they held something, and with many readers in turn before
    it none would ever find a page free.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._freed = asyncio.Event()

    def take(self) -> bool:
        """Take a page, if one is free."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def put_back(self) -> None:
        """Let another reader have the page."""
        self._free += 1
        self._freed.set()

    async def wait(self) -> None:
        """Wait until a page is free; somebody else may be faster to take it."""
        while self._free == 0:
            self._freed.clear()
            await self._freed.wait()
