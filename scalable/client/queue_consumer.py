"""The queue consumer: messages of every segment, shared with others, each acknowledged for itself."""

from __future__ import annotations

import asyncio
import uuid
from typing import NamedTuple

from scalable.client.admin import Admin
from scalable.client.connection import Backoff, ConnectionLost, Endpoint, Urls, keep_running, logger
from scalable.client.dead_letters import DeadLetters, default_topic
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.client.queue_inbox import QueueInbox, QueueMessage
from scalable.client.queue_link import QueueLink
from scalable.client.receiver import Receiver
from scalable.client.subscription_admin import Edge
from scalable.client.time_limit import time_limit
from scalable.client.topology import Topology, TopologyWatch
from scalable.domain.checkpoint import Checkpoint
from scalable.domain.errors import SubscriptionNotFound, TopicDeleted, TopicNotFound
from scalable.domain.names import TopicName

DEFAULT_PREFETCH_MESSAGES = 200
MIN_ACK_TIMEOUT_SECONDS = 0.1
MAX_ACK_TIMEOUT_SECONDS = 12 * 3_600.0
MAX_DELAY_SECONDS = 7 * 24 * 3_600.0
MAX_GROWTH = 1_000.0


class NegativeAckBackoff(NamedTuple):
    """How long a message rests after a negative acknowledgement: grows with the times it was delivered."""

    min_seconds: float = 1.0
    max_seconds: float = 60.0
    multiplier: float = 2.0

    def delay_seconds(self, deliveries: int) -> float:
        """Give the rest after so many deliveries (at least 1)."""
        growth = self.multiplier ** min(deliveries - 1, 64)
        return min(self.max_seconds, self.min_seconds * growth)


class QueueConsumer(Receiver[QueueMessage]):
    """One member of a QUEUE subscription; use it as `async with QueueConsumer(...) as consumer`.

    Any number of members share every segment, sealed ones too; there is no order between messages. A message
    that is handed out belongs to this member for `ack_timeout_seconds` at least (None: the server's setting);
    if it is neither acknowledged nor given back by then, it is delivered again, to any member. Delivered more
    than `max_deliveries` times, it goes to the `dead_letter_topic` instead (PIP-460, QueueConsumer).
    `prefetch_messages` bounds, per segment, what waits in memory.
    """

    def __init__(
        self,
        url: Urls,
        topic: TopicName | str,
        subscription: str,
        token: str,
        *,
        name: str | None = None,
        start: Edge | int | Checkpoint = "earliest",
        ack_timeout_seconds: float | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: TopicName | str | None = None,
        negative_ack_backoff: tuple[float, float, float] = NegativeAckBackoff(),
        prefetch_messages: int | Prefetch = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        """Take the options; raises ValueError for one out of its bounds, InvalidName.

        `start` counts only when the subscription is new: an end, a time (milliseconds since 1970) or a
        checkpoint. `negative_ack_backoff`: shortest and longest rest (seconds) and how it grows.
        """
        super().__init__()
        _check(ack_timeout_seconds, max_deliveries)
        self.name = name or f"consumer-{uuid.uuid4().hex[:12]}"
        self.topic = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
        self.subscription = subscription
        self._membership = Membership(self.name, self.topic, subscription)
        self._endpoint = Endpoint(url, token)
        self._start_position = start
        self._max_deliveries = max_deliveries
        self._rest = _checked_backoff(negative_ack_backoff)
        self._inbox = QueueInbox(self._membership, max_deliveries=max_deliveries)
        self._dead_letters = self._make_dead_letters(url, token, dead_letter_topic)
        self._burying: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._watch = TopologyWatch(
            self._endpoint, self.topic, client=self.name, on_change=self._follow_topology
        )
        self._prefetch, self._ack_timeout_seconds = Prefetch.of(prefetch_messages), ack_timeout_seconds
        self._links: list[QueueLink] = []
        """One for so many segments as one socket attaches."""
        self._backoff = Backoff()
        self._serving: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def _make_dead_letters(self, url: Urls, token: str, topic: TopicName | str | None) -> DeadLetters | None:
        if self._max_deliveries is None:
            return None
        if topic is None:
            topic = default_topic(self.topic, self.subscription)
        name = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
        if name == self.topic:
            raise ValueError("a topic cannot take its own dead letters: they would be delivered again")
        return DeadLetters(url, token, name, source=self.topic, subscription=self.subscription)

    # Life

    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Create the subscription if it is new, and connect.

        Raises TopicNotFound, SubscriptionTypeMismatch, Unauthenticated, Forbidden, ConnectionLost,
        TimeoutError; RuntimeError after its end.
        """
        self._require_open()
        try:
            async with self._backoff.within(timeout_seconds, self._watch.backoff):
                await self._watch.start(timeout_seconds)
                what = f"consumer {self.name}"
                await keep_running(self._create_subscription, backoff=self._backoff, what=what)
                self._run()
                await self._wait_until_connected()
        except BaseException:
            await self._stop()
            raise

    async def _create_subscription(self) -> None:
        await asyncio.to_thread(self._create_by_rest)

    def _create_by_rest(self) -> None:
        with Admin(self._endpoint.urls, self._endpoint.token) as admin:
            admin.create_subscription(self.topic, self.subscription, kind="QUEUE", start=self._start_position)

    def _run(self) -> None:
        self._add_links()
        self._tasks.append(asyncio.create_task(self._end_with_topic(), name=f"consumer {self.name}"))

    def _add_links(self) -> None:
        """Open as many sockets as the segments need; of a topic's usual few, that is one."""
        while len(self._links) < self._inbox.sockets:
            link = self._make_link(len(self._links))
            self._links.append(link)
            self._serving.append(asyncio.create_task(self._serve(link), name=f"consumer {self.name}"))

    def _make_link(self, socket: int) -> QueueLink:
        return QueueLink(
            self._endpoint,
            self._membership,
            inbox=self._inbox,
            prefetch=self._prefetch,
            ack_timeout_seconds=self._ack_timeout_seconds,
            socket=socket,
            changed=self._on_frame,
        )

    async def _wait_until_connected(self) -> None:
        while not all(link.was_welcome for link in self._links):
            self._raise_failure()
            await self._changed.wait()

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Make acknowledgements durable and give back what the application did not settle."""
        try:
            if self._failure is None and self._serving:
                async with time_limit(timeout_seconds):
                    await self._finish_burying()
                    await self.flush()
                    self._leaving = True
                    for link in self._links:
                        link.leave()
                    await asyncio.wait(self._serving)
        except (TimeoutError, ConnectionLost, SubscriptionNotFound) as error:
            logger.info("consumer %s left without goodbye: %s", self.name, error)
        finally:
            await self._stop()

    async def _finish_burying(self) -> None:
        """Let arrive what is on its way to the dead letters: given back now, it would be there twice."""
        if self._dead_letters is not None:
            self._dead_letters.end()
            await asyncio.gather(*self._burying.values())

    async def _stop(self) -> None:
        self._leaving = True
        tasks = [*self._serving, *self._tasks, *self._burying.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await self._watch.close()
        self._fail(ConnectionLost(1000, "the consumer was closed"))

    # Messages

    def _next_message(self) -> QueueMessage | None:
        message = None if self._leaving else self._inbox.next_message(_now())
        if message is not None:
            self._wake_link_of(message)
        return message

    def acknowledge(self, message: QueueMessage) -> None:
        """Acknowledge this message alone; it becomes durable within milliseconds, surely by `flush`."""
        self._inbox.acknowledge(message)
        self._wake_link_of(message)

    def negative_acknowledge(self, message: QueueMessage) -> None:
        """Give a message back, to be delivered again, to any member, after a rest.

        The rest grows with `message.deliveries`; one that was delivered for the last time becomes a dead
        letter at once.
        """
        last = self._max_deliveries is not None and message.deliveries >= self._max_deliveries
        delay_seconds = 0.0 if last else self._rest.delay_seconds(message.deliveries)
        self._inbox.give_back(message, delay_ms=round(delay_seconds * 1_000))
        self._wake_link_of(message)

    def _wake_link_of(self, message: QueueMessage) -> None:
        segment = self._inbox.segments.get(message.message_id.segment_id)
        if segment is not None and segment.socket < len(self._links):
            self._links[segment.socket].wake()

    async def flush(self) -> None:
        """Wait until all acknowledgements are durable; raises what ended the consumer."""
        self._wake_links()
        while self._inbox.has_unsettled:
            self._raise_failure()
            await self._changed.wait()

    @property
    def interruptions(self) -> int:
        """Count how often what this member held was given to others: with a connection, or for an error."""
        return sum(link.interruptions for link in self._links)

    @property
    def dead_letter_topic(self) -> TopicName | None:
        """Give the topic that gets the messages that were delivered too often."""
        return None if self._dead_letters is None else self._dead_letters.topic

    @property
    def segment_count(self) -> int:
        """Count the segments that are known."""
        return len(self._inbox.segments)

    @property
    def segments(self) -> tuple[int, ...]:
        """Give the ids of the segments that may still have messages for this subscription."""
        return tuple(segment.segment_id for segment in self._inbox.segments.values() if not segment.done)

    # Behind the scenes

    async def _serve(self, link: QueueLink) -> None:
        try:
            await link.run()
        except TopicNotFound:
            self._fail(TopicDeleted(topic=str(self.topic)))
        except Exception as error:
            self._fail(error)

    async def _end_with_topic(self) -> None:
        try:
            await self._watch.wait_for(lambda _: False)
        except Exception as error:
            self._fail(error)

    def _follow_topology(self, topology: Topology) -> None:
        self._inbox.set_segments(topology.segments.keys())
        if self._links and not self._leaving:
            self._add_links()
        self._wake_links()
        self._pulse()

    def _wake_links(self) -> None:
        for link in self._links:
            link.wake()

    def _on_frame(self) -> None:
        if self._dead_letters is not None:
            self._bury_dead(self._dead_letters)
        self._pulse()

    def _bury_dead(self, dead_letters: DeadLetters) -> None:
        for message in self._inbox.dead_messages():
            place = message.message_id.segment_id, message.message_id.offset
            if place not in self._burying:
                self._burying[place] = asyncio.create_task(self._bury(dead_letters, message, place))

    async def _bury(self, dead_letters: DeadLetters, message: QueueMessage, place: tuple[int, int]) -> None:
        try:
            if await dead_letters.bury(message):
                # Only now: a crash before leaves the message here, and at worst a second time over there.
                self.acknowledge(message)
        finally:
            del self._burying[place]


def _check(ack_timeout_seconds: float | None, max_deliveries: int | None) -> None:
    if ack_timeout_seconds is not None and not (
        MIN_ACK_TIMEOUT_SECONDS <= ack_timeout_seconds <= MAX_ACK_TIMEOUT_SECONDS
    ):
        raise ValueError(
            f"ack_timeout_seconds is not from {MIN_ACK_TIMEOUT_SECONDS} to {MAX_ACK_TIMEOUT_SECONDS}"
        )
    if max_deliveries is not None and max_deliveries < 1:
        raise ValueError("max_deliveries is not at least 1")


def _checked_backoff(backoff: tuple[float, float, float]) -> NegativeAckBackoff:
    found = NegativeAckBackoff(*backoff)
    in_order = 0 <= found.min_seconds <= found.max_seconds <= MAX_DELAY_SECONDS
    if not in_order or not 1 <= found.multiplier <= MAX_GROWTH:
        raise ValueError(
            "negative_ack_backoff is not (shortest, longest, growth), the growth from 1 to 1,000"
        )
    return found


def _now() -> float:
    return asyncio.get_running_loop().time()
