"""Many that want the same at once: one read for all who ask, one write for all that wait."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from scalable.api.executor import Call
from scalable.services import assignment, controller, messages, subscriptions
from scalable.services.assignment import Assignments, Refusal, Release
from scalable.services.controller import Leader
from scalable.services.subscriptions import Owned
from scalable.store.subscriptions import AssignmentVersion, SubscriptionView

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

MAX_GATHERED = 1_000
"""So many go into one write at most."""


class SharedReads(Generic[K, T]):
    """Reads for crowds: of one key at most one read runs, and one waits.

    Whoever comes while one runs shares the next: the running one may see the rows of before they came.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}
        self._waiting: dict[K, asyncio.Task[T]] = {}

    async def read(self, key: K, read: Callable[[], Awaitable[T]]) -> T:
        """Give what a read gives that began after this call; raises what it raises."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = asyncio.create_task(self._read(key, read, self._running.get(key)))
            self._waiting[key] = waiting
            # All who asked may have left before it fails: then nobody is told, and nothing is amiss.
            waiting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(waiting)

    async def _read(self, key: K, read: Callable[[], Awaitable[T]], before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        this = self._running[key] = self._waiting.pop(key)
        try:
            return await read()
        finally:
            if self._running.get(key) is this:
                del self._running[key]


class Gathered(Generic[K, T, R]):
    """Writes of crowds: of one key one write runs, and what comes meanwhile goes into the next.

    `write` gives one result for each of what it is given, in its order.
    """

    def __init__(self, write: Callable[[K, Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._write = write
        self._waiting: dict[K, list[tuple[T, asyncio.Future[R]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, key: K, value: T) -> R:
        """Write a value with those that wait, and give its result; raises what the write raises.

        It is written even when the caller is cancelled.
        """
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if key in self._waiting:
            self._waiting[key].append((value, result))
        else:
            self._waiting[key] = [(value, result)]
            task = asyncio.create_task(self._work(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await result

    async def _work(self, key: K) -> None:
        try:
            while waiting := self._waiting[key]:
                self._waiting[key] = waiting[MAX_GATHERED:]
                await self._write_together(key, waiting[:MAX_GATHERED])
        finally:
            for _, future in self._waiting.pop(key):  # some are left only when the node's threads end
                future.cancel()

    async def _write_together(self, key: K, gathered: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write(key, [value for value, _ in gathered])
        except asyncio.CancelledError:  # nobody would ever answer those who wait
            for _, future in gathered:
                future.cancel()
            raise
        except Exception as error:
            for _, future in gathered:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(gathered, results, strict=True):
            if not future.done():
                future.set_result(result)


class Crowds:
    """What the sockets of one node ask and write together; lives on the event loop."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._existence: SharedReads[int, bool] = SharedReads()
        self._owned: SharedReads[int, Owned] = SharedReads()
        self._versions: SharedReads[tuple[Leader, int], AssignmentVersion] = SharedReads()
        self._assignments: SharedReads[tuple[Leader, int], Assignments] = SharedReads()
        self._registrations = Gathered(self._register_all)
        self._releases = Gathered(self._release_all)

    async def topic_exists(self, incarnation: int) -> bool:
        """Tell whether this life of a topic's name goes on."""
        return await self._existence.read(
            incarnation, lambda: self._call(messages.topic_exists, incarnation=incarnation)
        )

    async def owned(self, subscription: SubscriptionView) -> Owned:
        """Tell who owns what of a subscription; raises SubscriptionNotFound."""
        return await self._owned.read(
            subscription.subscription_id,
            lambda: self._call(subscriptions.owned, subscription=subscription),
        )

    async def version(self, leader: Leader, subscription_id: int) -> AssignmentVersion:
        """Tell what assignments are ordered by; raises TermSuperseded, SubscriptionNotFound."""
        read = assignment.assignment_version
        return await self._versions.read(
            (leader, subscription_id),
            lambda: self._call(read, leader=leader, subscription_id=subscription_id),
        )

    async def assignments(self, leader: Leader, subscription_id: int) -> Assignments:
        """Tell what each consumer is assigned; raises TermSuperseded, SubscriptionNotFound."""
        read = assignment.assignments
        return await self._assignments.read(
            (leader, subscription_id),
            lambda: self._call(read, leader=leader, subscription_id=subscription_id),
        )

    async def register(self, leader: Leader, subscription_id: int, consumer: str) -> None:
        """Register a consumer; raises TermSuperseded, SubscriptionNotFound."""
        await self._registrations.write((leader, subscription_id), consumer)

    async def release(self, leader: Leader, subscription_id: int, release: Release) -> Refusal | None:
        """Pass a segment on, or tell why not; raises TermSuperseded, SubscriptionNotFound."""
        return await self._releases.write((leader, subscription_id), release)

    async def _register_all(self, key: tuple[Leader, int], consumers: Sequence[str]) -> Sequence[None]:
        leader, subscription_id = key
        await self._call(
            controller.register_consumers,
            leader=leader,
            subscription_id=subscription_id,
            consumers=consumers,
        )
        return [None] * len(consumers)

    async def _release_all(
        self, key: tuple[Leader, int], releases: Sequence[Release]
    ) -> Sequence[Refusal | None]:
        leader, subscription_id = key
        return await self._call(
            assignment.release_segments, leader=leader, subscription_id=subscription_id, releases=releases
        )
