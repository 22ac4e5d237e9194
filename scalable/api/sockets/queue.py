"""`queue/{tenant}/{namespace}/{topic}/{subscription}`: every segment's messages, shared among the consumers.

Any node serves any segment. A delivered message is claimed in the database until it is acknowledged, given
back, or the claim's time is over; the end of the socket gives everything back at once.
"""

import asyncio
import uuid
from collections.abc import Awaitable
from functools import partial

from django.conf import settings

from scalable.api.errors import internal_error
from scalable.api.hub import hub, subscription_key
from scalable.api.node import node
from scalable.api.sockets.following import FollowingSocket
from scalable.api.sockets.lane import Message
from scalable.api.sockets.outbox import HEADROOM_FRAMES, Outbox
from scalable.api.sockets.pages import Pages
from scalable.api.sockets.queue_gate import gates
from scalable.api.sockets.queue_outcomes import Outcomes, Range, united
from scalable.api.sockets.queue_reader import QueueContext, QueueReader
from scalable.api.sockets.some_at_once import some_at_once
from scalable.domain.access import Right
from scalable.domain.errors import (
    FrameInvalid,
    PermitsExceeded,
    ScalableError,
    SubscriptionNotFound,
    TopicDeleted,
)
from scalable.domain.names import validate_part
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import queues, subscriptions
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    MAX_ATTACHED,
    MAX_RANGES,
    Detached,
    Frame,
    Hello,
    NegativeAck,
    QueueAck,
    QueueAcked,
    QueueAttach,
    QueueClientFrame,
    QueueDetach,
    QueueFlow,
    Renew,
    Renewed,
    SegmentDone,
    SegmentReopened,
    decoder,
)

GATHERING_SECONDS = 0.003
RECHECK_SECONDS = 30.0
GOING_AWAY, SERVICE_RESTART = 1001, 1012
MAX_PAGES = 4
MAX_WAITING_RANGES = 100_000
"""When so many wait to be written, the next frame waits, too."""


class QueueSocket(FollowingSocket):
    """One consumer of a QUEUE subscription."""

    right = Right.CONSUME
    frames = decoder(QueueClientFrame)
    subscription: SubscriptionView

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[int, QueueReader] = {}
        self._leaving: set[QueueReader] = set()
        self._done: set[int] = set()
        self._outcomes: dict[tuple[int, QueueReader | None], Outcomes] = {}
        self._outcomes_waiting = asyncio.Event()
        self._writing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None
        self._waiting_ranges = 0
        self._session = uuid.uuid4().hex
        self._attachments = 0
        self._context: QueueContext | None = None
        self._node_ends = False

    def make_outbox(self) -> Outbox:
        """Deliveries wait for room; answers go in at once."""
        return Outbox(max_frames=64, headroom=HEADROOM_FRAMES)

    async def opened(self, hello: Hello) -> None:
        """Check the subscription and begin to follow it."""
        consumer = validate_part(hello.consumer or "", "consumer")
        self.subscription = await node.call(
            subscriptions.find_subscription,
            name=self.topic,
            subscription=self.scope["url_route"]["kwargs"]["subscription"],
            kind=SubscriptionType.QUEUE,
            incarnation=hello.incarnation,
            subscription_id=hello.joined_subscription_id,
        )
        self._context = QueueContext(
            topic=self.topic,
            subscription=self.subscription,
            consumer=consumer,
            pages=Pages(MAX_PAGES),
            deliver=self.push_when_room,
        )
        self.follow(self.subscription.incarnation)
        self.spawn(self._watch_subscription())
        self._writer = self.keep(self._write_outcomes())
        self.welcome(
            permits=settings.SCALABLE_CONSUME_MAX_PERMITS,
            ack_timeout_ms=_default_timeout_ms(),
            incarnation=self.subscription.incarnation,
            subscription_id=self.subscription.subscription_id,
        )

    async def frame_received(self, frame: Frame) -> None:
        """Change what is delivered, or note an outcome; raises FrameInvalid, PermitsExceeded."""
        if self._waiting_ranges >= MAX_WAITING_RANGES:
            await self._write_waiting()
        match frame:
            case QueueAttach():
                self._attach(frame)
            case QueueFlow():
                reader = self._readers.get(frame.segment_id)
                if reader is not None:  # else its detaching crossed this frame
                    self._grant(reader, frame.permits)
            case QueueDetach():
                self._detach(frame.segment_id)
            case QueueAck():
                self._outcomes_of(frame.segment_id, frame.ranges).acknowledge(frame)
            case NegativeAck():
                self._outcomes_of(frame.segment_id, frame.ranges).give_back(frame)
            case Renew():
                self._outcomes_of(frame.segment_id, frame.ranges).renew(frame)

    async def websocket_disconnect(self, message: Message) -> None:
        """Note whether the node ends, which no message is to blame for."""
        self._node_ends = message.get("code") in {GOING_AWAY, SERVICE_RESTART}
        await super().websocket_disconnect(message)

    async def closed(self) -> None:
        """Give back at once what this consumer still holds; if that fails, the claims run out."""
        await self._write_waiting()  # also what is being written: else it would be given back otherwise
        if self._writer is not None:
            self._writer.cancel()
        readers = [*self._readers.values(), *self._leaving]
        counted = not self._node_ends
        await some_at_once(partial(reader.give_back, count_delivery=counted) for reader in readers)

    # Readers.

    def _attach(self, frame: QueueAttach) -> None:
        if self._context is None:
            raise FrameInvalid(problem="the socket is not open")
        self._remove_reader(frame.segment_id)
        if len(self._readers) >= MAX_ATTACHED:
            raise PermitsExceeded(limit=MAX_ATTACHED)
        self._attachments += 1
        timeout_ms = frame.ack_timeout_ms or _default_timeout_ms()
        reader = QueueReader(
            self._context,
            segment_id=frame.segment_id,
            session=f"{self._session}-{self._attachments}",
            lease_seconds=timeout_ms / 1_000,
        )
        self._grant(reader, frame.permits)
        self._done.discard(frame.segment_id)
        self._readers[frame.segment_id] = reader
        reader.task = self.spawn(self._read(reader))

    def _grant(self, reader: QueueReader, permits: int) -> None:
        if reader.permits + permits > settings.SCALABLE_CONSUME_MAX_PERMITS:
            raise PermitsExceeded(limit=settings.SCALABLE_CONSUME_MAX_PERMITS)
        reader.grant(permits)

    def _detach(self, segment_id: int) -> None:
        if not self._remove_reader(segment_id, answer=True):
            self.push(Detached(segment_id=segment_id))

    def _remove_reader(self, segment_id: int, *, answer: bool = False) -> bool:
        reader = self._readers.pop(segment_id, None)
        if reader is None:
            return False
        self._leaving.add(reader)
        self.spawn(self._part_with(reader, answer=answer))
        return True

    async def _part_with(self, reader: QueueReader, *, answer: bool) -> None:
        if reader.task is not None:
            reader.task.cancel()
            await asyncio.wait([reader.task])
        # What was said of its messages comes before the rest is given back, and is written to its end.
        await asyncio.shield(self.keep(self._write_waiting()))
        await reader.give_back()
        self._leaving.discard(reader)
        if answer:
            self.push(Detached(segment_id=reader.segment_id))

    async def _read(self, reader: QueueReader) -> None:
        try:
            if await self._unless_gone(reader.run()):
                await self._finish(reader)
        except ScalableError as error:
            self.refuse(error, segment_id=reader.segment_id)
            if self._readers.get(reader.segment_id) is reader:
                self._detach(reader.segment_id)

    async def _unless_gone(self, work: Awaitable[None]) -> bool:
        """Do work and give True; with the topic or the subscription gone, end the socket."""
        try:
            await work
        except TopicDeleted:
            self.end_with_topic()
        except SubscriptionNotFound as error:
            self.fail(error)
        else:
            return True
        return False

    async def _finish(self, reader: QueueReader) -> None:
        """The segment needs no consumer any more, here or on any other socket."""
        if self._readers.get(reader.segment_id) is reader:
            del self._readers[reader.segment_id]
            self._done.add(reader.segment_id)
            self.push(SegmentDone(segment_id=reader.segment_id))
            await node.call(
                queues.announce_drained, subscription=self.subscription, segment_id=reader.segment_id
            )

    async def _watch_subscription(self) -> None:
        await self._unless_gone(self._tell_reopened())

    async def _tell_reopened(self) -> None:
        """Tell of drained segments that a seek opened again; raises SubscriptionNotFound, TopicDeleted."""
        with hub.watch(subscription_key(self.subscription.subscription_id)) as watch:
            while True:
                reopened = await node.call(
                    queues.reopened,
                    topic=self.topic,
                    subscription=self.subscription,
                    segment_ids=sorted(self._done),
                )
                for segment_id in reopened:
                    self._done.discard(segment_id)
                    self.push(SegmentReopened(segment_id=segment_id))
                await watch.wait(RECHECK_SECONDS)

    # Outcomes.

    def _outcomes_of(self, segment_id: int, ranges: list[Range]) -> Outcomes:
        if any(first >= end for first, end in ranges):
            raise FrameInvalid(problem="a range ends before it begins")
        self._waiting_ranges += len(ranges)
        self._outcomes_waiting.set()
        return self._outcomes.setdefault((segment_id, self._readers.get(segment_id)), Outcomes())

    async def _write_outcomes(self) -> None:
        while True:
            await self._outcomes_waiting.wait()
            await asyncio.sleep(GATHERING_SECONDS)
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        async with self._writing:
            self._outcomes_waiting.clear()
            outcomes, self._outcomes = self._outcomes, {}
            self._waiting_ranges = 0
            writes = (partial(self._write, *key, each) for key, each in outcomes.items())
            for failure in await some_at_once(writes):
                raise failure

    async def _write(self, segment_id: int, reader: QueueReader | None, outcomes: Outcomes) -> None:
        for incarnation, ranges in outcomes.acknowledged.items():
            await self._try(segment_id, self._acknowledge(segment_id, incarnation, united(ranges)))
        if reader is None:  # what was claimed is given back by now, or everything is acknowledged
            self._answer_renewals(segment_id, outcomes.renewals, complete=False)
            return
        for (delay_ms, counted), ranges in outcomes.returned.items():
            await self._try(segment_id, self._give_back(reader, ranges, delay_ms, counted))
        await self._try(segment_id, self._renew(reader, united(outcomes.renewed), outcomes.renewals))

    async def _try(self, segment_id: int, writing: Awaitable[None]) -> None:
        try:
            await writing
        except ScalableError as error:
            self.refuse(error, segment_id=segment_id)
        except Exception as error:
            self.refuse(internal_error(error), segment_id=segment_id)

    async def _acknowledge(self, segment_id: int, incarnation: int, ranges: list[Range]) -> None:
        await node.call(
            queues.acknowledge,
            subscription=self.subscription,
            segment_id=segment_id,
            incarnation=incarnation,
            ranges=ranges,
        )
        gates.acknowledged(self.subscription, segment_id)
        for start in range(0, len(ranges), MAX_RANGES):
            page = ranges[start : start + MAX_RANGES]
            self.push(QueueAcked(segment_id=segment_id, incarnation=incarnation, ranges=page))

    async def _give_back(
        self, reader: QueueReader, ranges: list[Range], delay_ms: int, count_delivery: bool
    ) -> None:
        await node.call(
            queues.give_back,
            subscription=self.subscription,
            segment_id=reader.segment_id,
            session=reader.session,
            ranges=united(ranges),
            delay_seconds=delay_ms / 1_000,
            count_delivery=count_delivery,
        )

    async def _renew(self, reader: QueueReader, ranges: list[Range], renewals: list[int]) -> None:
        if ranges:
            held = await node.call(
                queues.renew,
                subscription=self.subscription,
                segment_id=reader.segment_id,
                session=reader.session,
                ranges=ranges,
                lease_seconds=reader.lease_seconds,
            )
            complete = held == sum(end - first for first, end in ranges)
            self._answer_renewals(reader.segment_id, renewals, complete=complete)

    def _answer_renewals(self, segment_id: int, renewals: list[int], *, complete: bool) -> None:
        for request_id in renewals:
            self.push(Renewed(segment_id=segment_id, request_id=request_id, complete=complete))


def _default_timeout_ms() -> int:
    return round(settings.SCALABLE_QUEUE_ACK_TIMEOUT_SECONDS * 1_000)
