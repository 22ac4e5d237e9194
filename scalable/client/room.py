"""A bound on what a producer holds in memory: senders wait in line while it is used up."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """Bytes and messages that may be held at once; waiters are served in the order in which they came."""

    def __init__(self, *, max_bytes: int, max_messages: int) -> None:
        """Raises ValueError for a bound below 1, under which only one message at a time would be held."""
        if min(max_bytes, max_messages) < 1:
            raise ValueError("max_pending_bytes and max_pending_messages: one is not at least 1")
        self._max_bytes, self._max_messages = max_bytes, max_messages
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: Exception | None = None
        self._called = 0
        """Those that were let in but did not run since: whoever comes now must not overtake them."""
        self.used_bytes = 0
        self.used_messages = 0

    async def take(self, size: int) -> None:
        """Wait for room for one message; one that is larger than the whole room gets it alone."""
        self._raise_failure()
        if not self._waiting and not self._called and self._fits(size):
            self._use(size)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            self._abandon(size, waiter)
            raise
        self._called -= 1
        if self._failure is not None:  # since it was let in: nobody takes the message any more
            self.give(size)
        self._raise_failure()
        self._serve()

    def give(self, size: int) -> None:
        """Return the room of one message."""
        self.used_bytes -= size
        self.used_messages -= 1
        self._serve()

    def fail(self, error: Exception) -> None:
        """Refuse all that wait and all that come."""
        self._failure = error
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fits(self, size: int) -> bool:
        if self.used_messages == 0:
            return True
        return self.used_bytes + size <= self._max_bytes and self.used_messages < self._max_messages

    def _use(self, size: int) -> None:
        self.used_bytes += size
        self.used_messages += 1

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, waiter = self._waiting.popleft()
            if not waiter.done():
                self._use(size)
                self._called += 1
                waiter.set_result(None)

    def _abandon(self, size: int, waiter: asyncio.Future[None]) -> None:
        """A waiter that was cancelled gives its room back if it had been served, else leaves the line."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._called -= 1
            self.give(size)
        else:
            self._waiting = deque(item for item in self._waiting if item[1] is not waiter)
            self._serve()
