"""Where a queue consumer puts messages that were delivered too often: another topic, durably."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from scalable.client.admin import Admin
from scalable.client.connection import Backoff, Urls, least_pause_seconds, logger
from scalable.client.producer import Producer
from scalable.client.queue_inbox import QueueMessage
from scalable.client.time_limit import time_limit
from scalable.domain.errors import BatchInvalid, BatchTooLarge, MessageTooLarge, TopicExists, TopicNotFound
from scalable.domain.names import TopicName

ORIGINAL_TOPIC = "original-topic"
ORIGINAL_SUBSCRIPTION = "original-subscription"
ORIGINAL_MESSAGE_ID = "original-message-id"
DELIVERIES = "deliveries"
LONGEST_WAIT_SECONDS = 30.0
CLOSE_SECONDS = 1.0


def default_topic(topic: TopicName, subscription: str) -> TopicName:
    """Name the dead-letter topic of a subscription: `<topic>-<subscription>-DLQ`; raises InvalidName."""
    return TopicName.parse(f"topic://{topic.tenant}/{topic.namespace}/{topic.name}-{subscription}-DLQ")


class DeadLetters:
    """Produces to the dead-letter topic, which is created when it is not there.

    A message keeps its key, value, event time and properties, and gains properties that tell where it came
    from: `original-topic`, `original-subscription`, `original-message-id` (segment:offset), `deliveries`.
    One that is too large with these goes without them.
    """

    def __init__(
        self, url: Urls, token: str, topic: TopicName, *, source: TopicName, subscription: str
    ) -> None:
        self.topic = topic
        self._url, self._token = url, token
        self._source, self._subscription = source, subscription
        self._producer: Producer | None = None
        self._connecting = asyncio.Lock()
        self._attempts = 0
        self._refusal: Exception | None = None
        self._ended = asyncio.Event()

    async def bury(self, message: QueueMessage) -> bool:
        """Store a message and give True; tries again, with growing waits, until it is durable.

        Gives False once `end` was called and the attempt under way failed.
        """
        backoff = Backoff(limit_seconds=LONGEST_WAIT_SECONDS)
        while not self._ended.is_set():
            try:
                await self._send(await self._connected(), message)
            except Exception as error:
                wait_seconds = least_pause_seconds(error) + backoff.next_seconds()
                logger.warning("dead letter to %s: %s; again in %.2f s", self.topic, error, wait_seconds)
                with suppress(TimeoutError):
                    async with time_limit(wait_seconds):
                        await self._ended.wait()
            else:
                return True
        return False

    def end(self) -> None:
        """Begin no new attempts."""
        self._ended.set()

    async def close(self) -> None:
        """Disconnect; what is not durable by now is delivered again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                await producer.close(timeout_seconds=CLOSE_SECONDS)

    async def _send(self, producer: Producer, message: QueueMessage) -> None:
        try:
            try:
                await self._send_with(producer, message, self._properties(message))
            except (BatchInvalid, BatchTooLarge, MessageTooLarge) as error:
                # Stored as it was before, without its origin, is better than never.
                logger.warning("dead letter to %s goes without its origin: %s", self.topic, error)
                await self._send_with(producer, message, message.properties)
        except (BatchInvalid, BatchTooLarge, MessageTooLarge):
            raise
        except Exception:
            # It ended for good, as with a topic that was deleted: the next attempt begins anew.
            if producer is self._producer:
                await self.close()
            raise

    async def _send_with(
        self, producer: Producer, message: QueueMessage, properties: Mapping[str, str]
    ) -> None:
        await producer.send(
            message.key, message.value, properties=properties, event_time_ms=message.event_time_ms
        )

    def _properties(self, message: QueueMessage) -> dict[str, str]:
        place = message.message_id
        return {
            **message.properties,
            ORIGINAL_TOPIC: str(self._source),
            ORIGINAL_SUBSCRIPTION: self._subscription,
            ORIGINAL_MESSAGE_ID: f"{place.segment_id}:{place.offset}",
            DELIVERIES: str(message.deliveries),
        }

    async def _connected(self) -> Producer:
        """Connect if need be; those that waited while an attempt failed share its outcome."""
        attempts = self._attempts
        async with self._connecting:
            if self._producer is None:
                if self._refusal is not None and attempts < self._attempts:
                    raise self._refusal
                self._producer = await self._attempt()
            return self._producer

    async def _attempt(self) -> Producer:
        self._attempts, self._refusal = self._attempts + 1, None
        try:
            producer = await self._open()
        except Exception as error:
            self._refusal = error
            raise
        return producer

    async def _open(self) -> Producer:
        producer = Producer(self._url, self.topic, self._token)
        try:
            await producer.start()
        except TopicNotFound:
            await asyncio.to_thread(self._create_topic)
            producer = Producer(self._url, self.topic, self._token)
            await producer.start()
        return producer

    def _create_topic(self) -> None:
        with Admin(self._url, self._token) as admin:
            try:
                admin.create_topic(self.topic)
            except TopicExists:
                return
