"""`consume/{tenant}/{namespace}/{topic}/{subscription}`: messages of the segments that one consumer owns.

One reader a segment, or entry bucket where keys are shared, woken by appends (at once, then at most every
few milliseconds) and by a slow re-check.
"""

import asyncio
from collections import Counter

import msgspec
from django.conf import settings

from scalable.api.hub import Watch, hub, segment_key, subscription_key
from scalable.api.node import node
from scalable.api.sockets.acknowledging import Acknowledgements
from scalable.api.sockets.base import error_frame
from scalable.api.sockets.following import FollowingSocket
from scalable.api.sockets.outbox import HEADROOM_FRAMES, Outbox
from scalable.api.sockets.reader import ReaderContext, SegmentReader
from scalable.domain.access import Right
from scalable.domain.errors import (
    FrameInvalid,
    GenerationSuperseded,
    PermitsExceeded,
    ScalableError,
    SegmentNotOwned,
    TopicDeleted,
)
from scalable.domain.names import validate_part
from scalable.domain.subscriptions import BucketKey
from scalable.services import subscriptions
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    Ack,
    Attach,
    ConsumeClientFrame,
    Detach,
    Detached,
    ErrorFrame,
    Flow,
    Frame,
    Hello,
    decoder,
    encode,
)

COALESCING_SECONDS = 0.005
MAX_PAGES = 4


class ConsumeSocket(FollowingSocket):
    """One consumer's way out of the segments that it owns."""

    right = Right.CONSUME
    frames = decoder(ConsumeClientFrame)
    subscription: SubscriptionView

    def __init__(self) -> None:
        super().__init__()
        self._readers: dict[BucketKey, SegmentReader] = {}
        self._read_of: Counter[int] = Counter()
        self._acks: Acknowledgements | None = None
        self._watch: Watch | None = None
        self._context: ReaderContext | None = None

    def make_outbox(self) -> Outbox:
        """Deliveries wait for room; answers go in at once."""
        return Outbox(max_frames=64, headroom=HEADROOM_FRAMES)

    async def opened(self, hello: Hello) -> None:
        """Check the subscription and begin to follow it."""
        consumer = validate_part(hello.consumer or "", "consumer")
        self.subscription = await node.call(
            subscriptions.find_assigned,
            name=self.topic,
            subscription=self.scope["url_route"]["kwargs"]["subscription"],
            incarnation=hello.incarnation,
            subscription_id=hello.joined_subscription_id,
        )
        self._acks = Acknowledgements(self.subscription, consumer, push=self.push, refuse=self._refuse_ack)
        self._context = ReaderContext(
            topic=self.topic,
            subscription=self.subscription,
            consumer=consumer,
            pages=asyncio.Semaphore(MAX_PAGES),
            deliver=self.push_when_room,
            owned=self._acks.know_owned,
        )
        self._watch = hub.watch(subscription_key(self.subscription.subscription_id))
        self.follow(self.subscription.incarnation)
        self.spawn(self.unless_gone(self._pass_wakes_on(self._watch)))
        self.spawn(self._acks.write())
        self.welcome(
            permits=settings.SCALABLE_CONSUME_MAX_PERMITS,
            incarnation=self.subscription.incarnation,
            subscription_id=self.subscription.subscription_id,
        )

    async def frame_received(self, frame: Frame) -> None:
        """Change what is delivered, or note an acknowledgement; raises FrameInvalid, PermitsExceeded."""
        match frame:
            case Attach():
                self._attach(frame)
            case Flow():
                self._flow(frame)
            case Detach():
                self._detach(BucketKey(frame.segment_id, frame.bucket))
            case Ack() if self._acks is not None:
                await self._acks.note(frame)

    # Readers.

    def _attach(self, frame: Attach) -> None:
        key = BucketKey(frame.segment_id, frame.bucket)
        former = self._readers.get(key)
        if former is not None and former.task is not None:
            former.task.cancel()  # not answered: the peer would take the answer for the end of the new one
        if self._context is None or self._watch is None:
            raise FrameInvalid(problem="the socket is not open")
        reader = SegmentReader(self._context, key=key, generation=frame.generation, position=frame.position)
        self._grant(reader, frame.permits)
        self._readers[key] = reader
        self._read_of[key.segment_id] += former is None
        self._watch.add(segment_key(self.subscription.incarnation, frame.segment_id))
        reader.task = self.spawn(self._read(reader))

    def _flow(self, frame: Flow) -> None:
        reader = self._readers.get(BucketKey(frame.segment_id, frame.bucket))
        if reader is not None:  # else its detaching crossed this frame
            self._grant(reader, frame.permits)

    def _grant(self, reader: SegmentReader, permits: int) -> None:
        if permits < 0:
            raise FrameInvalid(problem="permits are not negative")
        if reader.permits + permits > settings.SCALABLE_CONSUME_MAX_PERMITS:
            raise PermitsExceeded(limit=settings.SCALABLE_CONSUME_MAX_PERMITS)
        reader.grant(permits)

    def _detach(self, key: BucketKey) -> None:
        reader = self._readers.pop(key, None)
        if reader is not None:
            self._stop(reader)
        self.push(_detached(key, 0 if reader is None else reader.generation))

    def _stop(self, reader: SegmentReader) -> None:
        if reader.task is not None:
            reader.task.cancel()
        self._unwatch(reader.key.segment_id)

    def _unwatch(self, segment_id: int) -> None:
        """Hear no more of a segment of which nothing is read any more."""
        self._read_of[segment_id] -= 1
        if self._watch is not None and not self._read_of[segment_id]:
            del self._read_of[segment_id]
            self._watch.discard(segment_key(self.subscription.incarnation, segment_id))

    async def _read(self, reader: SegmentReader) -> None:
        try:
            await reader.run()
        except TopicDeleted:
            self.end_with_topic()
        except ScalableError as error:
            self._lose(reader, error)

    def _lose(self, reader: SegmentReader, error: ScalableError) -> None:
        self._refuse(error, reader.key, reader.generation)
        if self._readers.get(reader.key) is reader:
            self._detach(reader.key)

    async def _pass_wakes_on(self, watch: Watch) -> None:
        incarnation = self.subscription.incarnation
        own_key = subscription_key(self.subscription.subscription_id)
        with watch:
            while True:
                fired = await watch.wait(settings.SCALABLE_WATCH_RESYNC_SECONDS)
                for key, reader in list(self._readers.items()):
                    if not fired or segment_key(incarnation, key.segment_id) in fired:
                        reader.wake()
                if not fired or own_key in fired:
                    await self._drop_lost_segments()
                await asyncio.sleep(COALESCING_SECONDS)

    async def _drop_lost_segments(self) -> None:
        """Stop delivering what another consumer owns by now; raises SubscriptionNotFound."""
        readers = dict(self._readers)
        if self._context is None:
            return
        owned = await node.crowds.owned(self.subscription)
        generations = {key: reader.generation for key, reader in readers.items()}
        lost = subscriptions.lost_segments(owned, self._context.consumer, generations)
        gone = [key for key in lost if self._readers.get(key) is readers[key]]
        for key in gone:
            self._stop(self._readers.pop(key))
        for key in gone:  # thousands at once, of which the peer can read only one after another
            generation = generations[key]
            await self.push_when_room(encode(_refusal(lost[key], key, generation)))
            await self.push_when_room(encode(_detached(key, generation)))

    def _refuse_ack(self, ack: Ack, error: ScalableError) -> None:
        reader = self._readers.get(BucketKey(ack.segment_id, ack.bucket))
        lost = isinstance(error, GenerationSuperseded | SegmentNotOwned)
        if lost and reader is not None and reader.generation == ack.generation:
            self._lose(reader, error)
        else:
            self._refuse(error, BucketKey(ack.segment_id, ack.bucket), ack.generation)

    def _refuse(self, error: ScalableError, key: BucketKey, generation: int) -> None:
        self.push(_refusal(error, key, generation))


def _refusal(error: ScalableError, key: BucketKey, generation: int) -> ErrorFrame:
    frame = error_frame(error, segment_id=key.segment_id, bucket=key.bucket)
    return msgspec.structs.replace(frame, generation=generation)


def _detached(key: BucketKey, generation: int) -> Detached:
    return Detached(segment_id=key.segment_id, bucket=key.bucket, generation=generation)
