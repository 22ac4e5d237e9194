"""One run of the demo: produce hot, then cold; a group of two reads; wait for what must happen."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

from launch.data_directory import RunningServices, alone
from launch.demo.audit import Audit
from launch.demo.events import Event
from launch.demo.observer import Observer
from launch.demo.plan import FAST_SHARE, MERGES_WANTED, SPLITS_WANTED, Plan
from launch.process import LaunchError
from scalable.client import Admin, Endpoint, MessageId, Producer, StreamConsumer
from scalable.domain.errors import TopicNotFound

SUBSCRIPTION = "demo"
PREPARING = "preparing"
PACE_SECONDS = 0.02
LONGEST_CATCH_UP_SECONDS = 0.2
PIPELINE_SECONDS = 360.0
MERGE_SECONDS = 180.0
STALL_SECONDS = 60.0
MAP_SECONDS = 24 * 3600
"""How long segments stay on the map of the topic after they were sealed."""


class Journey:
    """The state of a run, read by the display while it goes on."""

    def __init__(self, plan: Plan, services: RunningServices) -> None:
        self.plan = plan
        self.audit = Audit(plan.events)
        self.phase = PREPARING
        self.sent = 0
        self._services = services
        self._topic = plan.stream.topic
        self._admin = Admin(services.url, services.admin_token)
        self.observer = Observer(self._admin, Endpoint(services.url, services.admin_token), self._topic)
        self._heat_is_over = False
        self._begun = time.monotonic()
        self._progress = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._begun

    async def run(self) -> None:
        """Go through all phases; raises LaunchError when something that must happen does not."""
        lock = self._services.data_directory / f"demo-{self._topic.name}.lock"
        hint = "wait for its end, or let the demo send another stream (--stream)"
        with alone(lock, f"a demo with {self._topic}", hint):
            await self._run()

    async def _run(self) -> None:
        events = asyncio.create_task(asyncio.to_thread(self.plan.stream.read, self.plan.events))
        helpers: list[asyncio.Task[None]] = []
        try:
            await asyncio.to_thread(self._make_topic)
            helpers.append(asyncio.create_task(self.observer.run()))
            helpers.append(asyncio.create_task(self._consume("reader-1")))
            helpers.append(asyncio.create_task(self._join_later()))
            await first_failure(self._travel(await events), helpers)
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._admin.close()

    def _make_topic(self) -> None:
        with suppress(TopicNotFound):
            if "demo" not in self._admin.get_topic(self._topic)["properties"]:
                raise LaunchError(
                    f"{self._topic} was not made by a demo, which would delete it with all its messages;"
                    " delete it yourself, or let the demo send another stream (--stream)"
                )
            self._admin.delete_topic(self._topic, force=True)
        self._admin.create_topic(self._topic, properties={"demo": self._topic.name})
        self._admin.set_policy(self._topic, self.plan.policy)
        self._admin.set_lifetimes(self._topic, retention_seconds=MAP_SECONDS)
        self._admin.create_subscription(self._topic, SUBSCRIPTION)

    async def _travel(self, events: Iterator[Event]) -> None:
        async with Producer(
            self._services.url, self._topic, self._services.admin_token, name="demo"
        ) as producer:
            await self._trickle(producer, events)
            await self._heat(producer, events)
            await self._cool(producer, events)
            self.phase = "flushing"
        self.phase = "reading the rest"
        await self._until_all_consumed()
        await self._wait_for_scaling()
        await self._wait_for_a_report()
        self.phase = "done"

    async def _trickle(self, producer: Producer, events: Iterator[Event]) -> None:
        """Heat is of no use before somebody measures it; a trickle keeps the measuring going."""
        self.phase = "waiting for Spark's first load report"
        measured = asyncio.create_task(
            self.observer.until(
                lambda: self.observer.sight.load_known,
                timeout_seconds=PIPELINE_SECONDS,
                what="a load report of the Spark job (an instance that was started with --no-spark has none)",
            )
        )
        most = self.plan.events // 4
        await self._pace(producer, events, most, self.plan.trickle_rate, enough=measured.done)
        await measured

    async def _heat(self, producer: Producer, events: Iterator[Event]) -> None:
        """Send fast; in the second half only as fast as is needed while splits are late."""
        self.phase = "hot"
        last = self.plan.events - self.plan.cold_events
        fast = int((last - self.sent) * FAST_SHARE)
        await self._pace(producer, events, fast, self.plan.hot_rate)
        if self.plan.wants_scaling:
            rate = self.plan.lasting_rate
            await self._pace(producer, events, last - self.sent, rate, enough=self._has_split_enough)
        await self._pace(producer, events, last - self.sent, self.plan.hot_rate)
        self._heat_is_over = True

    def _has_split_enough(self) -> bool:
        return self.observer.sight.splits >= SPLITS_WANTED

    async def _cool(self, producer: Producer, events: Iterator[Event]) -> None:
        self.phase = "cold"
        await self._pace(producer, events, self.plan.events - self.sent, self.plan.cold_rate)

    async def _pace(
        self,
        producer: Producer,
        events: Iterator[Event],
        count: int,
        rate: float,
        *,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send up to `count` events at `rate` per second; a machine that is slower sets the pace itself."""
        last, due, then = self.sent + count, float(self.sent + 1), time.monotonic()
        while self.sent < last and not enough():
            while self.sent < min(last, int(due)):
                await self._send(producer, next(events))
            await asyncio.sleep(PACE_SECONDS)
            now = time.monotonic()
            # What a busy moment held up is not caught up with: a burst would starve the readers beside it.
            due, then = due + rate * min(now - then, LONGEST_CATCH_UP_SECONDS), now

    async def _send(self, producer: Producer, event: Event) -> None:
        delivered = await producer.submit(event.key, event.value)
        self.sent += 1
        delivered.add_done_callback(lambda done: self._note_durable(event, done))

    def _note_durable(self, event: Event, done: "asyncio.Future[MessageId]") -> None:
        if done.cancelled() or done.exception() is not None:
            self.audit.failures.append(
                f"event {event.number}: {done if done.cancelled() else done.exception()}"
            )
        else:
            self.audit.note_produced(event)

    # Reading

    async def _join_later(self) -> None:
        """Join when there is a segment for a second reader, so that load alone asks for the first split."""
        await self.observer.until(
            lambda: self.observer.active_segments > 1 or self._heat_is_over,
            timeout_seconds=3_600,
            what="a second segment",
        )
        await self._consume("reader-2")

    async def _consume(self, name: str) -> None:
        async with StreamConsumer(
            self._services.url, self._topic, SUBSCRIPTION, self._services.admin_token, name=name
        ) as consumer:
            async for message in consumer:
                self.audit.note_consumed(message.key, int(json.loads(message.value)["number"]))
                consumer.acknowledge(message)
                self._progress = time.monotonic()

    async def _until_all_consumed(self) -> None:
        self._progress = time.monotonic()
        while self.audit.lost:
            if time.monotonic() - self._progress > STALL_SECONDS:
                raise LaunchError(f"nothing arrived for {STALL_SECONDS:.0f} s; {self.audit.lost} are missing")
            await asyncio.sleep(PACE_SECONDS)

    async def _wait_for_scaling(self) -> None:
        if not self.plan.wants_scaling:
            return
        self.phase = "waiting for a merge"
        sight = self.observer.sight
        await self.observer.until(
            lambda: sight.merges >= MERGES_WANTED, timeout_seconds=MERGE_SECONDS, what="a merge by load"
        )

    async def _wait_for_a_report(self) -> None:
        """Where Spark measures already, a short run is over before its own topic was measured."""
        self.phase = "waiting for a load report"
        sight = self.observer.sight
        await self.observer.until(
            lambda: bool(sight.load_reports),
            timeout_seconds=PIPELINE_SECONDS,
            what="a load report of its own",
        )


async def first_failure(work: Coroutine[Any, Any, None], helpers: Sequence[asyncio.Task[None]]) -> None:
    """Run the work to its end, or raise what a helper failed with before."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            running = [helper for helper in helpers if not helper.done()]
            await asyncio.wait([task, *running], return_when=asyncio.FIRST_COMPLETED)
            for helper in helpers:
                if helper.done() and not helper.cancelled() and helper.exception() is not None:
                    helper.result()
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
