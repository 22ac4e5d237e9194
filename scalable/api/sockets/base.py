"""What every socket has in common: handshake, hello, strict frames, a bounded way out, and an orderly end.

Handlers of frames must not wait for anything long: while one runs, neither further frames nor the end of the
connection are seen. Long work belongs in `spawn`, what is sent goes through `push` or `push_when_room`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, cast

import msgspec
from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.conf import settings

from scalable import trace
from scalable.api.doorkeeper import doorkeeper
from scalable.api.errors import close_code_of, internal_error
from scalable.api.node import node
from scalable.api.raw_path import check_scope
from scalable.api.socket_protocol import CUT
from scalable.api.sockets.handshake import deny, pass_of, subprotocol_of, topic_of
from scalable.api.sockets.lane import Lane, Message, Send
from scalable.api.sockets.outbox import Ending, Entry, Outbox, Perishable
from scalable.domain.access import Right, Subject
from scalable.domain.errors import (
    FrameInvalid,
    FrameTooLarge,
    FrameUnknownType,
    HelloMissing,
    PermitsExceeded,
    ProtocolUnsupported,
    ReaderTooSlow,
    ReadOnly,
    ScalableError,
    Unauthenticated,
)
from scalable.domain.names import TopicName
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Close,
    ErrorFrame,
    Frame,
    Hello,
    Welcome,
    decode,
    decoder,
    encode,
)

logger = logging.getLogger(__name__)

NORMAL = 1000
TURN_OUT_SECONDS = 2.0
CLOCK_SECONDS = 60.0
PROTOCOL_ERRORS = (
    FrameInvalid,
    FrameTooLarge,
    FrameUnknownType,
    HelloMissing,
    PermitsExceeded,
    ProtocolUnsupported,
)
"""Errors after which a peer cannot be trusted to keep to the protocol: an error frame, then a close."""


class Socket(AsyncConsumer):
    """A socket; subclasses answer `opened`, `frame_received`, `data_received` and `closed`."""

    right: ClassVar[Right] = Right.LOOKUP
    frames: ClassVar["msgspec.json.Decoder[Frame]"] = decoder(Hello | Close)

    scope: Any
    _send: Send
    subject: Subject
    topic: TopicName
    hello: Hello | None = None

    def __init__(self) -> None:
        self.outbox = self.make_outbox()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._lane: Lane | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._dropped = self._turned_out = self._is_torn_down = False

    # For subclasses.

    def make_outbox(self) -> Outbox:
        """The bounds of what may wait to be sent."""
        return Outbox()

    def read_path(self) -> None:
        """Read what the path names; raises InvalidName."""
        self.topic = topic_of(self.scope)

    async def opened(self, hello: Hello) -> None:
        """The client said hello in a version that is spoken here."""

    async def frame_received(self, frame: Frame) -> None:
        """A control frame came after the hello."""

    async def data_received(self, data: bytes) -> None:
        """A binary frame came after the hello; raises FrameInvalid where none is expected."""
        raise FrameInvalid(problem="binary frames have no meaning on this socket")

    async def closed(self) -> None:
        """The socket ended, whichever way; called once, also when it never opened."""

    def welcome(self, **more: Any) -> None:
        """Answer the hello: what every socket tells, and `more` fields of the frame."""
        self.push(
            Welcome(
                protocol=PROTOCOL_VERSION,
                node=node.url,
                max_frame_bytes=settings.SCALABLE_MAX_FRAME_BYTES,
                max_message_bytes=settings.SCALABLE_MAX_MESSAGE_BYTES,
                **more,
            )
        )

    def push(self, frame: Frame | str | bytes) -> None:
        """Send a frame as soon as those before it left; a reader that is too far behind is closed."""
        data = encode(frame) if isinstance(frame, Frame) else frame
        if self._lane is not None and self._lane.is_free and self.outbox.is_idle:
            self._lane.start(_message(data))
            return
        try:
            self.outbox.put(data)
        except ReaderTooSlow as error:
            self.drop(error)

    async def push_when_room(self, frame: Entry) -> None:
        """Send a bulky frame; waits while too much stands before it."""
        await self.outbox.put_when_room(frame)

    def refuse(
        self,
        error: ScalableError,
        *,
        segment_id: int | None = None,
        bucket: int = 0,
        request_id: int | None = None,
    ) -> None:
        """Send an error frame; the socket stays open."""
        self.push(error_frame(error, segment_id=segment_id, bucket=bucket, request_id=request_id))

    def fail(self, error: BaseException) -> None:
        """Send an error frame and close with the error's code."""
        known = error if isinstance(error, ScalableError) else internal_error(error)
        self.refuse(known)
        self.end_by(known)

    def end_by(self, error: ScalableError) -> None:
        """Close with an error's code once everything that waits was sent."""
        self.end(close_code_of(error), error.code)

    def end(self, code: int = NORMAL, reason: str = "") -> None:
        """Close once everything that waits was sent."""
        self.outbox.end(Ending(code, reason))

    def drop(self, error: ScalableError) -> None:
        """Close a peer that does not read: what waits is thrown away, the close itself gets little time."""
        if not self._dropped:
            self._dropped = True
            self.outbox.end(Ending(close_code_of(error), error.code), drop=True)
            self._call_later("linger", self._linger_seconds, self._cut)

    def turn_out(self, error: ScalableError) -> None:
        """Close whoever may stay no longer: what waits is thrown away, and nothing more is taken in."""
        if not self._dropped:
            self._dropped = True
            self.outbox.end_with(encode(error_frame(error)), Ending(close_code_of(error), error.code))
        if not self._turned_out:  # also one that was dropped before, and may still be reading
            self._turned_out = True
            # Not one of its timers: the socket may have ended, and what it sent still waits for the peer.
            asyncio.get_running_loop().call_later(TURN_OUT_SECONDS, self._cut)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work beside the frames; the socket's end cancels it, and its failure ends the socket."""
        task = self.keep(work)
        self._tasks.add(task)
        return task

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that the socket's end does not cancel but `closed`; its failure ends the socket."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_done)
        return task

    # The ASGI application.

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection.

        Not the base class's loop: that one wants a channel layer, which costs a subscription a socket and a
        hop a frame, and visits a thread before each frame for Django's connections.
        """
        self.scope, self._send = scope, send
        self._main = asyncio.current_task()
        try:
            while True:
                await self.dispatch(await receive())
        except StopConsumer:
            pass
        except asyncio.CancelledError:
            if not self._dropped:
                raise
        finally:
            await self._tear_down()

    async def dispatch(self, message: Message) -> None:
        """Hand an ASGI message to its handler."""
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def websocket_connect(self, message: Message) -> None:
        """Let the peer in, or answer the handshake with the error."""
        try:
            shown = await pass_of(self.scope, right=self.right)
            doorkeeper.admit(self, shown)
            self.subject = shown.subject
            if settings.SCALABLE_READ_ONLY and self.right is not Right.LOOKUP:
                raise ReadOnly
            trace.name_actor(self.subject.role)
            check_scope(self.scope)
            self.read_path()
        except Exception as error:
            known = error if isinstance(error, ScalableError) else internal_error(error)
            await deny(self.scope, self._send, known)
            raise StopConsumer from error
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol_of(self.scope)})
        self._lane = Lane(self._send, on_stall=self._lane_stalled)
        self._sender = asyncio.create_task(self._send_frames(self._lane))
        self._call_later("hello", settings.SCALABLE_SOCKET_HELLO_SECONDS, self._check_hello)
        self._watch_expiry()

    async def websocket_receive(self, message: Message) -> None:
        """Take one frame; an error that breaks the protocol closes, any other is answered."""
        if self.outbox.ending is not None:
            return
        try:
            await self._take(message.get("text"), message.get("bytes"))
        except PROTOCOL_ERRORS as error:
            self.fail(error)
        except ScalableError as error:
            self.refuse(error)
        except Exception as error:
            self.fail(error)

    async def websocket_disconnect(self, message: Message) -> None:
        """The connection is over."""
        raise StopConsumer

    async def _take(self, text: str | None, data: bytes | None) -> None:
        size = _size_of(text, data)
        if size > settings.SCALABLE_MAX_FRAME_BYTES:
            raise FrameTooLarge(size_bytes=size, limit_bytes=settings.SCALABLE_MAX_FRAME_BYTES)
        if text is None:
            if self.hello is None:
                raise HelloMissing(limit_seconds=settings.SCALABLE_SOCKET_HELLO_SECONDS)
            await self.data_received(data or b"")
            return
        frame = decode(self.frames, text)
        if isinstance(frame, Close):
            self.end()
        elif isinstance(frame, Hello):
            await self._greet(frame)
        elif self.hello is None:
            raise HelloMissing(limit_seconds=settings.SCALABLE_SOCKET_HELLO_SECONDS)
        else:
            await self.frame_received(frame)

    async def _greet(self, hello: Hello) -> None:
        if self.hello is not None:
            raise FrameInvalid(problem="there was a hello already")
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolUnsupported(version=hello.protocol, supported=[PROTOCOL_VERSION])
        self.hello = hello
        try:
            await self.opened(hello)
        except ScalableError as error:  # without what it was opened for, a socket has no use
            self.fail(error)

    async def _send_frames(self, lane: Lane) -> None:
        while not isinstance(entry := await self.outbox.take(), Ending):
            await lane.turn()  # only what leaves now can be told to be in time
            frame = entry.if_in_time() if isinstance(entry, Perishable) else entry
            if frame is not None:
                await lane.send(_message(frame))
        await lane.send({"type": "websocket.close", "code": entry.code, "reason": entry.reason})

    def _watch_lane(self) -> None:
        """Drop the peer when one frame takes too long to leave; no timer runs while frames leave at once."""
        since = self._lane.busy_since if self._lane else None
        if since is None:
            self._timers.pop("lane", None)
        elif asyncio.get_running_loop().time() - since > self._linger_seconds:
            self.drop(ReaderTooSlow(limit=len(self.outbox)))
        else:
            self._call_later("lane", self._linger_seconds / 4, self._watch_lane)

    def _lane_stalled(self) -> None:
        if "lane" not in self._timers:
            self._watch_lane()

    @property
    def _linger_seconds(self) -> float:
        return float(settings.SCALABLE_SOCKET_SEND_SECONDS)

    def _call_later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, callback)

    def _watch_expiry(self) -> None:
        """Turn the peer out when its token expires; the clock may be set, so it is looked at at times."""
        expires_at = self.subject.expires_at_seconds
        if expires_at is None:
            return
        left = expires_at - time.time()
        if left > 0:
            self._call_later("expiry", min(left, CLOCK_SECONDS), self._watch_expiry)
        else:
            self.turn_out(Unauthenticated(problem="the token has expired"))

    def _check_hello(self) -> None:
        if self.hello is None:
            self.fail(HelloMissing(limit_seconds=settings.SCALABLE_SOCKET_HELLO_SECONDS))

    def _abandon(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _cut(self) -> None:
        """End at once: who may stay no longer, or does not read, gets nothing of what waits in the kernel."""
        cut = self.scope.get("extensions", {}).get(CUT)
        if cut is not None:
            cut()
        if not self._is_torn_down:  # what it does at its end takes the time that it takes
            self._abandon()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    async def _tear_down(self) -> None:
        self._is_torn_down = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = [*self._tasks, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._lane is not None:
                await self._lane.close()
        finally:
            doorkeeper.part(self)
            await self.closed()


def _message(frame: str | bytes) -> Message:
    return {"type": "websocket.send", "bytes" if isinstance(frame, bytes) else "text": frame}


def _size_of(text: str | None, data: bytes | None) -> int:
    if text is None:
        return len(data or b"")
    return len(text) if text.isascii() else len(text.encode())


def error_frame(
    error: ScalableError,
    *,
    segment_id: int | None = None,
    bucket: int = 0,
    request_id: int | None = None,
) -> ErrorFrame:
    """The frame that tells a client of an error."""
    fields = cast("dict[str, object]", error.fields)
    return ErrorFrame(
        code=error.code,
        reason=error.reason,
        fields=fields,
        hint=error.hint,
        segment_id=segment_id,
        bucket=bucket,
        request_id=request_id,
    )
