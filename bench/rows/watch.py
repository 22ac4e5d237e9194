"""Rows 2, 4 and 5: a split told to many watchers, the cost of telling, and deltas over the full DAG."""

import asyncio
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import psutil
from django.db import transaction

from bench.harness import Bench, Comparison, bench_row
from bench.hint import CommitAndHint
from bench.listeners import Crowd
from launch.ports import HOST, free_port
from launch.process import ManagedProcess, ProcessSpec
from launch.sandbox import LiveNode
from launch.services import server_argv, serves
from scalable import announce
from scalable.domain.names import TopicName
from scalable.services import topics
from scalable.store import topics as store
from scalable.store.clock import database_now, milliseconds
from scalable.wire.frames import PROTOCOL_VERSION, Hello, encode

T = TypeVar("T")

ACTOR = "bench"
CROWDS = (1_000, 5_000)
PUSHES_PER_ROUND = 20
SEGMENTS_OF_A_LARGE_TOPIC = 1_000
LIMIT_SECONDS = 120.0
HELLO = encode(Hello(protocol=PROTOCOL_VERSION, session_id="bench"))


class Loop:
    """An event loop in a thread, for the clients."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and give its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_SECONDS)


def commit_split(name: TopicName) -> None:
    """Commit the layout of a split of the widest segment, and nothing else that a split does."""
    with transaction.atomic():
        topic = store.lock(name)
        widest = max(topic.layout.active, key=lambda segment: segment.hash_range.size)
        plan = topic.layout.plan_split(widest.segment_id)
        layout = topic.layout.reserve(plan).apply(plan, now_ms=milliseconds(database_now()))
        revision = store.write_layout(topic, layout)
        announce.publish(announce.TopicChanged(topic.incarnation, str(name), revision))


def watch_url(node: LiveNode, name: TopicName) -> str:
    """The address of a topic's watch."""
    return f"{node.socket_url}/ws/v2/scalable/lookup/{name.path}"


def processor_seconds(pid: int) -> float:
    """What a process has used of the processor so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cost_per_frame(pid: int, crowd: Crowd, size: int, push: Callable[[], None], loop: Loop) -> float:
    """Microseconds of the server's processor per delivered frame, over the pushes of one round."""
    before = processor_seconds(pid)
    for _ in range(PUSHES_PER_ROUND):
        crowd.expect(size)
        push()
        loop.run(crowd.enough())
    return (processor_seconds(pid) - before) * 1e6 / (PUSHES_PER_ROUND * size)


def post(url: str) -> None:
    """Send an empty POST."""
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=LIMIT_SECONDS):
        pass


WATCHERS = 1_000


@bench_row(
    number=2,
    title="split to 1,000 watchers holding the new epoch, over a commit, a hint and a raw broadcast",
    unit="s",
    goal="<= 1.5",
)
def told(bench: Bench) -> Iterator[Comparison]:
    """From the begin of the committing transaction until the last of the watchers has the delta."""
    hint = CommitAndHint(bench)
    with crowds(bench, TopicName("public", "default", "told"), WATCHERS) as both:

        def floor() -> None:
            hint.once()
            both.broadcast()

        yield bench.compare(
            f"{both.frame_bytes} bytes a frame",
            floor=partial(seconds_until_told, both.floor, floor, both.loop),
            product=partial(seconds_until_told, both.ours, both.split, both.loop),
            note="the commit alone is a dozen statements; then the node reads the topic and builds the frame",
        )
    hint.close()


def seconds_until_told(crowd: Crowd, push: Callable[[], None], loop: Loop) -> float:
    """Seconds from the start of one push until everybody was told; the median of a round's pushes."""
    times = []
    for _ in range(PUSHES_PER_ROUND):
        crowd.expect(WATCHERS)
        started = time.perf_counter()
        push()
        loop.run(crowd.enough())
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@bench_row(
    number=4,
    title="fan-out: server processor time per delivered frame over a bare send loop",
    unit="microseconds",
    goal="<= 1.25",
)
def fan_out(bench: Bench) -> Iterator[Comparison]:
    """Splits told to a crowd of watchers, against one ready frame sent to as many sockets."""
    for crowd_size in CROWDS:
        yield _fan_out_to(bench, crowd_size)


def _fan_out_to(bench: Bench, size: int) -> Comparison:
    with crowds(bench, TopicName("public", "default", f"fan-out-{size}"), size) as both:
        node, bare = both.node.process.pid, both.bare.pid
        return bench.compare(
            f"{size:,} sockets, {both.frame_bytes} bytes a frame",
            floor=lambda: cost_per_frame(bare, both.floor, size, both.broadcast, both.loop),
            product=lambda: cost_per_frame(node, both.ours, size, both.split, both.loop),
            note="ours includes the node's reading of the topic for each split, and its heartbeat and sweeps",
        )


@dataclass(frozen=True)
class Crowds:
    """As many watchers of a topic as listeners of a bare server with one ready frame of the same size."""

    name: TopicName
    loop: Loop
    node: LiveNode
    bare: ManagedProcess
    bare_url: str
    ours: Crowd
    floor: Crowd
    frame_bytes: int

    def split(self) -> None:
        """Commit a split of the watched topic."""
        commit_split(self.name)

    def broadcast(self) -> None:
        """Have the bare server send its frame to everybody."""
        post(f"{self.bare_url}/push")


@contextmanager
def crowds(bench: Bench, name: TopicName, size: int) -> Iterator[Crowds]:
    """Open both crowds for as long as the block lasts."""
    topics.create_topic(name=name, actor=ACTOR)
    node, port = bench.node(), free_port()
    bare_url = f"http://{HOST}:{port}"
    with Loop() as loop:
        ours, floor = Crowd(), Crowd()
        loop.run(ours.open(size, watch_url(node, name), token=node.admin_token, hello=HELLO, greetings=2))
        frame_bytes = told_of_a_split(name, ours, size, loop)
        bare = bench.processes.run(
            ProcessSpec(
                name="bare",
                argv=server_argv("bench.bare:application", port=port),
                environment={"BARE_FRAME_BYTES": str(frame_bytes)},
                ready=lambda: serves(f"{bare_url}/livez"),
            )
        )
        loop.run(floor.open(size, bare_url.replace("http", "ws", 1), token="", hello=None, greetings=0))
        yield Crowds(name, loop, node, bare, bare_url, ours, floor, frame_bytes)
        loop.run(ours.close())
        loop.run(floor.close())


def told_of_a_split(name: TopicName, crowd: Crowd, size: int, loop: Loop) -> int:
    """Split, wait until everybody was told, and give the bytes of the frame."""
    crowd.expect(size)
    commit_split(name)
    return loop.run(crowd.enough())


@bench_row(
    number=5,
    title="bytes pushed per split of a topic of 1,000 segments, over the full DAG",
    unit="bytes",
    goal="<= 0.02",
)
def pushed_bytes(bench: Bench) -> Iterator[Comparison]:
    """What one watcher is sent for a split, against the snapshot that a newcomer is sent."""
    name = TopicName("public", "default", "large")
    topics.create_topic(name=name, initial_segments=SEGMENTS_OF_A_LARGE_TOPIC, actor=ACTOR)
    node = bench.node()

    async def joined() -> Crowd:
        crowd = Crowd()
        await crowd.open(1, watch_url(node, name), token=node.admin_token, hello=HELLO, greetings=2)
        return crowd

    with Loop() as loop:
        watcher = loop.run(joined())

        def full_dag() -> float:
            newcomer = loop.run(joined())
            loop.run(newcomer.close())
            return float(newcomer.last_bytes)

        yield bench.compare(
            "one split, one watcher",
            floor=full_dag,
            product=lambda: float(told_of_a_split(name, watcher, 1, loop)),
        )
        loop.run(watcher.close())
