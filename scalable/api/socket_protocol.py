"""WebSocket (RFC 6455) as uvicorn speaks it, with bounds for peers that send odd things or read nothing.

`BoundedHttp` takes it for each upgrade. The server itself parses frames before the handshake is answered,
answers each ping, be it read or not, waits for ever for the end of a message, and leaves a traceback for each
frame that it does not expect.
"""

import asyncio
from typing import Any, cast

from django.conf import settings
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from scalable.api.limits import body_limit_seconds
from scalable.api.paced_transport import PacedTransport

FRAGMENTS_MAX = 4_096
"""Of one message; each costs memory, also an empty one."""

CONTROLS_PER_SECOND_MAX = 256
"""Pings and pongs."""

CUT = "scalable.cut"
"""The extension of the ASGI scope by which a socket ends its connection at once."""


class BoundedSocket(WebSocketsSansIOProtocol):
    """Serves one socket."""

    _paced: PacedTransport
    _late: asyncio.TimerHandle | None = None
    _pong = b""
    _message_bytes = 0
    _message_since = 0.0
    _controls = 0
    _controls_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw, limit_seconds = cast(asyncio.Transport, transport), settings.SCALABLE_SOCKET_SEND_SECONDS
        self._paced = PacedTransport(raw, self.loop, self._take, cut_seconds=limit_seconds)
        super().connection_made(cast(asyncio.Transport, self._paced))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_clock()
        self._paced.forget()
        # The parser and what it parses refer to each other: what came of a message would stay until the
        # next full collection.
        self.frames.clear()
        self.conn.parser.close()
        self.conn.reader.buffer.clear()

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._paced.receive(data)
        else:
            self._shake_hands(data)

    def start_keepalive(self) -> None:
        """The handshake is answered, and frames may come."""
        super().start_keepalive()
        self._paced.resume_reading()

    async def send(self, message: ASGISendEvent) -> None:
        """Send; a refusal ends the handshake, which the server else learns of from its own close alone."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pong and not self.close_sent and not self.transport.is_closing():
            self.transport.write(self._pong)
        self._pong = b""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:  # the peer is leaving; an error here would keep the node from ending in order
            self.transport.close()

    # What the parser found.

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS_MAX:
            self._fail(CloseCode.POLICY_VIOLATION, "too many fragments")
        elif not self.close_sent:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer; of the pings of a peer that does not read the last one (RFC 6455, section 5.5.3)."""
        if self._is_one_too_many():
            return
        answers = self.conn.data_to_send()  # of all pings that were read together, and of a close behind them
        if self.writable.is_set():
            self.transport.write(b"".join(answers))
        elif self.conn.close_sent is None and answers:
            self._pong = answers[-1]
        elif answers:
            self.transport.write(answers[-1] or answers[-2])  # the close

    def handle_pong(self, event: Frame) -> None:
        if not self._is_one_too_many():
            super().handle_pong(event)

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # the peer had closed before it broke the protocol
            self.transport.close()
        else:
            super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        self._begin_message()
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames.clear()
            self._fail(CloseCode.INVALID_DATA, "invalid UTF-8")
        else:
            super().send_receive_event_to_app()

    # Bounds.

    def _shake_hands(self, head: bytes) -> None:
        super().data_received(head)
        if self.conn.handshake_exc is not None:  # the answer lies ready, and the server forgets it
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
        elif not self.close_sent:
            self._paced.hold()
            extensions = cast("dict[str, Any]", self.scope["extensions"])
            extensions[CUT] = self._paced.cut

    def _take(self, data: bytes) -> None:
        super().data_received(data)
        if self.frames or self.conn.reader.buffer:
            self._message_bytes += len(data)
            if self._late is None:
                self._begin_message()
                self._check_clock()
        elif self._late is not None:
            self._stop_clock()

    def _begin_message(self) -> None:
        """What came before does not count for the message that comes next."""
        self._message_bytes, self._message_since = 0, self.loop.time()

    def _check_clock(self) -> None:
        """End a message that takes too long; the time in which nothing is read does not count."""
        begun = max(self._message_since, self._paced.resumed_at)
        limit_seconds = body_limit_seconds(self._message_bytes)
        left_seconds = limit_seconds if self._paced.is_paused else begun + limit_seconds - self.loop.time()
        if left_seconds > 0:
            self._late = self.loop.call_later(left_seconds, self._check_clock)
        else:
            self._fail(CloseCode.POLICY_VIOLATION, "the message takes too long")

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _is_one_too_many(self) -> bool:
        if not self.frames:
            self._begin_message()
        now = self.loop.time()
        if now - self._controls_since >= 1:
            self._controls, self._controls_since = 0, now
        self._controls += 1
        if self._controls > CONTROLS_PER_SECOND_MAX:
            self._fail(CloseCode.POLICY_VIOLATION, "too many pings and pongs")
        return self._controls > CONTROLS_PER_SECOND_MAX

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()


def _is_text(pieces: list[bytes]) -> bool:
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
