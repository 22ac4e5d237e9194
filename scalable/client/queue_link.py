"""A queue socket: attaches its segments, grants permits, tells outcomes, keeps alive what waits here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from scalable.client.connection import (
    Backoff,
    Connection,
    Endpoint,
    error_of,
    first_to_end,
    keep_running,
    logger,
    open_connection,
)
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.client.queue_inbox import QueueInbox, QueueSegment
from scalable.client.time_limit import time_limit
from scalable.domain.errors import CursorSought, PositionInvalid, SegmentNotFound
from scalable.wire.frames import (
    Detached,
    ErrorFrame,
    QueueAcked,
    QueueAttach,
    QueueDelivery,
    QueueFlow,
    Renewed,
    SegmentDone,
    SegmentReopened,
)

GATHERING_SECONDS = 0.005
"""Outcomes that follow one another within this time go out together."""
TRY_AGAIN_SECONDS = 1.0
LEASE_SHARE = 3 / 4
"""How much of a claim's time an application has at least, once it is handed a message."""
LOOK_SHARE = 1 / 32
"""Of a claim's time: how often is noted that the event loop runs."""


class QueueLink:
    """Keeps one queue socket open for as long as it runs; `changed` is called after each frame.

    `socket` tells which of the consumer's it is, and thereby which segments of the inbox are its own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        membership: Membership,
        *,
        inbox: QueueInbox,
        prefetch: Prefetch,
        ack_timeout_seconds: float | None,
        socket: int,
        changed: Callable[[], None],
    ) -> None:
        self._endpoint, self._membership = endpoint, membership
        self._consumer, self._inbox, self._prefetch = membership.consumer, inbox, prefetch
        self._ack_timeout_seconds, self._socket = ack_timeout_seconds, socket
        self._changed = changed
        self._wake = asyncio.Event()
        self._backoff = Backoff()
        self._renew_at = 0.0
        self._looked_at = self._came_after = 0.0
        self._leaving = False
        self.was_welcome = False
        self.interruptions = 0

    def wake(self) -> None:
        """Look again for segments to attach, permits to give and outcomes to tell."""
        self._wake.set()

    def leave(self) -> None:
        """Tell what is left to tell, then end."""
        self._leaving = True
        self._wake.set()

    async def run(self) -> None:
        """Serve until `leave`; raises what no new connection mends."""
        await keep_running(self._session, backoff=self._backoff, what=f"consumer {self._consumer}")

    async def _session(self) -> None:
        member = self._membership
        connection = await open_connection(
            self._endpoint, "queue", member.topic, member.subscription, hello=member.hello()
        )
        try:
            self._adopt(connection)
            await first_to_end(self._send(connection), self._receive(connection), self._look())
        finally:
            self.interruptions += 1
            self._inbox.lose_connection(self._socket)
            self._changed()
            await connection.close()

    def _adopt(self, connection: Connection) -> None:
        welcome = connection.welcome
        self._membership.learn(welcome.incarnation, welcome.subscription_id)
        self.was_welcome = True
        self._backoff.reset()
        timeout_seconds = self._ack_timeout_seconds or welcome.ack_timeout_ms / 1_000
        self._inbox.lease_seconds = timeout_seconds / LEASE_SHARE
        self._renew_at = _now() + self._renewal_seconds
        self._looked_at = self._came_after = _now()
        self._changed()

    @property
    def _renewal_seconds(self) -> float:
        return self._inbox.lease_seconds * (1 - LEASE_SHARE)

    # What is sent

    async def _send(self, connection: Connection) -> None:
        while not self._leaving:
            self._wake.clear()
            renew = _now() >= self._renew_at
            if renew:
                self._renew_at = _now() + self._renewal_seconds
            for segment in self._inbox.share_of(self._socket):
                await self._attend(connection, segment, renew=renew)
            with suppress(TimeoutError):
                async with time_limit(max(0.0, self._renew_at - _now())):
                    await self._wake.wait()
                    await asyncio.sleep(GATHERING_SECONDS)
        self._inbox.give_back_waiting(self._socket)
        for segment in self._inbox.share_of(self._socket):
            await self._tell(connection, segment)

    async def _attend(self, connection: Connection, segment: QueueSegment, *, renew: bool) -> None:
        await self._tell(connection, segment)
        if renew:
            for frame in self._inbox.take_renewals(segment, _now()):
                await connection.send(frame)
        if not (segment.attached or segment.done or segment.paused):
            # Acknowledgements of before come first: else their messages could be claimed and sent once more.
            if not segment.has_unsettled:
                await self._attach(connection, segment)
        elif segment.attached and (permits := segment.take_permits(self._room(connection))):
            await connection.send(QueueFlow(segment_id=segment.segment_id, permits=permits))

    async def _tell(self, connection: Connection, segment: QueueSegment) -> None:
        for frame in self._inbox.take_outcomes(segment):
            await connection.send(frame)

    def _room(self, connection: Connection) -> int:
        return self._prefetch.within(connection.welcome.permits)

    async def _attach(self, connection: Connection, segment: QueueSegment) -> None:
        segment.attached = True
        permits = segment.first_permits(self._room(connection))
        lease_ms = round(self._inbox.lease_seconds * 1_000)
        attach = QueueAttach(segment_id=segment.segment_id, permits=permits, ack_timeout_ms=lease_ms)
        await connection.send(attach)

    # What is received

    async def _look(self) -> None:
        """Keep a time after which what is read now came: a process that was stopped reads what is old."""
        while True:
            await asyncio.sleep(self._inbox.lease_seconds * LOOK_SHARE)
            self._came_after, self._looked_at = self._looked_at, _now()

    async def _receive(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            if isinstance(frame, QueueDelivery):
                self._inbox.deliver(frame, self._came_after)
            elif isinstance(frame, QueueAcked):
                self._inbox.on_acked(frame.segment_id, frame.incarnation, frame.ranges)
            elif isinstance(frame, Renewed):
                self._inbox.on_renewed(frame.segment_id, frame.request_id, complete=frame.complete)
            elif isinstance(frame, ErrorFrame):
                self._on_error(frame)
            elif isinstance(frame, SegmentDone | SegmentReopened | Detached):
                self._on_state(frame)
            # Any frame may leave something to send: permits of what is not kept, acknowledgements to repeat.
            self.wake()
            self._changed()

    def _on_state(self, frame: SegmentDone | SegmentReopened | Detached) -> None:
        segment = self._inbox.segments.get(frame.segment_id)
        if segment is not None:
            segment.attached = False
            segment.done = isinstance(frame, SegmentDone)
            if isinstance(frame, Detached):  # after an error: what it had claimed is others' by now
                segment.drop_claims()

    def _on_error(self, frame: ErrorFrame) -> None:
        error = error_of(frame)
        segment = None if frame.segment_id is None else self._inbox.segments.get(frame.segment_id)
        if isinstance(error, SegmentNotFound):
            # The common end of a drained segment; the watch of the layout may have told it before.
            logger.debug("consumer %s: %s", self._consumer, error)
            if segment is not None:
                self._inbox.forget(segment.segment_id)
        elif segment is None:
            level = logging.WARNING if frame.segment_id is None else logging.DEBUG
            logger.log(level, "consumer %s: %s", self._consumer, error)
        elif isinstance(error, CursorSought):
            self._inbox.on_sought(segment.segment_id, error.incarnation, error.current)
        else:
            logger.warning("consumer %s, segment %s: %s", self._consumer, segment.segment_id, error)
            self.interruptions += 1  # its attachment ends, and gives back what it held
            if isinstance(error, PositionInvalid):
                segment.sent.clear()
            segment.paused = True
            asyncio.get_running_loop().call_later(TRY_AGAIN_SECONDS, self._try_again, segment)

    def _try_again(self, segment: QueueSegment) -> None:
        segment.paused = False
        segment.send_again()
        self.wake()


def _now() -> float:
    return asyncio.get_running_loop().time()
