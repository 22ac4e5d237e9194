"""Gives each request and socket an id, counts it, and writes its line to the log (`scalable.access`).

The id comes with the request (`X-Request-Id`) or is made here; it goes back in the answer, stands on every
log line that the request causes, and in the audit. Neither headers nor queries are logged: they may hold
secrets.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from scalable import trace
from scalable.api import metrics

Scope = MutableMapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

DOOR = "scalable.door"
"""Where a view leaves the route that led to it, in the scope of its request."""
ACTOR = "scalable.actor"
"""Where a door leaves whoever asks, for the line of the request: views run in a context of their own."""
OTHER = "other"
REQUEST_ID_HEADER = b"x-request-id"
SOCKETS = frozenset({"lookup", "topics", "produce", "consume", "queue", "controller"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})

logger = logging.getLogger("scalable.access")


class Observed:
    """An ASGI application around another, for HTTP and for WebSockets."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with trace.about(request_id=request_id_of(scope)):
            observe = _Request if scope["type"] == "http" else _Socket
            observer = observe(scope, receive, send)
            try:
                await self._application(scope, observer.receive, observer.send)
            finally:
                observer.finish()


def shown(path: str) -> str:
    """A path for a line of the log: what would break the line, or hide a part of it, is escaped."""
    return path if path.isprintable() else path.encode("unicode_escape").decode()


class _Request:
    """One HTTP request: its status and its time."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self.receive, self._send = scope, receive, send
        self._begun_at = time.perf_counter()
        self._status = 0

    async def send(self, message: Message) -> None:
        """Pass a message on; the answer's head gets the request's id."""
        if message["type"] == "http.response.start":
            self._status = int(message["status"])
            headers = [*message.get("headers", ()), (REQUEST_ID_HEADER, trace.current().request_id.encode())]
            message = {**message, "headers": headers}
        await self._send(message)

    def finish(self) -> None:
        """Count the request and log it: what only read and succeeded at DEBUG."""
        method = self._scope["method"] if self._scope["method"] in _METHODS else OTHER
        door, seconds = str(self._scope.get(DOOR, OTHER)), time.perf_counter() - self._begun_at
        metrics.REQUESTS.labels(method, door, str(self._status)).inc()
        metrics.REQUEST_SECONDS.labels(method, door).observe(seconds)
        quiet = method in {"GET", "HEAD"} and self._status < 400
        text = "%s %s %s in %.1f ms"
        with trace.about(actor=str(self._scope.get(ACTOR, ""))):
            logger.log(
                logging.DEBUG if quiet else logging.INFO,
                text,
                self._scope["method"],
                shown(self._scope["path"]),
                self._status,
                seconds * 1000,
            )


class _Socket:
    """One WebSocket: how long it was open, and the code that ended it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._begun_at = time.perf_counter()
        self._kind, self._code, self._open = _kind_of(scope["path"]), 0, False

    async def receive(self) -> Message:
        """Pass a message on; the end tells its code."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect" and not self._code:
            self._code = int(message.get("code") or 1005)
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on; the socket counts as open from its acceptance on."""
        if message["type"] == "websocket.accept":
            self._open = True
            metrics.SOCKETS.labels(self._kind).inc()
        elif message["type"] == "websocket.close" and not self._code:
            self._code = int(message.get("code") or 1000)
        elif message["type"] == "websocket.http.response.start" and not self._code:
            self._code = int(message["status"])
        await self._send(message)

    def finish(self) -> None:
        """Count the end and log it."""
        if self._open:
            metrics.SOCKETS.labels(self._kind).dec()
        metrics.SOCKET_CLOSES.labels(self._kind, str(self._code)).inc()
        seconds = time.perf_counter() - self._begun_at
        logger.info("socket %s ended with %s after %.1f s", shown(self._scope["path"]), self._code, seconds)


def request_id_of(scope: Scope) -> str:
    """Give the id that came with the request, if it can be one, else a new one."""
    for name, value in scope.get("headers", ()):
        given = value.decode("latin-1")
        if name.lower() == REQUEST_ID_HEADER and _REQUEST_ID.fullmatch(given):
            return str(given)
    return uuid.uuid4().hex


def _kind_of(path: str) -> str:
    parts = path.split("/")
    return parts[4] if len(parts) > 4 and parts[4] in SOCKETS else OTHER
