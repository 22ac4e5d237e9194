"""The producer: keyed and keyless messages into whatever segments the topic has at the moment."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Unpack

import msgspec

from scalable.client.batches import Batch, BatchLimits, Entry, MessageId, sub_block_starts
from scalable.client.connection import (
    Backoff,
    Connection,
    ConnectionLost,
    Endpoint,
    Urls,
    error_of,
    first_to_end,
    keep_running,
    logger,
    open_connection,
)
from scalable.client.outbox import Outbox, Settled
from scalable.client.outgoing import MessageLimits, MessageOptions, Numbering, codec_of, make_entry
from scalable.client.room import Room
from scalable.client.starting import require_new
from scalable.client.time_limit import time_limit
from scalable.client.topology import Topology, TopologyWatch, with_successors
from scalable.domain.errors import (
    PermitsExceeded,
    TopicDeleted,
    TopicNotFound,
    error_from_json,
)
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.wire.batch import NO_SEQUENCE, encode_batch
from scalable.wire.frames import (
    PARTS,
    PROTOCOL_VERSION,
    ErrorFrame,
    Hello,
    Publish,
    Receipt,
    Refused,
    SegmentFrame,
    count_parts,
    encode_publish,
)

DEFAULT_MAX_PENDING_BYTES = 32 * 1024 * 1024
DEFAULT_MAX_PENDING_MESSAGES = 50_000
SUBMITS_PER_TURN = 200


class Producer:
    """Sends messages to a topic; use it as `async with Producer(url, topic, token) as producer`.

    Messages of one key stay in order, whatever splits, merges and reconnects happen between. `send` waits
    until the message is durable, `submit` only until there is room for it. What was sent again is recognised
    by (name, sequence), so nothing is stored twice; the application may give the sequences. One producer at
    a time may use a name: of two, one ends by StreamBroken. Options out of bounds raise ValueError.
    """

    def __init__(
        self,
        url: Urls,
        topic: TopicName | str,
        token: str,
        *,
        name: str | None = None,
        limits: BatchLimits | None = None,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
        max_pending_messages: int = DEFAULT_MAX_PENDING_MESSAGES,
        compression: Literal["none", "zstd"] = "none",
    ) -> None:
        self.name = name or f"producer-{uuid.uuid4().hex[:12]}"
        self.topic = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
        self._endpoint = Endpoint(url, token)
        self._codec = codec_of(compression)
        self._numbering = Numbering()
        self._outbox = Outbox(limits or BatchLimits(), producer=self.name)
        self._room = Room(max_bytes=max_pending_bytes, max_messages=max_pending_messages)
        self._watch = TopologyWatch(self._endpoint, self.topic, client=self.name, on_change=self._reroute)
        self._routes: Topology | None = None
        self._wake = asyncio.Event()
        self._backoff = Backoff()
        self._undelivered: dict[Entry, None] = {}
        self._delivered = asyncio.Event()
        self._limits = MessageLimits(0, 0)
        self._last_sequence = NO_SEQUENCE
        self._unsent_turns = 0
        self._task: asyncio.Task[None] | None = None
        self._welcomed: asyncio.Future[None] | None = None
        self._closing = self._abandoned = False
        self._failure: Exception | None = None
        self._goodbye = ConnectionLost(1000, "the producer was closed")

    @property
    def topology(self) -> Topology | None:
        """The newest layout that the producer routes by."""
        return self._routes

    @property
    def pending_messages(self) -> int:
        """Count the messages that are not durable yet."""
        return self._room.used_messages

    @property
    def pending_bytes(self) -> int:
        """Count the bytes that are held for messages that are not durable yet."""
        return self._room.used_bytes

    @property
    def last_sequence(self) -> int:
        """The highest sequence that was stored under this name before the producer started; -1 for none.

        An application that numbers its messages sends again, in their order, those that it does not know to
        be stored, and goes on above this number. What is stored already is acknowledged as a duplicate.
        """
        return self._last_sequence

    # Life

    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Connect; raises TopicNotFound, Unauthenticated, Forbidden, ConnectionLost, TimeoutError."""
        require_new("producer", started=self._task is not None, ended=self._closing)
        await self._watch.start(timeout_seconds)
        self._welcomed = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"producer {self.name}")
        try:
            async with self._backoff.within(timeout_seconds):
                await asyncio.shield(self._welcomed)
        except BaseException:
            await self._stop()
            raise

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._stop()

    async def close(self, timeout_seconds: float = 60.0) -> None:
        """Deliver what was taken in, then disconnect; raises what made that impossible, TimeoutError.

        Closing one that is closed already does nothing, unless messages were left behind then.
        """
        self._closing = True
        try:
            await self.flush(timeout_seconds)
        except ConnectionLost as error:
            if error is not self._goodbye or self._abandoned:
                raise
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._watch.close()
        self._fail(self._goodbye)

    # Sending

    async def send(self, key: str | None, value: bytes, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message and wait until it is durable; the options are those of `MessageOptions`.

        Raises MessageTooLarge, BatchInvalid (the key, the value or an option), BatchTooLarge (more than the
        server takes, with its many properties), and what ended the producer, as TopicDeleted.
        """
        delivered = await self.submit(key, value, **options)
        return await delivered

    async def submit(
        self, key: str | None, value: bytes, **options: Unpack[MessageOptions]
    ) -> asyncio.Future[MessageId]:
        """Take a message in and give a future of its id; waits while `max_pending_*` is used up.

        Messages of a key are delivered in the order in which their calls were made. Raises as `send`.
        """
        self._require_open()
        sequence = options.get("sequence")
        self._numbering.check(sequence)
        handle = asyncio.get_running_loop().create_future()
        entry = make_entry(key, value, handle=handle, limits=self._limits, **options)
        with self._numbering.using(sequence):
            await self._room.take(entry.size)
        entry.added_at = _now()
        self._undelivered[entry] = None
        self._outbox.add(entry)
        self._wake.set()
        self._unsent_turns += 1
        if self._unsent_turns >= SUBMITS_PER_TURN:
            # A caller that never waits for anything else must not keep the socket's tasks from running.
            await asyncio.sleep(0)
        future: asyncio.Future[MessageId] = entry.handle
        return future

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing or self._task is None:
            raise RuntimeError("the producer is not open")

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until all that was taken in before this call is settled; raises what ended the producer."""
        last = next(reversed(self._undelivered), None)
        self._outbox.urge(_now())
        self._wake.set()
        async with time_limit(timeout_seconds):
            while last is not None and self._is_before(last) and self._failure is None:
                await self._delivered.wait()
        if self._failure is not None:
            raise self._failure

    def _is_before(self, last: Entry) -> bool:
        """Tell whether an entry that was added no later than `last` is still undelivered."""
        oldest = next(iter(self._undelivered), None)
        return oldest is not None and oldest.added_at <= last.added_at

    # The socket

    async def _run(self) -> None:
        try:
            await keep_running(self._session, backoff=self._backoff, what=f"producer {self.name}")
        except TopicNotFound as error:
            known = self._welcomed is not None and self._welcomed.done()
            self._fail(TopicDeleted(topic=str(self.topic)) if known else error)
        except Exception as error:
            self._fail(error)

    async def _session(self) -> None:
        known = self._watch.current
        life = None if known is None else known.incarnation
        hello = Hello(protocol=PROTOCOL_VERSION, client="python", producer=self.name, incarnation=life)
        connection = await open_connection(self._endpoint, "produce", self.topic, hello=hello)
        try:
            self._adopt(connection)
            await first_to_end(self._send_batches(connection), self._take_answers(connection), self._follow())
        finally:
            self._outbox.on_connection_lost()
            await connection.close()

    def _adopt(self, connection: Connection) -> None:
        welcome = connection.welcome
        self._limits = MessageLimits(welcome.max_message_bytes, welcome.max_frame_bytes)
        self._outbox.bound_batches(welcome.max_message_bytes)
        if self._welcomed is not None and not self._welcomed.done():
            self._last_sequence = welcome.last_sequence
            self._outbox.resume_after(welcome.last_sequence)
            self._welcomed.set_result(None)
        self._outbox.check_stored(welcome.last_sequence)
        self._backoff.reset()

    async def _follow(self) -> None:
        """End with the watch: without a layout nothing can be routed."""
        await self._watch.wait_for(lambda _: False)

    async def _send_batches(self, connection: Connection) -> None:
        permits = connection.welcome.permits
        while True:
            self._wake.clear()
            self._unsent_turns = 0
            batch = self._outbox.take(_now(), permits)
            if batch is None:
                await self._wait_for_work(permits)
            else:
                await connection.send_data(self._encode(batch))

    async def _wait_for_work(self, permits: int) -> None:
        now = _now()
        due = self._outbox.next_due(now) if self._outbox.in_flight_count < permits else None
        wait_seconds = None if due is None else max(0.0, due - now)
        with suppress(TimeoutError):
            async with time_limit(wait_seconds):
                await self._wake.wait()

    def _encode(self, batch: Batch) -> bytes:
        data = encode_batch(
            [entry.record() for entry in batch.entries],
            published_at_ms=time.time_ns() // 1_000_000,
            codec=self._codec,
            bucket_starts=self._bucket_starts(batch),
            keyless_hash=batch.keyless_hash,
            deliver_at_ms=batch.deliver_at_ms,
        )
        parts = self._parts_of(batch)
        return encode_publish(Publish(batch.request_id, batch.segment_id, batch.restart, data, parts))

    def _segment_of(self, batch: Batch) -> SegmentFrame | None:
        return None if self._routes is None else self._routes.segments.get(batch.segment_id)

    def _bucket_starts(self, batch: Batch) -> Sequence[int]:
        segment = self._segment_of(batch)
        return () if segment is None else sub_block_starts(segment.entryBucketSplits, len(batch.entries))

    def _parts_of(self, batch: Batch) -> tuple[int, ...] | None:
        """Count a batch by 1/32 of its segment's range, for the map; keyless messages count evenly."""
        segment = self._segment_of(batch)
        if segment is None:
            return None
        hash_range = HashRange(segment.start, segment.end)
        if batch.keyless_hash is None:
            return count_parts(hash_range, [entry.hash16 for entry in batch.entries])
        each, more = divmod(len(batch.entries), PARTS)
        return tuple(each + (part < more) for part in range(PARTS))

    async def _take_answers(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            if isinstance(frame, Receipt):
                self._settle(self._on_receipt(frame))
            elif isinstance(frame, Refused):
                self._settle(self._on_refused(frame))
            elif isinstance(frame, ErrorFrame):
                # A close with the error's code follows where the connection is broken.
                logger.warning("producer %s: %s", self.name, error_of(frame))

    def _on_receipt(self, frame: Receipt) -> list[Settled]:
        return self._outbox.on_receipt(
            frame.segment_id, frame.request_id, frame.base_offset, duplicate=frame.duplicate
        )

    def _on_refused(self, frame: Refused) -> list[Settled]:
        body = {"code": frame.code, "reason": frame.reason, "fields": frame.fields, "hint": frame.hint}
        if frame.code == PermitsExceeded.code:
            raise error_from_json(body)
        settled = self._outbox.on_refused(frame.segment_id, frame.request_id, frame.code, body, _now())
        if frame.fields.get("successors"):
            self._go_on_to(frame.fields)
        return settled

    def _go_on_to(self, fields: Mapping[str, Any]) -> None:
        """Route by what came of a sealed segment, without waiting for the watch."""
        successors = msgspec.convert(fields["successors"], list[SegmentFrame])
        after = with_successors(self._routes, fields["epoch"], successors) if self._routes else None
        if after is not None:
            self._reroute(after)

    def _reroute(self, topology: Topology) -> None:
        """Follow a layout, unless a refusal told of a later one already."""
        if self._routes is None or topology.epoch >= self._routes.epoch:
            self._routes = topology
            self._outbox.set_topology(topology)
            self._wake.set()

    # Outcomes

    def _settle(self, outcomes: list[Settled]) -> None:
        for settled in outcomes:
            self._finish(settled.entry, settled.result)
        self._wake.set()
        self._delivered.set()
        self._delivered = asyncio.Event()

    def _finish(self, entry: Entry, result: MessageId | Exception) -> None:
        del self._undelivered[entry]
        self._room.give(entry.size)
        future: asyncio.Future[MessageId] = entry.handle
        if future.done():
            return
        if isinstance(result, MessageId):
            future.set_result(result)
        else:
            future.set_exception(result)

    def _fail(self, error: Exception) -> None:
        """End for good: all that wait get the error."""
        if self._failure is None:
            self._failure = error
            if not isinstance(error, ConnectionLost):
                logger.error("producer %s ended: %s", self.name, error)
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(error)
            self._welcomed.exception()
        self._room.fail(error)
        left = self._outbox.drain()
        self._abandoned = self._abandoned or bool(left)
        self._settle([Settled(entry, error) for entry in left])
        for entry in left:
            # `close` raises the error; a log line for each future that nobody looks at would tell no more.
            entry.handle.cancelled() or entry.handle.exception()


def _now() -> float:
    return time.monotonic()
