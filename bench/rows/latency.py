"""Row 9: from a producer's send to the consumer's receipt, over one durable commit and one hint."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from bench.harness import Bench, Comparison, bench_row
from bench.hint import CommitAndHint
from launch.sandbox import LiveNode
from scalable.domain.names import TopicName
from scalable.services import topics
from scalable.wire.batch import Record, encode_batch
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    Ack,
    Assignment,
    Attach,
    Frame,
    Hello,
    Publish,
    Register,
    ServerFrame,
    decode,
    decoder,
    encode,
    encode_publish,
)

MESSAGES = 200
WARM_UP_MESSAGES = 50
VALUE = bytes(200)
TOPIC = TopicName("public", "default", "latency")

_decoder = decoder(ServerFrame)


class ProduceAndConsume:
    """The product: a produce socket and a consume socket of one node, frames only."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._stack = AsyncExitStack()
        self._next = 0

    async def __aenter__(self) -> Self:
        path = f"{TOPIC.path}/bench"
        self._producer = await self._open(f"produce/{TOPIC.path}")
        control = await self._open(f"controller/{path}")
        await control.send(encode(Register()))
        assignment = await _control_frame(control)
        if not isinstance(assignment, Assignment):
            raise TypeError(f"expected an assignment, got {assignment}")
        self._generation = assignment.segments[0].generation
        self._consumer = await self._open(f"consume/{path}")
        await self._consumer.send(encode(Attach(segment_id=0, generation=self._generation, permits=10_000)))
        await self.round(max, messages=WARM_UP_MESSAGES)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def round(
        self, percentile: Callable[[Sequence[float]], float], *, messages: int = MESSAGES
    ) -> float:
        """Send and receive some messages, one after the other, then acknowledge them."""
        times = [await self._once() for _ in range(messages)]
        ack = Ack(segment_id=0, generation=self._generation, position=self._next)
        await self._consumer.send(encode(ack))
        await self._consumer.recv()
        flow = f'{{"type":"flow","segment_id":0,"permits":{messages}}}'
        await self._consumer.send(flow)
        return percentile(times)

    async def _once(self) -> float:
        record = Record("key", VALUE, self._next, 0)
        frame = encode_publish(Publish(self._next, 0, False, encode_batch([record], published_at_ms=0)))
        self._next += 1
        started = time.perf_counter()
        await self._producer.send(frame)
        await self._consumer.recv()
        elapsed = time.perf_counter() - started
        await self._producer.recv()
        return elapsed

    async def _open(self, path: str) -> ClientConnection:
        connection = await self._stack.enter_async_context(
            connect(
                f"{self._node.socket_url}/ws/v2/scalable/{path}",
                additional_headers=self._node.headers,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                proxy=None,
            )
        )
        await connection.send(encode(Hello(protocol=PROTOCOL_VERSION, producer="bench", consumer="bench")))
        await connection.recv()
        return connection


async def _control_frame(connection: ClientConnection) -> Frame:
    return decode(_decoder, await connection.recv())


def _run(
    runner: asyncio.Runner, product: ProduceAndConsume, percentile: Callable[[Sequence[float]], float]
) -> float:
    return runner.run(product.round(percentile))


def _percentile_99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


@bench_row(
    number=9,
    title="append-to-consumer latency over one commit and one hint",
    unit="s",
    goal="<= 3",
)
def latency(bench: Bench) -> Iterator[Comparison]:
    """Time single messages; the hundredth slowest has a goal of its own, 10 times the floor's."""
    topics.create_topic(name=TOPIC, actor="bench")
    floor = CommitAndHint(bench)
    with asyncio.Runner() as runner:
        product = ProduceAndConsume(bench.node())
        runner.run(product.__aenter__())
        for label, percentile, goal in (("p50", statistics.median, None), ("p99", _percentile_99, "<= 10")):
            yield bench.compare(
                label,
                floor=partial(floor.round, percentile, times=MESSAGES),
                product=partial(_run, runner, product, percentile),
                goal=goal,
            )
        runner.run(product.__aexit__())
    floor.close()
