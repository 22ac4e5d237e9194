"""A transport that hands on what came in slices, so that no connection has the node's loop for itself.

The server itself parses all that one connection sent, be it 50,000 frames of nothing, before it looks at
another one.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SLICE_BYTES = 8_192
TURN_SECONDS = 0.002
"""So long a connection is read before others have their turn: a large message at once, small frames not."""

NO_LINGERING = struct.pack("ii", 1, 0)


class PacedTransport:
    """The transport as the protocol sees it; the protocol gives it what comes, and gets it back in slices.

    With `cut_seconds`, what the peer has not read so long after the close is thrown away; else it may stay.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[bytes], None],
        *,
        cut_seconds: float | None = None,
    ) -> None:
        self.raw = transport
        self.write = transport.write  # with each frame, and so without a detour
        self.resumed_at = loop.time()
        self._loop, self._take, self._cut_seconds = loop, take, cut_seconds
        self._waiting = bytearray()
        self._is_paused = self._is_raw_paused = False
        self._turn: asyncio.Handle | None = None
        self._cut: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    @property
    def is_paused(self) -> bool:
        """Whether the protocol takes nothing now."""
        return self._is_paused

    def receive(self, data: bytes) -> None:
        """Take what the network brought."""
        if self._waiting or self._is_paused or len(data) > SLICE_BYTES:
            self._waiting += data
            if self._turn is None:
                self._read()
        else:
            self._take(data)

    def hold(self) -> None:
        """Hand on nothing until `resume_reading`, and notice when the peer leaves meanwhile."""
        self._is_paused = True

    def pause_reading(self) -> None:
        """Hand on nothing, and leave what comes to the network."""
        self._is_paused = True
        self._pause_raw()

    def resume_reading(self) -> None:
        """Go on where reading stopped."""
        self._is_paused = False
        self.resumed_at = self._loop.time()
        if self._waiting:
            self._schedule()
        else:
            self._resume_raw()

    def close(self) -> None:
        """Close, and cut what the peer does not read in time."""
        self.raw.close()
        if self._cut_seconds is not None and self._cut is None:
            self._cut = self._loop.call_later(self._cut_seconds, self.raw.abort)

    def cut(self) -> None:
        """End the connection now, with all that the peer has not read, be it here or in the kernel."""
        link = self.raw.get_extra_info("socket")
        with suppress(OSError, ValueError):  # it may be closed already, of which each loop tells in its way
            if link is not None:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
        self.raw.abort()

    def forget(self) -> None:
        """Let go of what waits: the connection is over, or somebody else's."""
        self._waiting.clear()
        for handle in (self._turn, self._cut):
            if handle is not None:
                handle.cancel()

    def _read(self) -> None:
        self._turn = None
        ends_at = self._loop.time() + TURN_SECONDS
        while self._waiting and not self._is_paused:
            if self.raw.is_closing():
                self._waiting.clear()
                return
            piece = bytes(self._waiting[:SLICE_BYTES])
            del self._waiting[:SLICE_BYTES]
            self._take(piece)
            if self._loop.time() >= ends_at:
                break
        self._settle()

    def _settle(self) -> None:
        if self._waiting:
            self._pause_raw()
            if not self._is_paused:
                self._schedule()
        elif not self._is_paused:
            self._resume_raw()

    def _schedule(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._read)

    def _pause_raw(self) -> None:
        if not self._is_raw_paused and not self.raw.is_closing():
            self._is_raw_paused = True
            self.raw.pause_reading()

    def _resume_raw(self) -> None:
        if self._is_raw_paused and not self.raw.is_closing():
            self._is_raw_paused = False
            self.raw.resume_reading()
