"""One socket of the client: token, hello and welcome, typed errors, keep-alive; and how it comes back."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from scalable.client.endpoint import Endpoint as Endpoint
from scalable.client.endpoint import Urls as Urls
from scalable.client.time_limit import time_limit
from scalable.domain.errors import (
    Forbidden,
    Internal,
    NoLeader,
    NotLeader,
    ReaderTooSlow,
    ScalableError,
    SegmentStoreMissing,
    TermSuperseded,
    TooManyRequests,
    TopicDeleted,
    Unauthenticated,
    Unavailable,
    UnrecognisedError,
    error_from_json,
)
from scalable.domain.json_text import load_shallow_json
from scalable.domain.names import NamespaceName, TopicName
from scalable.wire.frames import (
    QUEUE_DELIVERY,
    SUBPROTOCOL,
    Close,
    Delivery,
    ErrorFrame,
    Frame,
    Gone,
    Hello,
    QueueDelivery,
    ServerFrame,
    Welcome,
    decode,
    decode_delivery,
    decode_queue_delivery,
    decoder,
    encode,
)

logger = logging.getLogger("scalable.client")

OPEN_TIMEOUT_SECONDS = 10.0
CLOSE_TIMEOUT_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 60.0
MAX_RECEIVED_BYTES = 64 * 1024 * 1024
CLOSE_TOPIC_DELETED = 4410
CLOSE_TOO_BIG = 1009

_QUEUE_KIND = bytes([QUEUE_DELIVERY])
_server_frames = decoder(ServerFrame)


class ConnectionLost(ConnectionError):
    """A socket ended without a typed error; coming back may mend it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the connection was lost ({reason or f'close code {code}'})")
        self.close_code = code


class FrameOverLimit(Exception):
    """A socket ended over a frame above the server's limit; sent again, it would end the next one, too."""

    def __init__(self) -> None:
        super().__init__(f"a frame was above the server's limit (close code {CLOSE_TOO_BIG})")


RETRIABLE_ERRORS = (
    OSError,
    TimeoutError,
    WebSocketException,
    Internal,
    NoLeader,
    NotLeader,
    ReaderTooSlow,
    SegmentStoreMissing,
    TermSuperseded,
    TooManyRequests,
    Unavailable,
)
"""What a new connection may mend; any other error ends a producer or consumer for good."""


NOT_FINAL_CLOSES = frozenset({4408, 4421, 4429})
"""Of the closes from 4400 to 4499 those that a new connection may mend when nobody knows their error."""

MOVING_ERRORS = (OSError, TimeoutError, WebSocketException, Internal, NoLeader, Unavailable)
"""What another node may not suffer from."""


class Connection:
    """An open socket after hello and welcome; one task receives, any task sends."""

    def __init__(
        self, socket: ClientConnection, about: TopicName | NamespaceName, *, lost: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._about = about
        self._lost = lost
        self._last_error: ScalableError | None = None
        self.welcome = Welcome(protocol=0, node="", max_frame_bytes=0, max_message_bytes=0)

    async def greet(self, hello: Hello) -> Welcome:
        """Send hello and wait for the welcome; raises what the server answers instead."""
        await self.send(hello)
        async with time_limit(OPEN_TIMEOUT_SECONDS):
            frame = await self.receive()
        if isinstance(frame, ErrorFrame):
            error = error_of(frame)
            if isinstance(error, UnrecognisedError):
                await self._wait_for_close()
            raise error
        if not isinstance(frame, Welcome):
            raise ConnectionLost(1002, f"a welcome was expected, not {type(frame).__name__}")
        self.welcome = frame
        return frame

    async def _wait_for_close(self) -> None:
        """Let the close say what an error means that this client does not know; raises what it says."""
        async with time_limit(OPEN_TIMEOUT_SECONDS):
            await self.receive()

    async def send(self, frame: Frame) -> None:
        """Send a control frame; waits while the socket's buffer is full."""
        await self._send(encode(frame))

    async def send_data(self, data: bytes) -> None:
        """Send a binary data frame; waits while the socket's buffer is full."""
        await self._send(data)

    async def _send(self, data: str | bytes) -> None:
        try:
            await self._socket.send(data)
        except ConnectionClosed as closed:
            raise self._ended(closed) from closed

    async def receive(self) -> Frame | Delivery | QueueDelivery:
        """Wait for a frame; raises TopicDeleted, the error that came before a close, or ConnectionLost."""
        try:
            data = await self._socket.recv()
        except ConnectionClosed as closed:
            raise self._ended(closed) from closed
        if isinstance(data, bytes):
            return decode_queue_delivery(data) if data[:1] == _QUEUE_KIND else decode_delivery(data)
        frame = decode(_server_frames, data)
        if isinstance(frame, Gone):
            raise TopicDeleted(topic=frame.topic)
        if isinstance(frame, ErrorFrame):
            self._last_error = error_of(frame)
        return frame

    def _ended(self, closed: ConnectionClosed) -> Exception:
        reason = self._reason_of(closed)
        if isinstance(reason, MOVING_ERRORS):
            self._lost()
        return reason

    def _reason_of(self, closed: ConnectionClosed) -> Exception:
        received = closed.rcvd
        if received is None:
            return ConnectionLost(1006, "the other side vanished")
        if received.code == CLOSE_TOPIC_DELETED:
            return TopicDeleted(topic=str(self._about))
        if received.code == CLOSE_TOO_BIG:
            return FrameOverLimit()
        last = self._last_error
        if isinstance(last, UnrecognisedError):
            known = received.reason == last.original_code and _is_final(received.code)
            return last if known else ConnectionLost(received.code, received.reason)
        if last is not None and received.reason == last.code:
            return last
        return ConnectionLost(received.code, received.reason)

    async def close(self) -> None:
        """Say goodbye and close the socket; never raises, and takes a few seconds at most."""
        with suppress(Exception):
            async with time_limit(CLOSE_TIMEOUT_SECONDS):
                await self._send(encode(Close()))
        await self._socket.close()


def _is_final(close_code: int) -> bool:
    """Tell by the number alone whether a new connection would end in the same way (docs/protocol.md, 9)."""
    return 4400 <= close_code <= 4499 and close_code not in NOT_FINAL_CLOSES


def error_of(frame: ErrorFrame) -> ScalableError:
    """Rebuild the typed error that an error frame carries."""
    body = {"code": frame.code, "reason": frame.reason, "fields": frame.fields, "hint": frame.hint}
    return error_from_json(body)


async def open_connection(
    endpoint: Endpoint, kind: str, about: TopicName | NamespaceName, *more: str, hello: Hello
) -> Connection:
    """Open a socket at the node in use and greet; a node that fails, now or later, is no longer in use.

    Raises Unauthenticated, Forbidden, TopicNotFound, ConnectionLost, OSError, TimeoutError.
    """
    url = endpoint.url
    try:
        socket = await _connect(endpoint, endpoint.socket_url(kind, about, *more))
        connection = Connection(socket, about, lost=partial(endpoint.failed, url))
        try:
            await connection.greet(hello)
        except BaseException:
            await connection.close()
            raise
    except MOVING_ERRORS:
        endpoint.failed(url)
        raise
    return connection


async def _connect(endpoint: Endpoint, address: str) -> ClientConnection:
    try:
        return await connect(
            address,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=endpoint.headers,
            ssl=endpoint.tls if address.startswith("wss:") else None,
            compression=None,
            proxy=None if endpoint.is_loopback else True,
            max_size=MAX_RECEIVED_BYTES,
            open_timeout=OPEN_TIMEOUT_SECONDS,
            close_timeout=CLOSE_TIMEOUT_SECONDS,
            ping_interval=KEEP_ALIVE_SECONDS,
            ping_timeout=KEEP_ALIVE_SECONDS,
        )
    except InvalidStatus as refused:
        raise _refusal(refused) from refused


def _refusal(refused: InvalidStatus) -> Exception:
    """Type what the server answered instead of opening a socket."""
    status, body = refused.response.status_code, refused.response.body
    try:
        parsed = load_shallow_json(body or b"")
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and parsed.get("code"):
        error = error_from_json(parsed)
        if not isinstance(error, UnrecognisedError) or _is_final(4000 + status):
            return error
    if status == 401:
        return Unauthenticated(problem="the server refused it")
    if status == 403:
        return Forbidden(role="of this token", right="open this socket")
    return ConnectionLost(1006, f"the server answered HTTP {status}")


class Backoff:
    """Growing, jittered waits between attempts, so that many clients do not come back at the same moment."""

    def __init__(self, *, first_seconds: float = 0.05, limit_seconds: float = 5.0) -> None:
        self._first, self._limit = first_seconds, limit_seconds
        self._attempts = 0
        self.last_error: Exception | None = None

    def reset(self) -> None:
        """Start again from the shortest wait, after a success."""
        self._attempts = 0
        self.last_error = None

    def hasten(self, limit_seconds: float) -> None:
        """Wait no longer than this from the next attempt on."""
        self._limit = min(self._limit, limit_seconds)

    @asynccontextmanager
    async def within(self, seconds: float, *others: Backoff) -> AsyncIterator[None]:
        """Bound a wait; raises ConnectionLost with the last failure of the attempts, or TimeoutError.

        `others` count the attempts of what is waited for inside, whose own bound may end with this one.
        """
        try:
            async with time_limit(seconds):
                yield
        except TimeoutError as error:
            failures = (each.last_error for each in (self, *others) if each.last_error is not None)
            last_error = next(failures, None)
            if last_error is None:
                raise
            raise ConnectionLost(1006, str(last_error)) from error

    def next_seconds(self) -> float:
        """Give the next wait: between half and the whole of a doubling span."""
        span = min(self._limit, self._first * 2 ** min(self._attempts, 16))
        self._attempts += 1
        return float(span * random.uniform(0.5, 1.0))


def least_pause_seconds(error: Exception) -> float:
    """Give what the server asks to wait before the next attempt, at most a minute; 0 when it asks nothing."""
    if not isinstance(error, TooManyRequests):
        return 0.0
    return min(max(0.0, error.retry_after_seconds), LONGEST_PAUSE_SECONDS)


async def keep_running(session: Callable[[], Awaitable[None]], *, backoff: Backoff, what: str) -> None:
    """Run a session again whenever it ends by something that a new connection may mend, else raise.

    One line is logged per loss, however many messages were under way. The session resets the back-off once
    it works.
    """
    while True:
        try:
            await session()
            return
        except RETRIABLE_ERRORS as error:
            backoff.last_error = error
            wait_seconds = least_pause_seconds(error) + backoff.next_seconds()
            logger.info("%s: %s; again in %.2f s", what, error, wait_seconds)
            await asyncio.sleep(wait_seconds)


async def first_to_end(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side until one ends, stop the others, and raise its error if it had one."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
