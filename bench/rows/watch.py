"""Rows 4 and 5: fan-out of the DAG watch over a bare send loop, and deltas over the full DAG."""

import asyncio
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Self, TypeVar

import psutil
from websockets.asyncio.client import ClientConnection, connect

from bench.harness import Bench, Comparison, bench_row
from launch.ports import HOST, free_port
from launch.process import ProcessSpec
from launch.sandbox import LiveNode
from launch.services import server_argv, serves
from scalable.domain.names import TopicName
from scalable.services import driver, scaling, topics
from scalable.wire.frames import PROTOCOL_VERSION, SUBPROTOCOL, Hello, encode

T = TypeVar("T")

ACTOR = "bench"
CROWDS = (1_000, 5_000)
PUSHES_PER_ROUND = 10
CONNECTING_AT_ONCE = 50
SEGMENTS_OF_A_LARGE_TOPIC = 1_000
LIMIT_SECONDS = 120.0


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


class Crowd:
    """Many open sockets of one server, all of which are told the same."""

    def __init__(self) -> None:
        self._sockets: list[ClientConnection] = []

    async def open(self, count: int, url: str, *, hello: str | None, token: str, greetings: int) -> None:
        """Open so many sockets, and take from each the frames that greet it."""
        places = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def one() -> None:
            async with places:
                socket = await connect(
                    url,
                    additional_headers={"Authorization": f"Bearer {token}"},
                    subprotocols=[SUBPROTOCOL] if hello else None,  # type: ignore[list-item]
                    compression=None,
                    max_size=None,
                    ping_interval=None,
                    proxy=None,
                )
                if hello:
                    await socket.send(hello)
                for _ in range(greetings):
                    await socket.recv()
                self._sockets.append(socket)

        await asyncio.gather(*(one() for _ in range(count)))

    async def hear(self) -> int:
        """Take one frame from each socket; give the size of the last."""
        frames = await asyncio.gather(*(socket.recv() for socket in self._sockets))
        return len(frames[-1])

    async def close(self) -> None:
        """Leave."""
        await asyncio.gather(*(socket.close() for socket in self._sockets))


def split_widest(name: TopicName) -> None:
    """Split the widest active segment here and now."""
    widest = max(topics.get_topic(name=name).layout.active, key=lambda segment: segment.hash_range.size)
    operation = scaling.request_split(name=name, segment_id=widest.segment_id, actor=ACTOR)
    driver.drive_operation(operation_id=operation.operation_id, runner=ACTOR)


def watch_url(node: LiveNode, name: TopicName) -> str:
    """The address of a topic's watch."""
    return f"{node.socket_url}/ws/v2/scalable/lookup/{name.path}"


def processor_seconds(pid: int) -> float:
    """What a process has used of the processor so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cost_per_frame(
    pid: int, crowd_size: int, push: Callable[[], None], hear: Callable[[], Awaitable[int]], loop: Loop
) -> float:
    """Microseconds of the server's processor per delivered frame, over the pushes of one round."""
    before = processor_seconds(pid)
    for _ in range(PUSHES_PER_ROUND):
        push()
        loop.run(_settle(hear))
    return (processor_seconds(pid) - before) * 1e6 / (PUSHES_PER_ROUND * crowd_size)


async def _settle(hear: Callable[[], Awaitable[int]]) -> None:
    await hear()


def post(url: str) -> None:
    """Send an empty POST."""
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=LIMIT_SECONDS):
        pass


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


def _fan_out_to(bench: Bench, crowd_size: int) -> Comparison:
    name = TopicName("public", "default", f"fan-out-{crowd_size}")
    topics.create_topic(name=name, actor=ACTOR)
    node, port = bench.node(), free_port()
    bare_url = f"http://{HOST}:{port}"
    with Loop() as loop:
        ours, floor = Crowd(), Crowd()
        hello = encode(Hello(protocol=PROTOCOL_VERSION, session_id="bench"))
        loop.run(
            ours.open(crowd_size, watch_url(node, name), hello=hello, token=node.admin_token, greetings=2)
        )
        split_widest(name)
        frame_bytes = loop.run(ours.hear())
        bare = bench.processes.run(
            ProcessSpec(
                name="bare",
                argv=server_argv("bench.bare:application", port=port),
                environment={"BARE_FRAME_BYTES": str(frame_bytes)},
                ready=lambda: serves(f"{bare_url}/livez"),
            )
        )
        loop.run(floor.open(crowd_size, bare_url.replace("http", "ws", 1), hello=None, token="", greetings=0))
        comparison = bench.compare(
            f"{crowd_size:,} sockets, {frame_bytes} bytes a frame",
            floor=lambda: cost_per_frame(
                bare.pid, crowd_size, lambda: post(f"{bare_url}/push"), floor.hear, loop
            ),
            product=lambda: cost_per_frame(
                node.process.pid, crowd_size, lambda: split_widest(name), ours.hear, loop
            ),
            note="ours includes reading the topic anew, three times for each split",
        )
        loop.run(ours.close())
        loop.run(floor.close())
    return comparison


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
    hello = encode(Hello(protocol=PROTOCOL_VERSION, session_id="bench"))

    async def full_dag() -> int:
        newcomer = Crowd()
        await newcomer.open(1, watch_url(node, name), hello=hello, token=node.admin_token, greetings=1)
        size_bytes = await newcomer.hear()
        await newcomer.close()
        return size_bytes

    with Loop() as loop:
        watcher = Crowd()
        loop.run(watcher.open(1, watch_url(node, name), hello=hello, token=node.admin_token, greetings=2))

        def told() -> float:
            split_widest(name)
            return float(loop.run(watcher.hear()))

        yield bench.compare("one split, one watcher", floor=lambda: float(loop.run(full_dag())), product=told)
        loop.run(watcher.close())
