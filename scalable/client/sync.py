"""The synchronous faces of producer and consumers, for programs without an event loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from scalable.client.batches import MessageId
from scalable.client.checkpoint_consumer import CheckpointConsumer
from scalable.client.connection import ConnectionLost, Urls
from scalable.client.consumer import Positions, StreamConsumer
from scalable.client.inbox import Message
from scalable.client.key_shared_consumer import KeySharedConsumer
from scalable.client.member import Member
from scalable.client.producer import Producer
from scalable.client.queue_consumer import QueueConsumer
from scalable.client.queue_inbox import QueueMessage
from scalable.client.receiver import MessageKind, Receiver
from scalable.client.topology import Topology
from scalable.domain.checkpoint import Checkpoint, Skipped
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scalable-client", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop; raises ConnectionLost once it has ended."""
        if self._loop.is_closed():
            coroutine.close()
            raise ConnectionLost(1000, "the client was closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; an interrupted wait cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the loop's thread, for what clients keep is not shared by threads."""
        return self.call(_now(function, *arguments))

    def end(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then end the loop; once it has ended nothing is done."""
        if self._loop.is_closed():
            coroutine.close()
            return
        try:
            self.call(coroutine)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncProducer:
    """A `Producer` (see there for the options) for synchronous code; threads may share it."""

    def __init__(self, url: Urls, topic: TopicName | str, token: str, **options: Any) -> None:
        self._loop = _Loop()
        self._producer: Producer = self._loop.call(_make(Producer, url, topic, token, **options))
        try:
            self._loop.call(self._producer.start())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, key: str | None, value: bytes, **options: Any) -> MessageId:
        """Send a message and wait until it is durable; raises as `Producer.send`."""
        return self._loop.call(self._producer.send(key, value, **options))

    def submit(self, key: str | None, value: bytes, **options: Any) -> Future[MessageId]:
        """Take a message in, waiting only for room, and give a future of its id."""
        durable: Future[MessageId] = Future()
        self._loop.call(self._submit(durable, key, value, options))
        return durable

    async def _submit(
        self, durable: Future[MessageId], key: str | None, value: bytes, options: Mapping[str, Any]
    ) -> None:
        delivered = await self._producer.submit(key, value, **options)
        delivered.add_done_callback(lambda done: _copy(done, durable))

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything taken in so far is settled."""
        self._loop.call(self._producer.flush(timeout_seconds))

    def close(self, timeout_seconds: float = 60.0) -> None:
        """Deliver what was taken in, then disconnect."""
        self._loop.end(self._producer.close(timeout_seconds))

    @property
    def topology(self) -> Topology | None:
        """Give the layout that messages are routed by."""
        return self._loop.run(lambda: self._producer.topology)

    @property
    def last_sequence(self) -> int:
        """Give the highest number that was stored under this name before; see `Producer.last_sequence`."""
        return self._loop.run(lambda: self._producer.last_sequence)

    @property
    def pending_messages(self) -> int:
        """Give the number of messages that are not yet durable."""
        return self._loop.run(lambda: self._producer.pending_messages)

    @property
    def pending_bytes(self) -> int:
        """Give the size in bytes of the messages that are not yet durable."""
        return self._loop.run(lambda: self._producer.pending_bytes)


class SyncReceiver(Generic[MessageKind]):
    """What the faces of all consumers share; `_consumer` lives in the loop, and is called there only."""

    _consumer: Receiver[MessageKind]

    def _open(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        """Make a consumer in a loop of its own and start it; gives it."""
        self._loop = _Loop()
        try:
            consumer = self._loop.call(_make(kind, *arguments, **options))
            self._loop.call(consumer.start())
        except BaseException:
            self._loop.stop()
            raise
        return consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._consumer.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[MessageKind]:
        while True:
            yield self.receive()

    def receive(self, timeout_seconds: float | None = None) -> MessageKind:
        """Wait for the next message; raises TimeoutError, and what ended the consumer."""
        return self._loop.call(self._consumer.receive(timeout_seconds))

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Make durable what is done, leave the subscription, disconnect."""
        self._loop.end(self._consumer.close(timeout_seconds))


class _SyncMember(SyncReceiver[Message]):
    """What the faces of consumers share to which segments are assigned."""

    _consumer: Member

    @property
    def name(self) -> str:
        """Give the name under which this consumer is registered."""
        return self._consumer.name

    @property
    def owned_segments(self) -> tuple[int, ...]:
        """Give the ids of the segments that this consumer owns now."""
        return self._loop.run(lambda: self._consumer.owned_segments)

    @property
    def standby(self) -> bool:
        """Tell whether there are more members than segments, and this one waits."""
        return self._loop.run(lambda: self._consumer.standby)


class SyncStreamConsumer(_SyncMember):
    """A `StreamConsumer` (see there for the options) for synchronous code; iterate for messages."""

    _consumer: StreamConsumer

    def __init__(
        self, url: Urls, topic: TopicName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._consumer = self._open(StreamConsumer, url, topic, subscription, token, **options)

    def acknowledge(self, message: Message) -> bool:
        """Acknowledge a message and all before it in its segment; False when another owns the segment."""
        return self._loop.run(self._consumer.acknowledge, message)

    def positions(self) -> Positions:
        """Give, by segment, the position behind the last message that was received here."""
        return self._loop.run(self._consumer.positions)

    def acknowledge_positions(self, positions: Mapping[int, int]) -> None:
        """Acknowledge everything below a position in each segment; segments of other owners are left out."""
        self._loop.run(self._consumer.acknowledge_positions, positions)

    def acknowledge_all(self) -> None:
        """Acknowledge every message that was received here."""
        self._loop.run(self._consumer.acknowledge_all)

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())


class SyncKeySharedConsumer(_SyncMember):
    """A `KeySharedConsumer` (see there for the options) for synchronous code; iterate for messages."""

    _consumer: KeySharedConsumer

    def __init__(
        self, url: Urls, topic: TopicName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._consumer = self._open(KeySharedConsumer, url, topic, subscription, token, **options)

    def acknowledge(self, message: Message) -> bool:
        """Acknowledge a message and what came here before it of its entry bucket; False when that went."""
        return self._loop.run(self._consumer.acknowledge, message)

    def acknowledge_individually(self, message: Message) -> bool:
        """Acknowledge this message alone; False when its bucket has another owner by now."""
        return self._loop.run(self._consumer.acknowledge_individually, message)

    @property
    def owned_buckets(self) -> tuple[BucketKey, ...]:
        """Give the entry buckets that this consumer owns now, as (segment id, index of the bucket)."""
        return self._loop.run(lambda: self._consumer.owned_buckets)

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())


class SyncCheckpointConsumer(_SyncMember):
    """A `CheckpointConsumer` (see there for the options) for synchronous code; iterate for messages.

    A block that an error leaves gives its place up as a crash would: the next owner goes on from the commit.
    """

    _consumer: CheckpointConsumer

    def __init__(self, url: Urls, topic: TopicName | str, token: str, *, group: str, **options: Any) -> None:
        self._consumer = self._open(CheckpointConsumer, url, topic, token, group=group, **options)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Give what checkpoints pointed at and is pruned, with the segments where reading went on."""
        return self._loop.run(lambda: tuple(self._consumer.skipped))

    def checkpoint(self) -> Checkpoint:
        """Give the position behind the last message of each segment that was handed out here."""
        return self._loop.run(self._consumer.checkpoint)

    def commit(self, checkpoint: Checkpoint) -> Checkpoint:
        """Let go of what lies before it, and give what the group holds; raises as the coroutine does."""
        return self._loop.call(self._consumer.commit(checkpoint))

    def restore(self, checkpoint: Checkpoint) -> Checkpoint:
        """Let the whole group go on from a checkpoint, and give where; raises as the coroutine does."""
        return self._loop.call(self._consumer.restore(checkpoint))


class SyncQueueConsumer(SyncReceiver[QueueMessage]):
    """A `QueueConsumer` (see there for the options) for synchronous code; iterate for messages."""

    _consumer: QueueConsumer

    def __init__(
        self, url: Urls, topic: TopicName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._consumer = self._open(QueueConsumer, url, topic, subscription, token, **options)

    def acknowledge(self, message: QueueMessage) -> None:
        """Acknowledge this message alone."""
        self._loop.run(self._consumer.acknowledge, message)

    def negative_acknowledge(self, message: QueueMessage) -> None:
        """Give a message back, to be delivered again after a rest."""
        self._loop.run(self._consumer.negative_acknowledge, message)

    @property
    def interruptions(self) -> int:
        """Count how often what this member held was given to others: with a connection, or for an error."""
        return self._consumer.interruptions

    @property
    def dead_letter_topic(self) -> TopicName | None:
        """Give the topic that gets the messages that were delivered too often."""
        return self._consumer.dead_letter_topic

    @property
    def segments(self) -> tuple[int, ...]:
        """Give the ids of the segments that may still have messages for this subscription."""
        return self._loop.run(lambda: self._consumer.segments)

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())


async def _make(what: Any, *arguments: Any, **options: Any) -> Any:
    return what(*arguments, **options)


async def _now(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def _copy(done: asyncio.Future[MessageId], durable: Future[MessageId]) -> None:
    """Hand the outcome of a future of the loop to one that any thread may wait for."""
    if done.cancelled():
        durable.cancel()
    elif (error := done.exception()) is not None:
        durable.set_exception(error)
    else:
        durable.set_result(done.result())
