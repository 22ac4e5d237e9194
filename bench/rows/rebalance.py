"""Rows 10 and 11: what a rebalance costs, and how soon many new segments are read."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import TypeVar
from uuid import uuid4

import numpy
from django.db import connections

from bench.harness import Bench, Comparison, bench_row
from launch.sandbox import LiveNode
from scalable import announce
from scalable.client.connection import Connection, Endpoint, open_connection
from scalable.domain.keyspace import FULL_RANGE
from scalable.domain.names import TopicName
from scalable.domain.operations import Phase
from scalable.domain.subscriptions import BucketKey, assign
from scalable.services import driver, scaling, topics
from scalable.services.driver import Moment
from scalable.wire.frames import PROTOCOL_VERSION, Assignment, Hello, Register, Released
from tasks.apps import enqueue

T = TypeVar("T")

SEGMENTS, CONSUMERS, CHANGED = 65_536, 10_000, 1_000
MEMBERS, BEFORE, ADDED, WIDE = 10, 100, 900, 4
WAIT_SECONDS = 60.0
ALLOWED_SECONDS = 0.5


class Rebalance:
    """Even assignments of all segments, of which a tenth of the consumers leaves and half as many join."""

    def __init__(self) -> None:
        self.keys = [BucketKey(number) for number in Random(10).sample(range(SEGMENTS), SEGMENTS)]
        self.order = numpy.array([key.segment_id for key in self.keys])
        names = [f"consumer-{number}" for number in range(CONSUMERS + CHANGED // 2)]
        self.before = assign(self.keys, names[: CONSUMERS - CHANGED // 2], {})
        self.consumers = names[CHANGED // 2 :]
        self.after: Mapping[BucketKey, str] = {}

    def assign_ms(self) -> float:
        """Assign anew."""
        begun = time.perf_counter()
        self.after = assign(self.keys, self.consumers, self.before)
        return (time.perf_counter() - begun) * 1000

    def sort_ms(self) -> float:
        """Sort the segments' order once."""
        begun = time.perf_counter()
        numpy.argsort(self.order)
        return (time.perf_counter() - begun) * 1000

    @property
    def moves(self) -> int:
        """Count the segments that were taken from a consumer that stayed."""
        living = set(self.consumers)
        return sum(self.before[key] in living and self.before[key] != self.after[key] for key in self.keys)

    @property
    def fewest_moves(self) -> int:
        """Count what no even assignment can leave where it is."""
        base, odd = divmod(len(self.keys), len(self.consumers))
        counts = Counter(self.before.values())
        held = sorted((counts[name] for name in self.consumers), reverse=True)
        return sum(max(0, count - base - (rank < odd)) for rank, count in enumerate(held))

    @property
    def spread(self) -> int:
        """Give the difference between the most and the fewest segments of a consumer."""
        counts = Counter(self.after.values())
        held = [counts[name] for name in self.consumers]
        return max(held) - min(held)


@bench_row(
    number=10,
    title="assign 65,536 segments to 10,000 consumers, of whom 1,000 are new, over one argsort of numpy",
    unit="ms",
    goal="<= 60",
)
def rebalance(bench: Bench) -> Iterator[Comparison]:
    """Time a rebalance; the row fails when it moves more than it must or is uneven."""
    work = Rebalance()
    work.assign_ms()
    if work.moves != work.fewest_moves or work.spread > 1:
        raise AssertionError(f"{work.moves} moves where {work.fewest_moves} do, spread {work.spread}")
    yield bench.compare(
        "pure Python",
        floor=work.sort_ms,
        product=work.assign_ms,
        note=f"{work.moves:,} moves, the lower bound is {work.fewest_moves:,} (1.00x); spread {work.spread}",
    )


async def beside(work: Callable[[], T]) -> T:
    """Work with the database in a thread of its own, which gives its connection back."""

    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


class Member:
    """A consumer's session with the controller, and the newest assignment that it was told."""

    def __init__(self, connection: Connection, changed: asyncio.Event) -> None:
        self._connection, self._changed = connection, changed
        self.generations: dict[int, int] = {}
        self.releasing: list[tuple[int, int]] = []

    async def follow(self) -> None:
        """Take assignments, and give up at once what is asked for, until cancelled."""
        while True:
            frame = await self._connection.receive()
            if isinstance(frame, Assignment):
                self.generations = {each.segment_id: each.generation for each in frame.segments}
                self.releasing = frame.releasing
                self._changed.set()
                for segment_id, _ in frame.releasing:
                    generation = self.generations[segment_id]
                    await self._connection.send(Released(segment_id=segment_id, generation=generation))


class Group:
    """Ten members of one subscription of a topic with four wide segments and many narrow ones."""

    def __init__(self, node: LiveNode) -> None:
        self._endpoint = Endpoint(node.url, node.admin_token)
        self.name = TopicName("public", "default", f"bench-{uuid4()}")
        self.members: list[Member] = []
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Group":
        await beside(partial(topics.create_topic, name=self.name, actor="bench"))
        lower, upper = FULL_RANGE.midpoint_split()
        parts = [*lower.parts(WIDE), *upper.parts(BEFORE - WIDE)]
        await beside(partial(self.split, 0, [part.start for part in parts[1:]]))
        for number in range(MEMBERS):
            await self._join(f"member-{number}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _join(self, consumer: str) -> None:
        hello = Hello(protocol=PROTOCOL_VERSION, consumer=consumer)
        connection = await open_connection(self._endpoint, "controller", self.name, "s", hello=hello)
        member = Member(connection, self._changed)
        self.members.append(member)
        task = asyncio.create_task(member.follow())
        self._stack.push_async_callback(connection.close)
        self._stack.callback(task.cancel)
        await connection.send(Register())

    async def until_stable(self, segments: int) -> None:
        """Wait until each member has its equal share of so many segments, of which none changes hands."""
        share = segments // MEMBERS
        async with asyncio.timeout(WAIT_SECONDS):
            while any(member.releasing or len(member.generations) != share for member in self.members):
                self._changed.clear()
                await self._changed.wait()

    async def grow(self) -> list[float]:
        """Split the wide segments at once and give the moments of the commits of the layout."""
        gate = threading.Barrier(WIDE)
        wide = FULL_RANGE.midpoint_split()[0].parts(WIDE)
        cuts = [[part.start for part in each.parts(ADDED // WIDE + 1)][1:] for each in wide]
        splits = (
            beside(partial(self.split, number, boundaries, gate))
            for number, boundaries in enumerate(cuts, start=1)
        )
        return sorted(await asyncio.gather(*splits))

    def split(self, segment_id: int, boundaries: list[int], gate: threading.Barrier | None = None) -> float:
        """Split a segment, its commit together with all at the gate, and give the moment of the commit."""
        committed_at = [0.0]

        def probe(phase: Phase, moment: Moment) -> None:
            if gate is not None and (phase, moment) == (Phase.PARENTS_TERMINATED, Moment.AFTER_RECORDING):
                gate.wait(WAIT_SECONDS)
            if (phase, moment) == (Phase.COMMITTED, Moment.AFTER_RECORDING):
                committed_at[0] = time.perf_counter()

        operation = scaling.request_split(
            name=self.name, segment_id=segment_id, boundaries=boundaries, actor="bench"
        )
        driver.drive_operation(operation_id=operation.operation_id, runner="bench", probe=probe)
        return committed_at[0]


async def seconds_to_stable(node: LiveNode, commit: int) -> float:
    """Split the wide segments and give the time from one of the commits until all know what they read."""
    async with Group(node) as group:
        await group.until_stable(BEFORE)
        before = [dict(member.generations) for member in group.members]
        committed_at = (await group.grow())[commit]
        await group.until_stable(BEFORE + ADDED)
        seconds = time.perf_counter() - committed_at
        for member, known in zip(group.members, before, strict=True):
            kept = {key: generation for key, generation in known.items() if key > WIDE}
            if not kept.items() <= member.generations.items():
                raise AssertionError("a segment that was not split was taken from its consumer")
        return seconds


def _measured(node: LiveNode, commit: int) -> float:
    return asyncio.run(seconds_to_stable(node, commit))


@bench_row(
    number=11,
    title="10 consumers, 900 segments more: from the layout's commit to stable assignments, over 0.5 s",
    unit="s",
    goal="<= 1",
)
def grown(bench: Bench) -> Iterator[Comparison]:
    """Grow a topic by 900 segments under a group of ten.

    It takes four splits, since one has 256 children at most.
    """
    announce.silence(enqueue)
    node = bench.node()
    for commit, which in ((0, "first"), (WIDE - 1, "last")):
        yield bench.compare(
            f"{BEFORE} segments before, from the {which} of four commits",
            floor=lambda: ALLOWED_SECONDS,
            product=partial(_measured, node, commit),
            note="the floor is the time allowed; four splits of 226 children are committed one after another;"
            " what was not split keeps its owner and generation, so that nothing of it is detached or"
            " delivered again",
        )
