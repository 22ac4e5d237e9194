"""A consumer of all topics of a namespace with some properties: what comes is read, what goes is left."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from types import MappingProxyType
from typing import Generic, TypeVar

from scalable.client.branch import Branch
from scalable.client.connection import ConnectionLost, Endpoint, Urls
from scalable.client.consumer import StreamConsumer
from scalable.client.namespace_watch import NamespaceWatch, TopicsChange
from scalable.client.prefetch import SharedPrefetch
from scalable.client.queue_consumer import QueueConsumer
from scalable.client.receiver import MessageKind, Receiver
from scalable.domain.names import NamespaceName, TopicName

ConsumerKind = TypeVar("ConsumerKind", bound=StreamConsumer | QueueConsumer)

OPENING_AT_ONCE = 16
LEAVE_SECONDS = 10.0
NUMBER_BITS = 64
"""Of a consumer's number: so many tell whose inside it is, and as many which one it is there."""


class MultiTopicReceiver(Receiver[MessageKind], Generic[MessageKind, ConsumerKind]):
    """What multi-topic consumers share; each makes the consumers of its topics and hands their messages out.

    Each consumer that was opened has a number, which its messages carry: an acknowledgement finds the one
    that delivered the message, also when the topic was deleted and made again, or left and came back. What
    another object handed out, whose consumers have other numbers, finds none.
    """

    def __init__(
        self,
        url: Urls,
        namespace: NamespaceName | str,
        subscription: str,
        token: str,
        *,
        properties: Mapping[str, str] | None,
        name: str | None,
        prefetch_messages: int,
    ) -> None:
        super().__init__()
        self.name = name or f"consumer-{uuid.uuid4().hex[:12]}"
        self.subscription = subscription
        self._url, self._token = url, token
        self._prefetch = SharedPrefetch(prefetch_messages)
        self._watch = NamespaceWatch(
            Endpoint(url, token),
            namespace,
            properties=properties,
            client=self.name,
            on_change=self._follow_topics,
        )
        self._gate = asyncio.Semaphore(OPENING_AT_ONCE)
        self._branches: dict[TopicName, Branch[ConsumerKind]] = {}
        self._departing: dict[TopicName, Branch[ConsumerKind]] = {}
        self._first_number = secrets.randbits(NUMBER_BITS) << NUMBER_BITS
        self._numbers = count(self._first_number)
        self._number_of: dict[ConsumerKind, int] = {}
        self._consumers: dict[int, ConsumerKind] = {}
        self._ready: dict[ConsumerKind, None] = {}
        self._task: asyncio.Task[None] | None = None

    # What each kind does in its own way

    @abstractmethod
    def _make(self, topic: TopicName, *, came_later: bool) -> ConsumerKind:
        """Make a consumer of one topic; `came_later` tells that it was not there at the start."""

    @abstractmethod
    def _hand_out(self, consumer: ConsumerKind, number: int) -> MessageKind | None:
        """Hand out a message that waits at the consumer of this number."""

    async def flush(self) -> None:
        """Wait until all acknowledgements are durable; those of topics that end meanwhile are left out."""
        self._raise_failure()
        await asyncio.gather(*(_flush(each) for each in tuple(self._consumers.values())))

    def _wants(self, topic: TopicName) -> bool:
        """Tell whether a topic that matches is to be read."""
        return True

    def _forget(self, number: int) -> None:
        """Forget what is kept of a consumer that was closed."""

    # Life

    @property
    def namespace(self) -> NamespaceName:
        """Give the namespace whose topics are read."""
        return self._watch.namespace

    @property
    def topics(self) -> frozenset[TopicName]:
        """Give the topics that are read, or to be read as soon as that works."""
        return frozenset(self._branches)

    @property
    def departing(self) -> frozenset[TopicName]:
        """Give the topics that are being left: their acknowledgements are made durable."""
        return frozenset(self._departing)

    @property
    def troubles(self) -> Mapping[TopicName, Exception]:
        """Give the topics that cannot be read just now, with what is wrong; each is tried again."""
        found = {name: branch.trouble for name, branch in self._branches.items() if branch.trouble}
        return MappingProxyType(found)

    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Find the topics, and wait until each was subscribed to or failed for the first time.

        Raises NamespaceNotFound, Unauthenticated, Forbidden, ConnectionLost, TimeoutError; RuntimeError for a
        second start.
        """
        self._begin()
        try:
            async with self._watch.backoff.within(timeout_seconds):
                await self._watch.start(timeout_seconds)
                for branch in tuple(self._branches.values()):
                    await branch.tried.wait()
            self._raise_failure()
            self._task = asyncio.create_task(self._end_with_watch(), name=f"consumer {self.name}")
        except BaseException:
            await self._stop(0.0)
            raise

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Make acknowledgements durable, leave every subscription, disconnect."""
        await self._stop(timeout_seconds)

    async def _stop(self, timeout_seconds: float) -> None:
        self._leaving = True
        self._pulse()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._watch.close()
        for topic in tuple(self._branches):
            self._leave(topic, timeout_seconds)
        await asyncio.gather(*(branch.ended() for branch in self._departing.values()))
        self._fail(ConnectionLost(1000, "the consumer was closed"))

    async def _end_with_watch(self) -> None:
        try:
            await self._watch.wait_for(lambda _: False)
        except Exception as error:
            self._fail(error)

    # Topics

    def _follow_topics(self, change: TopicsChange) -> None:
        if self._leaving:
            return
        for topic in change.removed:
            self._leave(topic, LEAVE_SECONDS)
        for topic in filter(self._wants, change.added):
            self._enter(topic)

    def _enter(self, topic: TopicName) -> None:
        if topic in self._branches:
            return
        came_later = self._task is not None
        branch = self._branches[topic] = Branch(
            topic,
            lambda: self._make(topic, came_later=came_later),
            gate=self._gate,
            opened=self._opened,
            closed=self._closed,
            superseded=self._fail,
            before=self._departing.get(topic),
        )
        self._prefetch.note(branch, 1)

    def _leave(self, topic: TopicName, timeout_seconds: float) -> None:
        branch = self._branches.pop(topic, None)
        if branch is not None:
            self._departing[topic] = branch
            branch.leave(timeout_seconds).add_done_callback(lambda _: self._departed(branch))

    def _departed(self, branch: Branch[ConsumerKind]) -> None:
        self._prefetch.note(branch, 0)
        if self._departing.get(branch.topic) is branch:
            del self._departing[branch.topic]

    def _is_own(self, number: int) -> bool:
        """Tell whether a consumer of this number is or was inside this object."""
        return number >> NUMBER_BITS == self._first_number >> NUMBER_BITS

    def _opened(self, branch: Branch[ConsumerKind], consumer: ConsumerKind) -> None:
        number = self._number_of[consumer] = next(self._numbers)
        self._consumers[number] = consumer
        consumer.on_change = lambda: self._woken(branch, consumer)
        self._woken(branch, consumer)

    def _closed(self, consumer: ConsumerKind) -> None:
        consumer.on_change = None
        self._ready.pop(consumer, None)
        number = self._number_of.pop(consumer)
        del self._consumers[number]
        self._forget(number)
        self._pulse()

    def _woken(self, branch: Branch[ConsumerKind], consumer: ConsumerKind) -> None:
        self._prefetch.note(branch, max(1, consumer.segment_count))
        self._ready[consumer] = None
        self._pulse()

    # Messages

    def _next_message(self) -> MessageKind | None:
        """Hand out a message, from another topic each time."""
        while self._ready and not self._leaving:
            consumer = next(iter(self._ready))
            del self._ready[consumer]
            message = self._hand_out(consumer, self._number_of[consumer])
            if message is not None:
                self._ready[consumer] = None
                return message
        return None


async def _flush(consumer: StreamConsumer | QueueConsumer) -> None:
    with suppress(Exception):  # it ended; what was not durable by then is delivered again
        await consumer.flush()
