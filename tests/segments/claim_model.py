"""Shared cursors, message by message, and random histories that compare a port with it.

A lease lasts either an hour, so that it never runs out here, or no time at all, so that it is over at once:
no history depends on the speed of the machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from scalable.domain.errors import CursorSought
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.wire.batch import decode_header
from tests.segments.samples import batch, delayed, incarnation_of, new_store

HOUR = 3600.0
SESSIONS = st.sampled_from(["x", "y", "z"])
STEPS = [*["claim"] * 5, *["acknowledge", "give back", "renew", "append"] * 2, "up to", "skip", "seek"]
LEASES = st.sampled_from([0.0, HOUR])


@dataclass(slots=True)
class Message:
    """What the model knows of one message; `until` is 0 when it may be given to anybody."""

    acknowledged: bool = False
    session: str | None = None
    until: float = 0
    deliveries: int = 0


@dataclass(slots=True)
class ClaimModel:
    """A port beside a list of messages."""

    port: SegmentPort
    key: SegmentKey
    messages: list[Message] = field(default_factory=list)
    incarnation: int = field(init=False)
    frontier: int = 0

    def __post_init__(self) -> None:
        self.incarnation = incarnation_of(self.port, self.key)

    @property
    def unacknowledged(self) -> list[int]:
        return [offset for offset, message in enumerate(self.messages) if not message.acknowledged]

    def append(self, count: int, *, later: bool) -> None:
        first = len(self.messages)
        payload = delayed(first, first + count) if later else batch(first, first + count)
        self.port.append(self.key, [payload], producer="p")
        self.messages += [Message(until=HOUR if later else 0) for _ in range(count)]

    def claim(self, session: str, count: int, lease: float) -> None:
        free = [offset for offset in self.unacknowledged if not self.messages[offset].until]
        result = self.port.claim(
            self.key,
            subscription="s",
            consumer="c",
            session=session,
            max_messages=count,
            max_bytes=10**9,
            lease_seconds=lease,
        )
        got: list[int] = []
        for claimed in result.batches:
            for first, end, deliveries in claimed.ranges:
                assert claimed.base_offset <= first < end <= claimed.base_offset + claimed.count
                for offset in range(first, end):
                    message = self.messages[offset]
                    message.deliveries += 1
                    assert message.deliveries == deliveries
                    message.session, message.until = session, lease
                    got.append(offset)
        assert len(got) == len(set(got)) == min(count, len(free))
        assert set(got) <= set(free)
        assert result.incarnation == self.incarnation
        assert (result.next_due_seconds is None) == bool(got or not self.unacknowledged)

    def acknowledge(self, first: int, end: int) -> None:
        self.port.acknowledge_ranges(
            self.key, subscription="s", generation=None, ranges=[(first, end)], incarnation=self.incarnation
        )
        self._settle(first, end)

    def acknowledge_up_to(self, position: int) -> None:
        self.port.acknowledge(self.key, subscription="s", generation=0, position=position)
        self._settle(0, position)

    def give_back(
        self, session: str, ranges: list[tuple[int, int]] | None, delay: float, counts: bool
    ) -> None:
        held = self._held(session, ranges)
        assert len(held) == self.port.return_claims(
            self.key,
            subscription="s",
            session=session,
            ranges=ranges,
            delay_seconds=delay,
            count_delivery=counts,
        )
        for message in held:
            message.session, message.until = None, delay
            message.deliveries -= not counts

    def renew(self, session: str, ranges: list[tuple[int, int]] | None, lease: float) -> None:
        held = self._held(session, ranges)
        assert len(held) == self.port.renew(
            self.key, subscription="s", session=session, lease_seconds=lease, ranges=ranges
        )
        for message in held:
            message.until = lease

    def skip(self, count: int) -> None:
        skipped = self.unacknowledged[:count]
        self.port.skip(self.key, subscription="s", count=count)
        self._skipped(skipped)

    def skip_to(self, position: int) -> None:
        self.port.skip_to(self.key, subscription="s", position=position)
        self._skipped(range(position))

    def _skipped(self, offsets: Iterable[int]) -> None:
        self._raise_incarnation()
        for offset in offsets:
            self.messages[offset].acknowledged = True
        for message in self.messages:
            if message.session is not None:
                message.deliveries -= message.until > 0  # nobody's fault, unlike a claim that timed out
                message.session, message.until = None, 0

    def seek(self, position: int) -> None:
        self.port.seek(self.key, subscription="s", position=position)
        self._raise_incarnation()
        later = self.port.read(self.key, offset=0, max_bytes=10**9, max_batches=1000).batches
        held_back = {
            offset
            for stored in later
            if decode_header(stored.payload).deliver_at_ms
            for offset in range(stored.base_offset, stored.base_offset + stored.count)
        }
        for offset, message in enumerate(self.messages):
            message.acknowledged = offset < position
            message.session, message.deliveries = None, 0
            message.until = HOUR if offset in held_back else 0

    def check(self) -> None:
        cursor = self.port.cursor(self.key, subscription="s")
        assert cursor is not None
        opened = self.unacknowledged
        assert cursor.position == (opened[0] if opened else len(self.messages))
        assert cursor.incarnation == self.incarnation
        done = {offset for first, end in cursor.acknowledged for offset in range(first, end)}
        known = {offset for offset, message in enumerate(self.messages) if message.acknowledged}
        assert done == {offset for offset in known if offset > cursor.position}
        assert self.port.backlog(self.key, subscription="s") == len(opened)

    def _raise_incarnation(self) -> None:
        if self.messages:
            try:
                self.port.acknowledge_ranges(
                    self.key,
                    subscription="s",
                    generation=None,
                    ranges=[(0, len(self.messages))],
                    incarnation=self.incarnation,
                )
                raise AssertionError("an acknowledgement from before a seek was taken")
            except CursorSought:
                pass
        self.incarnation += 1

    def _held(self, session: str, ranges: list[tuple[int, int]] | None) -> list[Message]:
        wanted = range(len(self.messages)) if ranges is None else range(*ranges[0])
        return [
            self.messages[offset]
            for offset in wanted
            if self.messages[offset].session == session and not self.messages[offset].acknowledged
        ]

    def _settle(self, first: int, end: int) -> None:
        for message in self.messages[first:end]:
            message.acknowledged = True


def check_claims(port: SegmentPort, data: st.DataObject) -> None:
    """Play a random history on a new store."""
    model = ClaimModel(port, new_store(port, "s"))
    model.append(12, later=False)
    for _ in range(data.draw(st.integers(5, 25), label="steps")):
        _step(model, data)
        model.check()


def _step(model: ClaimModel, data: st.DataObject) -> None:
    end = len(model.messages)
    kind = data.draw(
        st.sampled_from(
            [
                *("append", "claim", "claim", "acknowledge", "give back", "renew"),
                *("up to", "skip", "skip to", "seek"),
            ]
        )
    )
    if kind == "append" or not end:
        model.append(data.draw(st.integers(1, 6)), later=data.draw(st.booleans()))
    elif kind == "claim":
        model.claim(data.draw(SESSIONS), data.draw(st.integers(1, 12)), data.draw(LEASES))
    elif kind == "acknowledge":
        model.acknowledge(*_range(data, end))
    elif kind == "up to":
        model.acknowledge_up_to(data.draw(st.integers(0, end)))
    elif kind == "give back":
        ranges = data.draw(st.sampled_from([None, [_range(data, end)]]))
        model.give_back(data.draw(SESSIONS), ranges, data.draw(LEASES), data.draw(st.booleans()))
    elif kind == "renew":
        ranges = data.draw(st.sampled_from([None, [_range(data, end)]]))
        model.renew(data.draw(SESSIONS), ranges, data.draw(LEASES))
    elif kind == "skip":
        model.skip(data.draw(st.integers(0, end)))
    elif kind == "skip to":
        model.skip_to(data.draw(st.integers(0, end)))
    else:
        model.seek(data.draw(st.integers(0, end)))


def _range(data: st.DataObject, end: int) -> tuple[int, int]:
    first = data.draw(st.integers(0, end - 1))
    return first, data.draw(st.integers(first + 1, end))
