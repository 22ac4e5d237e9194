"""This web process as a node: its identity, threads for services, heartbeat and background work."""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings

from scalable.api import bus
from scalable.api.crowds import Crowds
from scalable.api.doorkeeper import doorkeeper
from scalable.api.executor import ServiceExecutor
from scalable.api.leader import LeaderMemory
from scalable.api.sample_feed import SampleFeed
from scalable.api.sampler import sampler
from scalable.services import controller, moves, settling

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
SESSIONS_SECONDS = 1.0


class Node:
    """One per process; an id stands for one life of it, from `start` to `stop`."""

    def __init__(self) -> None:
        self.id = uuid.uuid4()
        self.leader = LeaderMemory(call=self.call, clock=time.monotonic)
        self.crowds = Crowds(self.call)
        self._executor: ServiceExecutor | None = None
        self._feed: SampleFeed | None = None
        self._settled_up_to = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._beaten_at = 0.0
        self._trouble: str | None = "it has not started"

    @property
    def url(self) -> str:
        """Where clients reach this node."""
        return str(settings.SCALABLE_NODE_URL)

    @property
    def trouble(self) -> str | None:
        """Why this node can do no work now, as far as its heartbeat tells; None when it can.

        A heartbeat is a write: a database that is gone, that hangs or that has become read-only shows here.
        """
        late_seconds = self.heartbeat_age_seconds
        if self._trouble is None and late_seconds > settings.SCALABLE_NODE_TIMEOUT_SECONDS:
            return f"its last heartbeat was written {late_seconds:.0f} s ago"
        return self._trouble

    @property
    def heartbeat_age_seconds(self) -> float:
        """Since the last heartbeat that was written, or since the process began."""
        return time.monotonic() - self._beaten_at

    @property
    def unfinished_calls(self) -> int:
        """Count the services that run or wait for a thread."""
        return self._executor.unfinished if self._executor is not None else 0

    async def start(self) -> None:
        """Write the node's row and begin its work; raises what the database raises."""
        for said in settings.SCALABLE_IGNORED_NAMES:
            logger.warning(said)
        self.id = uuid.uuid4()
        self.leader = LeaderMemory(call=self.call, clock=time.monotonic)
        self.crowds = Crowds(self.call)
        self._executor = ServiceExecutor(threads=settings.SCALABLE_EXECUTOR_THREADS)
        await self.call(controller.begin_node, node_id=self.id, url=self.url)
        self._beaten_at, self._trouble = time.monotonic(), None
        self._work("notices", bus.run)
        self._work("doorkeeper", partial(doorkeeper.run, self.call))
        self._work("heartbeat", self._beat, every_seconds=settings.SCALABLE_NODE_HEARTBEAT_SECONDS)
        if settings.SCALABLE_TOPICS_ENABLED:
            self._work_for_topics()

    def _work_for_topics(self) -> None:
        self._work("sessions", self._sweep_sessions, every_seconds=SESSIONS_SECONDS)
        self._work("settling", self._settle_some, every_seconds=settings.SCALABLE_WATCH_RESYNC_SECONDS)
        self._work("torn moves", self._settle_moves, every_seconds=settings.SCALABLE_WATCH_RESYNC_SECONDS)
        self._feed = SampleFeed(node_id=str(self.id))
        self._work("sampler", partial(sampler.run, self._feed, self.call))

    async def stop(self) -> None:
        """End the work and remove the node's row, which frees its leaderships at once."""
        self._trouble = "it is stopping"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._executor is not None:
            await self._take_leave(self._executor)
        self._executor = self._feed = None

    async def _take_leave(self, executor: ServiceExecutor) -> None:
        try:
            if self._feed is not None:
                await sampler.finish(self._feed, executor.call)
            await executor.call(controller.remove_node, node_id=self.id)
        except Exception:
            logger.warning("The node's row stays until its heartbeat is old", exc_info=True)
        await asyncio.to_thread(executor.close)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous service on a thread of the node; raises what it raises, or TooManyRequests."""
        if self._executor is None:
            self._executor = ServiceExecutor(threads=settings.SCALABLE_EXECUTOR_THREADS)
        return await self._executor.call(function, *args, **kwargs)

    async def _beat(self) -> None:
        begun_at = time.monotonic()
        try:
            await self.call(controller.heartbeat_node, node_id=self.id, url=self.url)
        except Exception:
            self._trouble = "its heartbeat cannot be written"
            raise
        self._beaten_at, self._trouble = begun_at, None

    async def _sweep_sessions(self) -> None:
        await self.leader.sweep(node_id=self.id)
        await self.call(settling.force_releases)

    async def _settle_moves(self) -> None:
        await self.call(moves.settle_left_behind)

    async def _settle_some(self) -> None:
        self._settled_up_to = await self.call(settling.sweep, above=self._settled_up_to)

    def _work(
        self, name: str, step: Callable[[], Awaitable[None]], *, every_seconds: float | None = None
    ) -> None:
        self._tasks.append(asyncio.create_task(_forever(name, step, every_seconds), name=name))


async def _forever(name: str, step: Callable[[], Awaitable[None]], every_seconds: float | None) -> None:
    """Repeat a step; one that fails is logged and tried again, for nobody else would notice."""
    pause_seconds = RESTART_SECONDS if every_seconds is None else every_seconds
    while True:
        try:
            await step()
        except Exception:
            logger.exception("The node's %s failed and is tried again", name)
        await asyncio.sleep(pause_seconds)


node = Node()
