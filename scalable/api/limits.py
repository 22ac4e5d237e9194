"""Refuses bodies that are too large or too slow before Django is asked, and awaits none from strangers."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from scalable.api.errors import answer_of
from scalable.api.strangers import is_stranger
from scalable.domain.errors import BodyTooSlow, MessageTooLarge, ScalableError

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

BODY_BYTES_PER_SECOND = 8 * 1024
"""A body that comes as fast as this, or faster, may take as long as it is large."""


def body_limit_seconds(size_bytes: int) -> float:
    """How long a body, or a message of a socket, may take of which so much has come."""
    return float(settings.SCALABLE_REQUEST_BODY_SECONDS) + size_bytes / BODY_BYTES_PER_SECOND


class LimitedBodies:
    """An ASGI application around another: a body that is, or grows, too large is answered with 413.

    One that does not come in time is answered with 408. What a stranger sends is not awaited: the doors
    judge it as if it had no body.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        limit_bytes: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        announced_bytes = _announced_bytes(scope)
        if announced_bytes > limit_bytes:
            await _refuse(send, MessageTooLarge(size_bytes=announced_bytes, limit_bytes=limit_bytes))
        elif _has_body(scope) and is_stranger(scope):
            await self._application(scope, _Unread(receive).receive, send)
        else:
            body = _Body(receive, limit_bytes)
            await self._application(scope, body.receive, send)
            if body.refusal is not None:
                await _refuse(send, body.refusal)


class _Body:
    """Counts what arrives; beyond a limit the application hears that the client went away."""

    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._begun_at = time.monotonic()
        self._is_whole = False
        self.refusal: ScalableError | None = None

    async def receive(self) -> Message:
        """Give the next part of the body; after the last one, the end of the connection."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._limit_seconds - (time.monotonic() - self._begun_at)):
                message = await self._receive()
        except TimeoutError:
            limit_seconds = round(self._limit_seconds, 1)
            return self._end(BodyTooSlow(size_bytes=self._size_bytes, limit_seconds=limit_seconds))
        self._size_bytes += len(message.get("body", b""))
        if self._size_bytes > self._limit_bytes:
            return self._end(MessageTooLarge(size_bytes=self._size_bytes, limit_bytes=self._limit_bytes))
        self._is_whole = not message.get("more_body", False)
        return message

    @property
    def _limit_seconds(self) -> float:
        return body_limit_seconds(self._size_bytes)

    def _end(self, refusal: ScalableError) -> Message:
        self.refusal = refusal
        return {"type": "http.disconnect"}


class _Unread:
    """An empty body, whatever arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_given = False

    async def receive(self) -> Message:
        """Give the empty body, then wait for the end of the connection."""
        if not self._is_given:
            self._is_given = True
            return {"type": "http.request"}
        while (message := await self._receive())["type"] != "http.disconnect":
            pass
        return message


def _has_body(scope: Any) -> bool:
    return any(name in {b"content-length", b"transfer-encoding"} for name, _ in scope["headers"])


def _announced_bytes(scope: Any) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(send: Send, error: ScalableError) -> None:
    body = json.dumps(error.to_json()).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": answer_of(error).status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
