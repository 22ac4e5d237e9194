"""Many WebSocket listeners in one process that cost next to nothing: they count frames and answer pings."""

import asyncio
import struct
from urllib.parse import urlsplit

from scalable.wire.frames import SUBPROTOCOL

CONNECTING_AT_ONCE = 50
_TEXT, _PING, _PONG = 1, 9, 10
_ANY_KEY = "AAAAAAAAAAAAAAAAAAAAAA=="
_ANY_MASK = bytes(4)


class Listener(asyncio.Protocol):
    """One socket; `heard` counts its text frames, `last_bytes` is the size of the newest."""

    def __init__(self, crowd: "Crowd", request: bytes, hello: str | None) -> None:
        self._crowd = crowd
        self._request = request
        self._hello = hello
        self._buffer = b""
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.lost += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open and not self._handshake():
            return
        while (taken := self._frame()) is not None:
            self._buffer = self._buffer[taken:]

    def _handshake(self) -> bool:
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return False
        assert head.startswith(b"HTTP/1.1 101"), head
        self._buffer, self._open = rest, True
        if self._hello is not None:
            self._send(_TEXT, self._hello.encode())
        self._crowd.let_in()
        return True

    def _frame(self) -> int | None:
        """Take the first frame of the buffer and give its size, or None while it is not whole."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        start, length = 2, buffer[1]
        if length == 126 and len(buffer) >= 4:
            start, length = 4, struct.unpack_from(">H", buffer, 2)[0]
        elif length == 127 and len(buffer) >= 10:
            start, length = 10, struct.unpack_from(">Q", buffer, 2)[0]
        if (length in {126, 127} and start == 2) or len(buffer) < start + length:
            return None
        if buffer[0] & 15 == _PING:
            self._send(_PONG, buffer[start : start + length])
        elif buffer[0] & 15 == _TEXT:
            self._crowd.hear(length)
        return start + length

    def _send(self, opcode: int, payload: bytes) -> None:
        # A client must mask; with a mask of zeros the payload stays as it is.
        size = len(payload)
        head = (
            bytes([128 | opcode, 128 | size]) if size < 126 else struct.pack(">BBH", 128 | opcode, 254, size)
        )
        self._transport.write(head + _ANY_MASK + payload)

    def close(self) -> None:
        self._transport.abort()


class Crowd:
    """Listeners of one address, all of which are told the same."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._expected = 0
        self._heard = 0
        self._enough = asyncio.Event()
        self._opened = 0
        self._all_open = asyncio.Event()
        self.lost = 0
        self.last_bytes = 0

    async def open(self, count: int, url: str, *, token: str, hello: str | None, greetings: int) -> None:
        """Open so many sockets and hear the frames that greet each of them."""
        self.expect(greetings * count)
        request = _upgrade(url, token)
        address = urlsplit(url)
        loop = asyncio.get_running_loop()
        for start in range(0, count, CONNECTING_AT_ONCE):
            await asyncio.gather(
                *(
                    loop.create_connection(
                        lambda: self._join(Listener(self, request, hello)),
                        str(address.hostname),
                        address.port or 80,
                    )
                    for _ in range(min(CONNECTING_AT_ONCE, count - start))
                )
            )
            await self._all_open.wait()
        await self.enough()

    def expect(self, frames: int) -> None:
        """Begin to count anew, up to so many frames in all."""
        self._expected, self._heard = frames, 0
        self._enough.clear()

    async def enough(self) -> int:
        """Wait until all that was expected is heard; gives the size of the last frame, in bytes."""
        if self._heard < self._expected:
            await self._enough.wait()
        if self.lost:
            raise ConnectionError(f"{self.lost} sockets were lost")
        return self.last_bytes

    def let_in(self) -> None:
        """Count a handshake; called by the listeners."""
        self._opened += 1
        if self._opened == len(self._listeners):
            self._all_open.set()

    def hear(self, size_bytes: int) -> None:
        """Count a frame; called by the listeners."""
        self._heard += 1
        self.last_bytes = size_bytes
        if self._heard == self._expected:
            self._enough.set()

    async def close(self) -> None:
        """Leave."""
        for listener in self._listeners:
            listener.close()

    def _join(self, listener: Listener) -> Listener:
        self._listeners.append(listener)
        self._all_open.clear()
        return listener


def _upgrade(url: str, token: str) -> bytes:
    address = urlsplit(url)
    lines = [
        f"GET {address.path or '/'} HTTP/1.1",
        f"Host: {address.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {_ANY_KEY}",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        f"Authorization: Bearer {token}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
