"""The producer's outbox against a model server: nothing lost, doubled or out of order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.client.batches import Batch, BatchLimits, Entry, MessageId
from scalable.client.outbox import Outbox, Settled
from scalable.client.outgoing import MessageLimits, make_entry
from scalable.client.topology import Topology, with_successors
from scalable.domain.errors import BatchTooLarge, ScalableError, SegmentTerminated, StreamBroken
from scalable.domain.keyspace import key_hash, segment_hash
from scalable.domain.operations import OperationKind
from scalable.wire.frames import SegmentFrame
from tests.client.model import ModelServer

KEYS = [f"key-{number}" for number in range(24)]


class World:
    """An outbox, a server, a wire between them that can be cut, and a layout that arrives late."""

    def __init__(self, seed: int, permits: int = 8) -> None:
        self.random = Random(seed)
        self.server = ModelServer()
        self.outbox = Outbox(BatchLimits(max_records=5, max_bytes=1 << 20, linger_seconds=0.0))
        self.routes = self.server.topology()
        self.outbox.set_topology(self.routes)
        self.permits = permits
        self.to_server: deque[Batch] = deque()
        self.to_client: deque[tuple[Batch, int | ScalableError]] = deque()
        self.sent: dict[str | None, list[bytes]] = {}
        self.settled: Counter[bytes] = Counter()
        self.told = self.random.choice([0.0, 0.5, 1.0])
        self.told_late: list[Topology] = []
        self.now = 0.0
        self.number = 0

    def add(self) -> None:
        key = self.random.choice(KEYS) if self.random.random() < 0.8 else None
        value = str(self.number).encode()
        self.number += 1
        self.sent.setdefault(key, []).append(value)
        hash16 = 0 if key is None else segment_hash(key_hash(key))
        self.outbox.add(Entry(key=key, value=value, hash16=hash16, added_at=self.now))

    def take(self) -> None:
        batch = self.outbox.take(self.now, self.permits)
        if batch is not None:
            self.to_server.append(batch)
        assert self.outbox.in_flight_count <= self.permits

    def serve(self) -> None:
        if self.to_server:
            batch = self.to_server.popleft()
            self.to_client.append((batch, self.server.publish(batch)))

    def answer(self) -> None:
        if self.to_client:
            batch, answer = self.to_client.popleft()
            self._note(self._settle(batch, answer))

    def _settle(self, batch: Batch, answer: int | ScalableError) -> list[Settled]:
        if isinstance(answer, int):
            return self.outbox.on_receipt(batch.segment_id, batch.request_id, answer, duplicate=answer < 0)
        body = answer.to_json()
        settled = self.outbox.on_refused(batch.segment_id, batch.request_id, answer.code, body, self.now)
        if isinstance(answer, SegmentTerminated) and self.random.random() < self.told:
            successors = msgspec.convert(answer.successors, list[SegmentFrame])
            self._route_by(with_successors(self.routes, answer.epoch, successors))
        return settled

    def _route_by(self, topology: Topology | None) -> None:
        if topology is not None and topology.epoch >= self.routes.epoch:
            self.routes = topology
            self.outbox.set_topology(topology)

    def _note(self, outcomes: list[Settled]) -> None:
        for settled in outcomes:
            assert isinstance(settled.result, MessageId)
            self.settled[settled.entry.value] += 1

    def reshape(self) -> None:
        active = [segment.segment_id for segment in self.server.layout.active]
        if len(active) > 1 and self.random.random() < 0.5:
            at = self.random.randrange(len(active) - 1)
            self.server.reshape(OperationKind.MERGE, active[at : at + self.random.choice([2, 3])])
        elif len(active) < 8:
            self.server.reshape(OperationKind.SPLIT, [self.random.choice(active)])

    def learn(self) -> None:
        """The watch tells a layout, of now or of a while ago."""
        self.told_late.append(self.server.topology())
        late = self.random.randrange(len(self.told_late))
        self._route_by(self.told_late[late])
        del self.told_late[: late + 1]

    def cut_wire(self) -> None:
        """Some of what was sent is still processed by the server, none of the answers arrives."""
        for _ in range(self.random.randint(0, len(self.to_server))):
            self.serve()
        self.to_server.clear()
        self.to_client.clear()
        self.server.broken.clear()
        self.outbox.on_connection_lost()

    def finish(self) -> None:
        """Let everything happen until nothing is left; a stuck outbox fails."""
        self._route_by(self.server.topology())
        for _ in range(20_000):
            self.now += 0.1
            self.take()
            self.serve()
            self.answer()
            if sum(self.settled.values()) == self.number:
                return
        raise AssertionError(f"{self.number - sum(self.settled.values())} entries are stuck")

    def check(self) -> None:
        stored = self.server.stored()
        assert set(stored) == set(self.sent)
        for key, values in self.sent.items():
            if key is None:
                assert sorted(stored[None]) == sorted(values)
            else:
                assert stored[key] == values, key
        assert set(self.settled.values()) <= {1}


STEPS = {
    World.add: 30,
    World.take: 12,
    World.serve: 12,
    World.answer: 12,
    World.reshape: 2,
    World.learn: 2,
    World.cut_wire: 1,
}


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 600), most_records=st.integers(1, 5))
def test_nothing_is_lost_doubled_or_out_of_order(seed: int, steps: int, most_records: int) -> None:
    world = World(seed)
    world.server.most_records = most_records
    for step in world.random.choices(list(STEPS), weights=list(STEPS.values()), k=steps):
        step(world)
    world.finish()
    world.check()


class NumberedWorld(World):
    """The application numbers its messages, with gaps; it dies and sends again what it saw no answer for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.log: list[tuple[str | None, bytes, int, int]] = []

    def add(self) -> None:
        key = self.random.choice(KEYS) if self.random.random() < 0.8 else None
        value = str(self.number).encode()
        self.number += 1
        sequence = self.log[-1][2] + self.random.choice([1, 1, 1, 700]) if self.log else 0
        due_ms = self.random.choice([0, 0, 0, 5])
        self.sent.setdefault(key, []).append(value)
        self.log.append((key, value, sequence, due_ms))
        self._put(self.log[-1])

    def _put(self, message: tuple[str | None, bytes, int, int]) -> None:
        key, value, sequence, due_ms = message
        entry = make_entry(key, value, handle=None, limits=MessageLimits(100, 1_000), sequence=sequence)
        entry.added_at, entry.deliver_at_ms = self.now, due_ms
        self.outbox.add(entry)

    def take(self) -> None:
        super().take()
        if self.to_server:
            assert len({entry.deliver_at_ms for entry in self.to_server[-1].entries}) == 1

    def die(self) -> None:
        self.cut_wire()
        self.outbox = Outbox(BatchLimits(max_records=5, max_bytes=1 << 20, linger_seconds=0.0))
        self.routes = self.server.topology()
        self.outbox.set_topology(self.routes)
        for message in self.log:
            if not self.settled[message[1]]:
                self._put(message)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 600), most_records=st.integers(1, 5))
def test_numbers_of_the_application_survive_its_death(seed: int, steps: int, most_records: int) -> None:
    world = NumberedWorld(seed)
    world.server.most_records = most_records
    weights: dict[Callable[..., None], int] = {**STEPS, NumberedWorld.die: 1}
    for step in world.random.choices(list(weights), weights=list(weights.values()), k=steps):
        getattr(world, step.__name__)()
    world.finish()
    world.check()


def test_a_seal_under_full_flight_costs_no_more_than_one_refusal_per_batch() -> None:
    world = World(seed=7, permits=64)
    world.told = 0.0
    for _ in range(500):
        world.add()
    for _ in range(64):
        world.take()
    world.server.reshape(OperationKind.SPLIT, [0])
    refused = 0
    while world.to_server:
        world.serve()
        refused += isinstance(world.to_client[-1][1], ScalableError)
        world.answer()
    assert refused == 64
    assert world.outbox.take(world.now, 64) is None, "nothing is sent before the new layout is known"
    world.finish()
    world.check()


def test_a_message_that_a_seal_refused_is_new_wherever_it_goes() -> None:
    """Another producer of the name stored a higher number there: its mark says nothing of this message."""
    world = World(seed=3)
    world.add()
    world.take()
    world.server.reshape(OperationKind.SPLIT, [0])
    world.serve()
    world.answer()
    world.learn()
    batch = world.outbox.take(world.now, 8)
    assert batch is not None
    with pytest.raises(StreamBroken):
        world.outbox.on_receipt(batch.segment_id, batch.request_id, -1, duplicate=True)


def test_what_may_be_stored_is_not_sent_again_among_numbers_of_another_producer() -> None:
    world = World(seed=3)
    world.add()
    world.outbox.check_stored(10**6)  # nothing is in doubt
    world.take()
    world.outbox.on_connection_lost()
    world.outbox.check_stored(0)
    with pytest.raises(StreamBroken):
        world.outbox.check_stored(1)


@pytest.mark.parametrize("code", ["unavailable", "internal"])
def test_what_was_stored_with_a_batch_whose_commit_nobody_heard_of_is_a_duplicate(code: str) -> None:
    """The server stores a group by one commit, and names the error for the first batch of it only."""
    world = World(seed=3)
    for _ in range(11):
        world.add()
    first, second = world.outbox.take(0.0, 8), world.outbox.take(0.0, 8)
    assert first is not None
    assert second is not None
    world.outbox.on_refused(0, first.request_id, code, {"fields": {}}, 0.0)
    world.outbox.on_refused(0, second.request_id, "stream_broken", {"fields": {"problem": code}}, 0.0)
    for batch in (first, second):
        assert world.outbox.take(60.0, 8) is batch
        settled = world.outbox.on_receipt(0, batch.request_id, 0, duplicate=True)
        assert [one.entry for one in settled] == batch.entries


@pytest.mark.parametrize("count", [1, 4])
def test_keyless_messages_are_spread_evenly_in_full_batches(count: int) -> None:
    world = World(seed=1)
    while len(world.server.layout.active) < count:
        world.server.reshape(OperationKind.SPLIT, [world.server.layout.active[0].segment_id])
    world.learn()
    for number in range(200):
        world.outbox.add(Entry(key=None, value=str(number).encode(), hash16=0))
    world.sent[None] = [str(number).encode() for number in range(200)]
    world.number = 200
    batches = []
    while (batch := world.outbox.take(0.0, 1_000)) is not None:
        batches.append(batch)
    per_segment = Counter(batch.segment_id for batch in batches)
    assert len(per_segment) == count
    assert max(per_segment.values()) - min(per_segment.values()) <= 1
    assert all(len(batch.entries) == 5 for batch in batches)


def test_only_a_single_message_is_given_up_as_too_large_a_batch() -> None:
    world = World(seed=3)
    for _ in range(5):
        world.add()
    body = BatchTooLarge(size_bytes=2, limit_bytes=1).to_json()
    sizes = []
    while (batch := world.outbox.take(0.0, 8)) is not None:
        sizes.append(len(batch.entries))
        failed = world.outbox.on_refused(0, batch.request_id, "batch_too_large", body, 0.0)
        assert [one.entry for one in failed] == (batch.entries if len(batch.entries) == 1 else [])
        assert all(isinstance(one.result, BatchTooLarge) for one in failed)
    assert max(sizes) > 2
    assert sizes.count(1) == 5, "each is sent alone before it is given up"


def test_a_batch_that_can_never_be_stored_fails_alone() -> None:
    world = World(seed=3)
    for _ in range(11):
        world.add()
    first, second = world.outbox.take(0.0, 8), world.outbox.take(0.0, 8)
    assert first is not None
    assert second is not None
    body = {"code": "batch_invalid", "fields": {"problem": "it is odd"}}
    failed = world.outbox.on_refused(0, first.request_id, "batch_invalid", body, 0.0)
    assert [settled.entry for settled in failed] == first.entries
    assert all(isinstance(settled.result, ScalableError) for settled in failed)
    assert world.outbox.take(0.0, 8) is None, "what was in flight behind it must be answered first"
    world.outbox.on_refused(0, second.request_id, "stream_broken", {}, 0.0)
    again = world.outbox.take(0.0, 8)
    assert again is second
    assert again.restart
