"""The synchronous face: producer and consumer for programs without an event loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from scalable.client.batches import MessageId
from scalable.client.connection import Urls
from scalable.client.consumer import StreamConsumer
from scalable.client.inbox import Message
from scalable.client.producer import Producer
from scalable.client.queue_consumer import QueueConsumer
from scalable.client.queue_inbox import QueueMessage
from scalable.domain.names import TopicName

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scalable-client", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; an interrupted wait cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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
        try:
            self._loop.call(self._producer.close(timeout_seconds))
        finally:
            self._loop.stop()


class SyncStreamConsumer:
    """A `StreamConsumer` (see there for the options) for synchronous code; iterate for messages."""

    def __init__(
        self, url: Urls, topic: TopicName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._loop = _Loop()
        self._consumer: StreamConsumer = self._loop.call(
            _make(StreamConsumer, url, topic, subscription, token, **options)
        )
        try:
            self._loop.call(self._consumer.start())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield self.receive()

    def receive(self, timeout_seconds: float | None = None) -> Message:
        """Wait for the next message; raises TimeoutError, and what ended the consumer."""
        return self._loop.call(self._consumer.receive(timeout_seconds))

    def acknowledge(self, message: Message) -> bool:
        """Acknowledge a message and all before it in its segment; False when another owns the segment."""
        return bool(self._loop.call(_now(self._consumer.acknowledge, message)))

    def acknowledge_all(self) -> None:
        """Acknowledge every message that was received here."""
        self._loop.call(_now(self._consumer.acknowledge_all))

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Make acknowledgements durable, leave the subscription, disconnect."""
        try:
            self._loop.call(self._consumer.close(timeout_seconds))
        finally:
            self._loop.stop()


class SyncQueueConsumer:
    """A `QueueConsumer` (see there for the options) for synchronous code; iterate for messages."""

    def __init__(
        self, url: Urls, topic: TopicName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._loop = _Loop()
        self._consumer: QueueConsumer = self._loop.call(
            _make(QueueConsumer, url, topic, subscription, token, **options)
        )
        try:
            self._loop.call(self._consumer.start())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[QueueMessage]:
        while True:
            yield self.receive()

    def receive(self, timeout_seconds: float | None = None) -> QueueMessage:
        """Wait for the next message; raises TimeoutError, and what ended the consumer."""
        return self._loop.call(self._consumer.receive(timeout_seconds))

    def acknowledge(self, message: QueueMessage) -> None:
        """Acknowledge this message alone."""
        self._loop.call(_now(self._consumer.acknowledge, message))

    def negative_acknowledge(self, message: QueueMessage) -> None:
        """Give a message back, to be delivered again after a rest."""
        self._loop.call(_now(self._consumer.negative_acknowledge, message))

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Make acknowledgements durable, give back what is not settled, disconnect."""
        try:
            self._loop.call(self._consumer.close(timeout_seconds))
        finally:
            self._loop.stop()


async def _make(what: Any, *arguments: Any, **options: Any) -> Any:
    return what(*arguments, **options)


async def _now(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


def _copy(done: asyncio.Future[MessageId], durable: Future[MessageId]) -> None:
    """Hand the outcome of a future of the loop to one that any thread may wait for."""
    if done.cancelled():
        durable.cancel()
    elif (error := done.exception()) is not None:
        durable.set_exception(error)
    else:
        durable.set_result(done.result())
