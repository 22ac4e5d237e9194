"""A peer of a socket of this process that takes nothing until it is let go."""

import asyncio
from collections.abc import Callable
from typing import Any

from scalable.asgi import socket_application
from scalable.services.access import mint_token
from scalable.wire.frames import PROTOCOL_VERSION, Frame, Hello, encode
from tests.api.knocking import Message, Session, socket_scope


class StalledPeer:
    """One connection to a door; all but the handshake waits for `flowing`, and `sent` is what has come."""

    def __init__(self, door: str) -> None:
        self.flowing = asyncio.Event()
        self.closed = asyncio.Event()
        self.sent: list[Message] = []
        self._progress = asyncio.Event()
        headers = {"authorization": f"Bearer {mint_token(role='admin')}"}
        scope = socket_scope(f"/ws/v2/scalable/{door}", headers=headers, subprotocols=[])
        self.session = Session(self._application, scope)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        async def stalling(message: Message) -> None:
            if message["type"] != "websocket.accept":
                await self.flowing.wait()
            self.sent.append(message)
            self._progress.set()
            if message["type"] == "websocket.close":
                self.closed.set()

        await socket_application(scope, receive, stalling)  # type: ignore[arg-type]

    async def open(self, *, consumer: str | None = None) -> None:
        """Shake hands and say hello."""
        await self.session.send(type="websocket.connect")
        await self.say(Hello(protocol=PROTOCOL_VERSION, detail="full", consumer=consumer))

    async def say(self, frame: Frame) -> None:
        """Send a frame."""
        await self.session.send(type="websocket.receive", text=encode(frame))

    async def until(self, holds: Callable[[list[Message]], bool], *, within_seconds: float = 20) -> None:
        """Wait until a condition on what has come holds."""
        async with asyncio.timeout(within_seconds):
            while not holds(self.sent):
                self._progress.clear()
                await self._progress.wait()

    async def leave(self) -> None:
        """Go, and wait until the socket has ended."""
        await self.session.send(type="websocket.disconnect", code=1000)
        await self.session.ended()
