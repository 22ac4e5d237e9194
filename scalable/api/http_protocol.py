"""HTTP/1.1 as uvicorn speaks it, for whoever sends a whole head and takes answers in time.

A node names it by `--http`. The server itself waits for ever for what a connection has begun, and keeps all
of it.
"""

import asyncio
from typing import cast

from django.conf import settings
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scalable.api.paced_transport import PacedTransport
from scalable.api.socket_protocol import BoundedSocket

LOOSE_BYTES_MAX = 65_536
"""What may come without a head, or a part of a body, being whole by it: heads and trailers."""

LATE_PARTS_MAX = 4_096
"""So many parts of a body may come behind its answer; whoever was refused may have had them on the way."""


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection that owes the head of a request for too long, or sends one without an end.

    Between two requests it may be idle for the server's own time, too. One that takes nothing of an answer
    for too long is cut.
    """

    _deadline: asyncio.TimerHandle | None = None
    _taken_until: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None
    _loose_bytes = 0
    _late_parts = 0
    _paced: PacedTransport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._paced = PacedTransport(transport, self.loop, self._take)
        super().connection_made(cast(asyncio.Transport, self._paced))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._paced.forget()
        self._stop_waiting()
        self._stop_pressing()
        self.pipeline.clear()
        if self._answering is not None:  # uvicorn tells the newest request alone, behind which others wait
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_pressing()
        limit_seconds = settings.SCALABLE_REQUEST_ANSWER_SECONDS
        self._taken_until = self.loop.call_later(limit_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_pressing()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._paced.receive(data)

    def _take(self, data: bytes) -> None:
        self._loose_bytes += len(data)
        super().data_received(data)
        if self._loose_bytes > LOOSE_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_headers_complete(self) -> None:
        self._loose_bytes = self._late_parts = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._late_parts += 1
            if self._late_parts > LATE_PARTS_MAX:
                self.transport.abort()

    def on_message_complete(self) -> None:
        self._loose_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # no other request waits behind this one
            self._await_head(idle_seconds=self.timeout_keep_alive)

    def _should_upgrade(self) -> bool:
        """Take an upgrade behind a request that is not answered for a plain one.

        The answer would come among the frames of the socket (RFC 9110, section 7.8). So would the body of one
        that has a body, for which no socket waits. Nor behind an answer that nobody takes: the event loop
        tells of a full connection once, and would not tell the socket.
        """
        waits = self._answering is not None and not self._answering.response_complete
        is_free = not waits and not self.flow.write_paused
        return super()._should_upgrade() and is_free and not self._has_body()

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
            for name, value in self.headers
        )

    def handle_websocket_upgrade(self) -> None:
        self._stop_pressing()
        self._paced.forget()  # frames come when the handshake is answered
        self.transport = self._paced.raw
        self.ws_protocol_class = BoundedSocket
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _await_head(self, *, idle_seconds: float = 0) -> None:
        self._stop_waiting()
        limit_seconds = idle_seconds + settings.SCALABLE_REQUEST_HEAD_SECONDS
        self._deadline = self.loop.call_later(limit_seconds, self._give_up)

    def _give_up(self) -> None:
        """Close; what is left of an answer would be kept for as long as nobody takes it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _stop_pressing(self) -> None:
        if self._taken_until is not None:
            self._taken_until.cancel()
            self._taken_until = None

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
