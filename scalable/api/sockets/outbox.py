"""What waits to be sent on one socket: bounded in frames and bytes, in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from scalable.domain.errors import ReaderTooSlow

DEFAULT_MAX_FRAMES = 256
DEFAULT_MAX_BYTES = 4 * 1024 * 1024
HEADROOM_FRAMES = 1024
"""How many frames that cannot wait (answers, pushes) may stand above the limit at which deliveries wait."""


class Ending(NamedTuple):
    """The last thing that is sent: a close with its code."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Perishable:
    """A frame that must not leave after `deadline` (monotonic seconds): `on_late` is called instead."""

    frame: bytes
    deadline: float
    on_late: Callable[[], None]

    def __len__(self) -> int:
        return len(self.frame)

    def if_in_time(self) -> bytes | None:
        """The frame, or None when it is too late for it, which whoever made it is told."""
        if monotonic() < self.deadline:
            return self.frame
        self.on_late()
        return None


Entry = str | bytes | Perishable


class Outbox:
    """Frames in order; bulky ones wait for room, the others go in at once or find the reader too slow."""

    def __init__(
        self, *, max_frames: int = DEFAULT_MAX_FRAMES, max_bytes: int = DEFAULT_MAX_BYTES, headroom: int = 0
    ) -> None:
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._hard_frames = max_frames + headroom
        self._frames: deque[Entry] = deque()
        self._bytes = 0
        self._ending: Ending | None = None
        self._filled = asyncio.Event()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and the end is not decided: a frame may go past this box."""
        return not self._frames and self._ending is None

    @property
    def has_room(self) -> bool:
        """True while a bulky frame need not wait."""
        return len(self._frames) < self._max_frames and self._bytes < self._max_bytes

    @property
    def ending(self) -> Ending | None:
        """How the socket ends, once that is decided; nothing is taken in from then on."""
        return self._ending

    def put(self, frame: Entry) -> None:
        """Take a frame in; raises ReaderTooSlow when too many wait already."""
        if self._ending is not None:
            return
        if len(self._frames) >= self._hard_frames:
            raise ReaderTooSlow(limit=self._hard_frames)
        self._frames.append(frame)
        self._bytes += len(frame)
        self._filled.set()

    async def put_when_room(self, frame: Entry) -> None:
        """Take a bulky frame in as soon as there is room; waiters go in the order in which they came."""
        if self._ending is None and (self._waiters or not self.has_room):
            await self._turn()
        self.put(frame)

    def end(self, ending: Ending, *, drop: bool = False) -> None:
        """Send what waits (or drop it), then close; the first ending stands."""
        if drop:
            self._frames.clear()
            self._bytes = 0
        if self._ending is None:
            self._ending = ending
        self._filled.set()
        while self._waiters:
            self._wake_waiter()

    def end_with(self, frame: str | bytes, ending: Ending) -> None:
        """Drop what waits, send this frame, then close; the first ending stands."""
        self.end(ending, drop=True)
        self._frames.append(frame)
        self._bytes = len(frame)

    async def take(self) -> Entry | Ending:
        """The next frame, or the ending behind the last one."""
        while not self._frames:
            if self._ending is not None:
                return self._ending
            self._filled.clear()
            await self._filled.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        if self._waiters and self.has_room:
            self._wake_waiter()
        return frame

    async def _turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if (
                waiter.done() and not waiter.cancelled()
            ):  # woken and cancelled at once: the turn is the next one's
                self._wake_waiter()
            raise

    def _wake_waiter(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
