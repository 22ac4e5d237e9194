"""One topic of a multi-topic consumer: subscribed with patience, followed while it is wanted, left well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from scalable.client.connection import Backoff, least_pause_seconds, logger
from scalable.client.receiver import Receiver
from scalable.domain.errors import SessionSuperseded, SubscriptionNotFound
from scalable.domain.names import TopicName

ConsumerKind = TypeVar("ConsumerKind", bound=Receiver[Any])

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 30 * 60.0
STABLE_SECONDS = 10.0
"""A consumer that held for so long was a success, and the next retry begins at the shortest wait."""
OPEN_SECONDS = 30.0


class Branch(Generic[ConsumerKind]):
    """Keeps a consumer of one topic open; tries again, at growing intervals, for as long as it is wanted.

    `opened` and `closed` are called with each consumer. What could not be done stands in `trouble`. Once a
    newer consumer of the same name has taken over, `superseded` is called, and nothing is tried again; nor is
    it once the subscription was deleted.
    """

    def __init__(
        self,
        topic: TopicName,
        make: Callable[[], ConsumerKind],
        *,
        gate: asyncio.Semaphore,
        opened: Callable[[Branch[ConsumerKind], ConsumerKind], None],
        closed: Callable[[ConsumerKind], None],
        superseded: Callable[[SessionSuperseded], None],
        before: Branch[ConsumerKind] | None = None,
    ) -> None:
        """Begin at once, or when `before`, which had the same topic, has ended."""
        self.topic = topic
        self.trouble: Exception | None = None
        self.tried = asyncio.Event()
        self._make, self._gate = make, gate
        self._opened, self._closed, self._superseded = opened, closed, superseded
        self._before = before
        self._passing: ConsumerKind | None = None
        """What is being opened or cleared away; if that is interrupted, something of it may be left."""
        self._consumer: ConsumerKind | None = None
        self._backoff = Backoff(first_seconds=2 * RETRY_SECONDS_MIN, limit_seconds=RETRY_SECONDS_MAX)
        self._task = asyncio.create_task(self._run(), name=f"consumer of {topic}")
        self._left: asyncio.Task[None] | None = None

    def leave(self, timeout_seconds: float) -> asyncio.Task[None]:
        """Begin to leave: what was acknowledged is made durable first, within the time-out."""
        if self._left is None:
            self._left = asyncio.create_task(self._leave(timeout_seconds), name=f"leave {self.topic}")
        return self._left

    async def ended(self) -> None:
        """Wait until a branch that was told to leave has left."""
        if self._left is not None:
            await asyncio.wait([self._left])

    async def _run(self) -> None:
        if self._before is not None:
            await self._before.ended()
            self._before = None
        while True:
            try:
                await self._follow()
            except SessionSuperseded as error:
                self._superseded(error)
                return
            except SubscriptionNotFound as error:
                # Another consumer would make again what somebody deleted under this one.
                self.trouble = error
                self.tried.set()
                logger.warning("%s: %s", self.topic, error)
                return
            except Exception as error:
                self.trouble = error
                self.tried.set()
                least_seconds = max(RETRY_SECONDS_MIN, least_pause_seconds(error))
                wait_seconds = max(least_seconds, self._backoff.next_seconds())
                logger.warning("%s: %s; again in %.1f s", self.topic, error, wait_seconds)
                await asyncio.sleep(wait_seconds)

    async def _follow(self) -> None:
        """Read the topic until that fails; raises what ended it."""
        async with self._gate:
            consumer = self._passing = self._make()
            await consumer.start(OPEN_SECONDS)
        self._passing, self._consumer, self.trouble = None, consumer, None
        opened_at = asyncio.get_running_loop().time()
        self._opened(self, consumer)
        self.tried.set()
        error = await consumer._wait_for_failure()
        if asyncio.get_running_loop().time() - opened_at > STABLE_SECONDS:
            self._backoff.reset()
        self._passing = consumer
        await self._close(0.0)
        raise error

    async def _leave(self, timeout_seconds: float) -> None:
        self._task.cancel()
        try:
            await asyncio.wait([self._task])
            if self._passing is not None:
                with suppress(Exception):
                    await self._passing.close(0.0)
            if self._before is not None:  # whoever waits for this one waits for that, too
                await self._before.ended()
        finally:
            self.tried.set()
            await self._close(timeout_seconds)

    async def _close(self, timeout_seconds: float) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await consumer.close(timeout_seconds)
        except Exception as error:
            logger.info("%s was left without goodbye: %s", self.topic, error)
        finally:
            self._closed(consumer)
