"""`produce/{tenant}/{namespace}/{topic}`: batches in, receipts out, never more in flight than the permits.

Batches of one segment are stored in their order, all that wait by one call (one commit for the group);
segments go side by side. An answer leaves after the commit.
"""

import asyncio
import uuid

from django.conf import settings

from scalable.api.errors import internal_error
from scalable.api.node import node
from scalable.api.sampler import sampler
from scalable.api.sockets.following import FollowingSocket
from scalable.api.sockets.outbox import HEADROOM_FRAMES, Outbox
from scalable.api.sockets.stream import Pending, SegmentStream
from scalable.domain.access import Right
from scalable.domain.errors import (
    BatchInvalid,
    BatchPartlyDuplicate,
    BatchTooLarge,
    PermitsExceeded,
    ScalableError,
    StreamBroken,
    TopicDeleted,
)
from scalable.domain.names import validate_part
from scalable.segments.port import AppendResult
from scalable.services import messages
from scalable.wire.batch_header import BatchHeader, decode_header
from scalable.wire.frames import (
    Hello,
    Publish,
    Receipt,
    Refused,
    decode_publish,
)

MAX_QUEUED_BYTES = 32 * 1024 * 1024
MAX_STREAMS = 4_096
BATCH_OVERHEAD_BYTES = 1024 * 1024
"""What a batch may hold beside one message of the largest size: keys, properties, small neighbours."""


class ProduceSocket(FollowingSocket):
    """One producer's way in."""

    right = Right.PRODUCE
    producer: str = ""

    def __init__(self) -> None:
        super().__init__()
        self._permits = int(settings.SCALABLE_PRODUCE_PERMITS)
        self._in_flight = 0
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._streams: dict[int, SegmentStream] = {}

    def make_outbox(self) -> Outbox:
        """Answers only; a peer that keeps to its permits never has more of them waiting."""
        return Outbox(max_frames=settings.SCALABLE_PRODUCE_PERMITS, headroom=HEADROOM_FRAMES)

    async def opened(self, hello: Hello) -> None:
        """Tell the producer its name, last sequence and permits; raises TopicNotFound, TopicDeleted."""
        if hello.producer is not None:
            validate_part(hello.producer, "producer")
        state = await node.call(messages.producer_state, name=self.topic, producer=hello.producer)
        if hello.incarnation not in {None, state.incarnation}:
            raise TopicDeleted(topic=str(self.topic))
        self.producer = hello.producer or f"producer-{uuid.uuid4().hex}"
        self.follow(state.incarnation)
        self.welcome(
            permits=self._permits,
            producer=self.producer,
            last_sequence=state.last_sequence,
            incarnation=state.incarnation,
        )

    async def data_received(self, data: bytes) -> None:
        """Queue a batch behind those of its segment; raises FrameInvalid, PermitsExceeded."""
        publish = decode_publish(data)
        if self._in_flight >= self._permits:
            raise PermitsExceeded(limit=self._permits)
        stream = self._stream(publish.segment_id)
        self._in_flight += 1
        self._queued_bytes += len(publish.batch)
        stream.pending.append(_checked(publish))
        if not stream.running:
            stream.running = True
            self.spawn(self._store(stream))
        while self._queued_bytes > MAX_QUEUED_BYTES:  # the peer waits, by not being read
            self._room.clear()
            await self._room.wait()

    def _stream(self, segment_id: int) -> SegmentStream:
        stream = self._streams.get(segment_id)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._forget_oldest()
            stream = self._streams[segment_id] = SegmentStream(segment_id)
        return stream

    def _forget_oldest(self) -> None:
        """Forget the oldest of the broken streams that sealed segments leave behind; it is long over."""
        oldest = next((key for key, stream in self._streams.items() if not stream.running), None)
        if oldest is not None:
            del self._streams[oldest]

    async def _store(self, stream: SegmentStream) -> None:
        while stream.pending:
            group, refused = stream.next_group()
            for pending in refused:
                self._refuse(pending, self._broken(stream))
            if group and group[0].problem is not None:
                self._break(stream, group[0], group[0].problem)
            elif group:
                await self._append(stream, group)
        stream.running = False
        if stream.broken_by is None:
            del self._streams[stream.segment_id]

    async def _append(self, stream: SegmentStream, group: list[Pending]) -> None:
        try:
            results = await node.call(
                messages.append,
                name=self.topic,
                incarnation=self.incarnation,
                segment_id=stream.segment_id,
                batches=[pending.publish.batch for pending in group],
                producer=self.producer,
            )
        except (BatchInvalid, BatchPartlyDuplicate) as error:
            self._single_out(stream, group, error)
        except ScalableError as error:
            self._break(stream, group[0], error)
            stream.put_back(group[1:])
        except Exception as error:
            self._break(stream, group[0], internal_error(error))
            stream.put_back(group[1:])
        else:
            for pending, result in zip(group, results, strict=True):
                self._receive(pending, result)

    def _single_out(self, stream: SegmentStream, group: list[Pending], error: ScalableError) -> None:
        """One of a group is refused and nobody said which: store them again one by one."""
        if len(group) == 1:
            self._break(stream, group[0], error)
        else:
            stream.put_back(group)
            stream.cautious = len(group)

    def _receive(self, pending: Pending, result: AppendResult) -> None:
        publish, header = pending.publish, pending.header
        if header is not None and not result.duplicate:
            sampler.count_in(self.topic, self.incarnation, publish, header)
        self._answer(
            pending,
            Receipt(
                request_id=publish.request_id,
                segment_id=publish.segment_id,
                base_offset=result.base_offset,
                duplicate=result.duplicate,
            ),
        )

    def _break(self, stream: SegmentStream, pending: Pending, error: ScalableError) -> None:
        stream.broken_by = error
        self._refuse(pending, error)
        if isinstance(error, TopicDeleted):
            self.end_with_topic()

    def _broken(self, stream: SegmentStream) -> StreamBroken:
        problem = stream.broken_by.code if stream.broken_by is not None else ""
        return StreamBroken(producer=self.producer, segment_id=stream.segment_id, problem=problem)

    def _refuse(self, pending: Pending, error: ScalableError) -> None:
        self._answer(
            pending,
            Refused(
                request_id=pending.publish.request_id,
                segment_id=pending.publish.segment_id,
                code=error.code,
                reason=error.reason,
                fields=dict(error.fields),
                hint=error.hint,
            ),
        )

    def _answer(self, pending: Pending, frame: Receipt | Refused) -> None:
        self._in_flight -= 1
        self._queued_bytes -= len(pending.publish.batch)
        self._room.set()
        self.push(frame)


def _checked(publish: Publish) -> Pending:
    """Read a batch's header, and keep what is wrong with it for its turn."""
    try:
        header = decode_header(publish.batch)
        return Pending(publish, header, _problem_of(publish, header))
    except ScalableError as error:
        return Pending(publish, None, error)


def _problem_of(publish: Publish, header: BatchHeader) -> ScalableError | None:
    limit = settings.SCALABLE_MAX_MESSAGE_BYTES + BATCH_OVERHEAD_BYTES
    if header.uncompressed_bytes > limit:
        return BatchTooLarge(size_bytes=header.uncompressed_bytes, limit_bytes=limit)
    if publish.parts is not None and sum(publish.parts) != header.count:
        return BatchInvalid(problem=f"its parts count {sum(publish.parts)} records, not {header.count}")
    return None
