"""The way out to the server: a frame that it takes at once costs no task and no turn of the loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]

PEER_IS_GONE = (OSError, RuntimeError)
"""What servers raise for a peer that left or is about to; its disconnect message follows."""


class Lane:
    """One message after the other; nearly always the server takes it without waiting.

    When it makes us wait, a task carries on, `busy_since` says since when (loop time, seconds), and
    `on_stall` is called once.
    """

    def __init__(self, send: Send, *, on_stall: Callable[[], None]) -> None:
        self._send = send
        self._on_stall = on_stall
        self._stalled: asyncio.Task[None] | None = None
        self._awaited = False
        self.busy_since: float | None = None

    @property
    def is_free(self) -> bool:
        """True when a message can be started, and none waits to be the next."""
        return self._stalled is None and not self._awaited

    def start(self, message: Message) -> None:
        """Send a message: it has left when this returns, or a task carries on; the lane must be free."""
        sending = self._deliver(message)
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return
        self.busy_since = asyncio.get_running_loop().time()
        self._stalled = asyncio.create_task(self._carry_on(sending, waits_for))
        self._on_stall()

    async def send(self, message: Message) -> None:
        """Send a message and wait until it has left."""
        await self.turn()
        self.start(message)
        if self._stalled is not None:
            await self._stalled

    async def turn(self) -> None:
        """Wait until the lane is free; a message that is started without another wait is the next one."""
        if self._stalled is None:
            return
        # Between the end of what stalled and our turn of the loop, nobody may go ahead.
        self._awaited = True
        try:
            await self._stalled
        finally:
            self._awaited = False

    async def close(self) -> None:
        """Give up what has not left."""
        if self._stalled is not None:
            self._stalled.cancel()
            await asyncio.gather(self._stalled, return_exceptions=True)

    async def _deliver(self, message: Message) -> None:
        try:
            await self._send(message)
        except PEER_IS_GONE:
            return

    async def _carry_on(self, sending: Coroutine[Any, None, None], waits_for: Any) -> None:
        try:
            await _Rest(sending, waits_for)
        finally:
            sending.close()
            self._stalled, self.busy_since = None, None


class _Rest:
    """What is left of a coroutine that was begun by hand and waits for a future."""

    def __init__(self, begun: Coroutine[Any, None, None], waits_for: Any) -> None:
        self._begun = begun
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, None]:
        yield self._waits_for
        yield from self._begun.__await__()
