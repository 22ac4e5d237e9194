"""Refuses bodies above the limit before Django writes them to disk."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from scalable.api.errors import answer_of
from scalable.domain.errors import MessageTooLarge

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class LimitedBodies:
    """An ASGI application around another: a body that is, or grows, too large is answered with 413."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        limit_bytes: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        announced_bytes = _announced_bytes(scope)
        if announced_bytes > limit_bytes:
            await _refuse(send, announced_bytes, limit_bytes)
            return
        body = _Body(receive, limit_bytes)
        await self._application(scope, body.receive, send)
        if body.exceeded:
            await _refuse(send, body.size_bytes, limit_bytes)


class _Body:
    """Counts what arrives; beyond the limit the application hears that the client went away."""

    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._limit_bytes = limit_bytes
        self.size_bytes = 0

    @property
    def exceeded(self) -> bool:
        return self.size_bytes > self._limit_bytes

    async def receive(self) -> Message:
        message = await self._receive()
        self.size_bytes += len(message.get("body", b""))
        return {"type": "http.disconnect"} if self.exceeded else message


def _announced_bytes(scope: Any) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(send: Send, size_bytes: int, limit_bytes: int) -> None:
    error = MessageTooLarge(size_bytes=size_bytes, limit_bytes=limit_bytes)
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    status = answer_of(error).status
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(error.to_json()).encode()})
