"""Row 3: what a split costs the producers of the split range, and those of the others."""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any, Self
from uuid import uuid4

import psycopg

from bench.harness import Bench, Comparison, bench_row
from bench.produce import ProduceSocket
from bench.splitting import Splitter
from launch.sandbox import LiveNode
from launch.services import worker_spec
from scalable import announce
from scalable.client import BatchLimits, Producer
from scalable.domain.keyspace import key_hash, segment_hash
from scalable.domain.names import TopicName
from scalable.services import topics
from tasks.apps import enqueue

SPLITS_PER_ROUND = 10
FLOORS_PER_ROUND = 50
QUIET_SECONDS = 2.0
PAUSE_SECONDS = 0.1
"""Between two splits, so that each is measured for itself."""


class SplitUnderLoad:
    """A topic of two segments of which one is split and split again; one key of each is sent all the time."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self.name = TopicName("public", "default", f"bench-{uuid4()}")
        self._low, self._high = (_key_of(half) for half in (0, 1))
        self.sends: dict[str, list[tuple[float, float]]] = {self._low: [], self._high: []}

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(topics.create_topic, name=self.name, actor="bench")
        self._splitter = Splitter(self.name)
        await asyncio.to_thread(self._splitter.split, 0)
        limits = BatchLimits(linger_seconds=0.0)
        self._producer = Producer(self._node.url, self.name, self._node.admin_token, limits=limits)
        await self._producer.start()
        self._senders = [asyncio.create_task(self._send(key)) for key in (self._low, self._high)]
        await asyncio.sleep(PAUSE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        await self._producer.close()
        await asyncio.to_thread(self._splitter.close)

    async def _send(self, key: str) -> None:
        while True:
            started = time.perf_counter()
            await self._producer.send(key, b"value")
            self.sends[key].append((started, time.perf_counter()))

    async def split(self) -> float:
        """Split the segment of the low key; give the longest send that met the split, in seconds."""
        started = time.perf_counter()
        await asyncio.to_thread(self._splitter.split, segment_hash(key_hash(self._low)))
        split_at = time.perf_counter()
        while not any(begun >= split_at for begun, _ in self.sends[self._low][-1:]):
            await asyncio.sleep(PAUSE_SECONDS)
            if self._senders[0].done():
                await self._senders[0]
        return max(end - begun for begun, end in self.sends[self._low] if end >= started)

    def others(self, since: float) -> list[float]:
        """Give the durations of the sends to the other range that began later."""
        return [end - begun for begun, end in self.sends[self._high] if begun >= since]


def _key_of(half: int) -> str:
    keys = (f"key-{number}" for number in count())
    return next(key for key in keys if segment_hash(key_hash(key)) >> 15 == half)


def percentile_99(values: list[float]) -> float:
    """Give the value that one in a hundred exceeds."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


async def pauses_p99(node: LiveNode) -> float:
    """Split a range some times and give the 99th percentile of its producers' pauses, in seconds."""
    async with SplitUnderLoad(node) as load:
        return percentile_99([await load.split() for _ in range(SPLITS_PER_ROUND)])


async def others_p99(node: LiveNode, *, splitting: bool) -> float:
    """Give the 99th percentile of sends to a range that is not split."""
    async with SplitUnderLoad(node) as load:
        since = time.perf_counter()
        while time.perf_counter() < since + QUIET_SECONDS:
            await (load.split() if splitting else asyncio.sleep(PAUSE_SECONDS))
        return percentile_99(load.others(since))


async def floor_p99(bench: Bench, node: LiveNode) -> float:
    """Give the 99th percentile of one durable commit and two round trips on a socket of the node."""
    topic = TopicName("public", "default", f"bench-{uuid4()}")
    await asyncio.to_thread(topics.create_topic, name=topic, actor="bench")
    async with (
        await psycopg.AsyncConnection.connect(bench.database_url, autocommit=True) as database,
        ProduceSocket(node, topic, producer="floor") as socket,
    ):
        times = []
        for _ in range(FLOORS_PER_ROUND):
            started = time.perf_counter()
            await database.execute("UPDATE bench_pause SET value = value + 1")
            for _ in range(2):
                await socket.round_trip()
            times.append(time.perf_counter() - started)
        return percentile_99(times)


@bench_row(
    number=3,
    title="producer pause on the split range over one commit and two WebSocket round trips",
    unit="s",
    goal="<= 5",
)
def pause(bench: Bench) -> Iterator[Comparison]:
    """Send one key all the time while its segment is split; then watch a key of another segment."""
    announce.silence(enqueue)
    announce.listen(enqueue)
    bench.processes.run(worker_spec(environment={"REDIS_URL": bench.redis_url}, name="bench-pause"))
    with psycopg.connect(bench.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bench_pause AS SELECT 1 AS id, 0 AS value")
    node = bench.node()
    with asyncio.Runner() as runner:

        def run(measure: Callable[[], Coroutine[Any, Any, float]]) -> float:
            return runner.run(measure())

        yield bench.compare(
            "split range, p99",
            floor=partial(run, partial(floor_p99, bench, node)),
            product=partial(run, partial(pauses_p99, node)),
            note="a pause is the whole of the longest send that met the split",
        )
        yield bench.compare(
            "other ranges, p99 over the same when nothing is split",
            floor=partial(run, partial(others_p99, node, splitting=False)),
            product=partial(run, partial(others_p99, node, splitting=True)),
            note="the split runs on the same two cores",
            goal="<= 1.1",
        )
    announce.silence(enqueue)
