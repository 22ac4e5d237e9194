"""The consume socket of one node: attaches the segments that it serves, grants permits, acknowledges."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

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
from scalable.client.inbox import Inbox, OwnedSegment
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned
from scalable.domain.subscriptions import BucketKey
from scalable.wire.frames import (
    Acked,
    Attach,
    Delivery,
    Detach,
    Detached,
    EndOfSegment,
    ErrorFrame,
    Flow,
    Skipped,
)

ACK_DELAY_SECONDS = 0.005
"""Acknowledgements that follow one another within this time go out as one frame per segment."""
ATTACH_AGAIN_SECONDS = 1.0


class ConsumeLink:
    """Keeps one consume socket open for as long as it runs; `changed` is called after each frame."""

    def __init__(
        self,
        endpoint: Endpoint,
        membership: Membership,
        *,
        inbox: Inbox,
        prefetch: Prefetch,
        changed: Callable[[], None],
    ) -> None:
        self._endpoint, self._membership = endpoint, membership
        self._url = endpoint.url
        self._consumer, self._inbox, self._prefetch = membership.consumer, inbox, prefetch
        self._changed = changed
        self._wake = asyncio.Event()
        self._backoff = Backoff()
        self._attachments: dict[BucketKey, OwnedSegment] = {}
        """What the socket was told to deliver and did not say yet that it ended."""
        self._leaving: set[BucketKey] = set()
        """What of these it was told to end."""

    @property
    def url(self) -> str:
        """Give the address of the node that the controller named; another one may stand in for it."""
        return self._url

    def wake(self) -> None:
        """Look again for segments to attach, permits to give and acknowledgements to send."""
        self._wake.set()

    async def run(self) -> None:
        """Serve until cancelled; raises what no new connection mends."""
        await keep_running(self._session, backoff=self._backoff, what=f"consumer {self._consumer}")

    def _mine(self) -> list[OwnedSegment]:
        return [held for held in self._inbox.owned.values() if self._is_mine(held)]

    def _is_mine(self, held: OwnedSegment) -> bool:
        return held.assigned.url.rstrip("/") == self._url

    def _delivers(self, held: OwnedSegment) -> bool:
        """Tell whether what comes of it is to be taken.

        Of a segment that was named at another node the former attachment goes on until it is ended: two that
        deliver the same at once would leap over what only one of them had dropped.
        """
        return self._is_attached(held) and held.attached and self._is_mine(held)

    async def _session(self) -> None:
        member = self._membership
        connection = await open_connection(
            self._endpoint, "consume", member.topic, member.subscription, hello=member.hello()
        )
        self._backoff.reset()
        try:
            await first_to_end(self._send(connection), self._receive(connection))
        finally:
            self._attachments.clear()
            self._leaving.clear()
            for held in self._mine():
                held.lose_connection()
                self._inbox.note(held)
            self._changed()
            await connection.close()

    async def _send(self, connection: Connection) -> None:
        while True:
            self._wake.clear()
            for held in list(self._attachments.values()):
                if self._is_left_behind(held):
                    self._leaving.add(held.key)
                    await connection.send(Detach(segment_id=held.segment_id, bucket=held.key.bucket))
            for held in self._mine():
                await self._attend(connection, held)
            await self._wake.wait()
            await asyncio.sleep(ACK_DELAY_SECONDS)

    def _is_left_behind(self, held: OwnedSegment) -> bool:
        """Tell whether it moved to another node, or came back before its former attachment had ended."""
        return self._is_attached(held) and self._is_owned(held) and not self._delivers(held)

    def _is_attached(self, held: OwnedSegment) -> bool:
        return self._attachments.get(held.key) is held and held.key not in self._leaving

    def _is_owned(self, held: OwnedSegment) -> bool:
        return self._inbox.owned.get(held.key) is held

    def _serves(self, held: OwnedSegment) -> bool:
        """Tell whether it is still to be read here: while a frame waits for room, assignments come."""
        return self._is_owned(held) and self._is_mine(held) and not held.refused

    async def _attend(self, connection: Connection, held: OwnedSegment) -> None:
        while self._serves(held) and (ack := held.next_ack()) is not None:
            await connection.send(ack)
        if not self._serves(held):
            return
        segment_id, bucket = held.key
        if held.has_gap and held.attached and not held.detaching:
            held.detaching = True
            await connection.send(Detach(segment_id=segment_id, bucket=bucket))
        elif not (held.releasing or held.attached or self._attachments.get(held.key) is held):
            await self._attach(connection, held)
        elif held.attached and not held.has_gap and (permits := held.take_permits(self._room(connection))):
            await connection.send(Flow(segment_id=segment_id, permits=permits, bucket=bucket))

    def _room(self, connection: Connection) -> int:
        return self._prefetch.within(connection.welcome.permits)

    async def _attach(self, connection: Connection, held: OwnedSegment) -> None:
        held.attached = True
        self._attachments[held.key] = held
        self._leaving.discard(held.key)  # what ends is of a former ownership, which its generation tells
        permits = held.first_permits(self._room(connection))
        segment_id, bucket = held.key
        await connection.send(
            Attach(
                segment_id=segment_id,
                generation=held.generation,
                permits=permits,
                bucket=bucket,
                position=held.begin_at,
            )
        )

    async def _receive(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            if isinstance(frame, Delivery):
                self._on_delivery(frame)
            elif isinstance(frame, ErrorFrame):
                self._on_error(frame)
            elif isinstance(frame, Acked | Detached | Skipped | EndOfSegment):
                self._on_progress(frame)
            # Any frame may leave something to send: a delivery of which nothing is kept gives permits back
            # and may be done with, and no application will take a message of it.
            self.wake()
            self._changed()

    def _on_delivery(self, delivery: Delivery) -> None:
        held = self._inbox.owned.get(BucketKey(delivery.segment_id, delivery.bucket))
        if held is not None and self._delivers(held):
            self._inbox.deliver(delivery)

    def _on_progress(self, frame: Acked | Detached | Skipped | EndOfSegment) -> None:
        key = BucketKey(frame.segment_id, frame.bucket)
        held = self._inbox.owned.get(key)
        delivers = held is not None and self._delivers(held)
        if isinstance(frame, Detached):
            self._end_attachment(key, frame.generation)
        if held is None or frame.generation != held.generation:
            return  # it speaks of a former ownership: the controller's socket was faster
        match frame:
            case Acked():
                held.on_acked(frame)
            case Detached() if delivers:
                held.end_attachment()
            case Skipped() if delivers:
                held.skip_to(frame.position)
            case EndOfSegment() if delivers:
                held.end_at(frame.end_offset)
        self._inbox.note(held)

    def _end_attachment(self, key: BucketKey, generation: int) -> None:
        attached = self._attachments.get(key)
        if attached is not None and attached.generation == generation:
            del self._attachments[key]
            self._leaving.discard(key)

    def _on_error(self, frame: ErrorFrame) -> None:
        error = error_of(frame)
        key = None if frame.segment_id is None else BucketKey(frame.segment_id, frame.bucket)
        held = None if key is None else self._inbox.owned.get(key)
        if held is None or frame.generation not in (None, held.generation):
            # Of a segment it concerns a former ownership, which every hand-over leaves behind.
            level = logging.INFO if key is None else logging.DEBUG
            logger.log(level, "consumer %s: %s", self._consumer, error)
        elif isinstance(error, GenerationSuperseded) and error.generation >= held.generation:
            # The assignment that says so is on its way; nothing that waits may be handed out any more.
            self._inbox.forget(held.key)
        elif self._is_mine(held):  # else it is of the node that served the segment before
            level = logging.INFO if isinstance(error, SegmentNotOwned) else logging.WARNING
            logger.log(level, "consumer %s, segment %s: %s", self._consumer, held.segment_id, error)
            held.suspend()
            asyncio.get_running_loop().call_later(ATTACH_AGAIN_SECONDS, self._try_again, held)

    def _try_again(self, held: OwnedSegment) -> None:
        held.refused = False
        self.wake()
