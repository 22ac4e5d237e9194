"""What a producer has not yet delivered, and what it may send next: pure, so that all can be tried.

Order per key holds because of four rules. Sequences are given when a batch is first cut and never change.
A segment's batches go out in ascending sequence, and after a refusal nothing follows until every batch in
flight was answered. A sealed segment hands its entries on only when nothing of it is in flight. Its
successors send nothing until it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from scalable.client.batches import TRIED_AGAIN, Batch, BatchLimits, Entry, Lane, MessageId, cut, is_duplicate
from scalable.client.topology import Topology
from scalable.domain.errors import StreamBroken, error_from_json
from scalable.wire.frames import SegmentFrame
from scalable.wire.marks import Mark

FIRST_HOLD_SECONDS = 0.05
LONGEST_HOLD_SECONDS = 2.0
RESUME_GAP = 1 << 24
"""Left between the lives of a producer's name: more than one can have had in flight when it died."""

_WAITS_FOR_LAYOUT = frozenset({"segment_terminated", "segment_not_active", "segment_not_found"})
_COMES_BACK = frozenset({"stream_broken", "batch_partly_duplicate"})


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of an entry: where it is stored, or why it never will be."""

    entry: Entry
    result: MessageId | Exception


class SegmentStream:
    """What goes to one segment: batches to be sent again, and lanes of entries that were never sent."""

    def __init__(self, segment_id: int, start: int, end: int) -> None:
        self.segment_id, self.start, self.end = segment_id, start, end
        self.keyed, self.keyless = Lane(), Lane()
        self.again: list[Batch] = []
        self.in_flight: dict[int, Batch] = {}
        self.broken = False
        self.restart = False
        self.terminated = False
        self.held_until = 0.0
        self._holds = 0

    @property
    def empty(self) -> bool:
        """Tell whether nothing is left to be sent or answered."""
        return not (self.again or self.in_flight or self.keyed or self.keyless)

    @property
    def entries_again(self) -> Iterator[Entry]:
        """Give what is to be sent again."""
        return (entry for batch in self.again for entry in batch.entries)

    def overlaps(self, other: SegmentStream) -> bool:
        """Tell whether both cover a common hash, so that they share keys."""
        return self.start <= other.end and other.start <= self.end

    def lane(self, *, keyless: bool) -> Lane:
        """Give the lane of keyed or keyless entries."""
        return self.keyless if keyless else self.keyed

    def return_batches(self, batches: list[Batch]) -> None:
        """Put batches that were not stored back in the order of their sequences."""
        self.again = sorted([*self.again, *batches], key=lambda batch: batch.first_sequence)

    def hold(self, now: float) -> None:
        """Send nothing for a while that grows with each failure."""
        self.held_until = now + min(LONGEST_HOLD_SECONDS, FIRST_HOLD_SECONDS * 2 ** min(self._holds, 16))
        self._holds += 1

    def release(self) -> None:
        """Forget earlier failures, after a success."""
        self._holds = 0

    def due_lane(self, now: float, urgent_before: float, limits: BatchLimits) -> Lane | None:
        """Give the lane whose next batch is full or waited long enough; the older one first."""
        lanes = [lane for lane in (self.keyed, self.keyless) if lane]
        due = [
            lane
            for lane in lanes
            if lane.is_full(limits)
            or lane.oldest_at <= urgent_before
            or now >= lane.oldest_at + limits.linger_seconds
        ]
        return min(due, key=lambda lane: lane.oldest_at, default=None)


class Outbox:
    """All undelivered entries of the named producer, by the segment that they go to.

    `now` is in seconds on any clock that never goes back.
    """

    def __init__(self, limits: BatchLimits, *, producer: str = "") -> None:
        self._limits = limits
        self._producer = producer
        self._streams: dict[int, SegmentStream] = {}
        self._sealed: list[SegmentStream] = []
        self._topology: Topology | None = None
        self._next_sequence = 0
        self._request_ids = count(1)
        self._keyless_turn = 0
        self._urgent_before = float("-inf")
        self.in_flight_count = 0

    def bound_batches(self, max_bytes: int) -> None:
        """Cut no batch of several messages that is larger, whatever limits were asked for."""
        self._limits = replace(self._limits, max_bytes=min(self._limits.max_bytes, max_bytes))

    def resume_after(self, last_sequence: int) -> None:
        """Number new entries above what an earlier life of the name has stored, or may yet store."""
        if last_sequence >= 0:
            self._next_sequence = last_sequence + RESUME_GAP

    def check_stored(self, last_sequence: int) -> None:
        """Compare what is stored under the name with what is to be sent again.

        Raises StreamBroken when there are numbers that were never given here: those of another living
        producer, for which the doubtful ones below them would be taken.
        """
        if last_sequence < self._next_sequence:
            return
        for stream in self._streams.values():
            if any(entry.doubtful and not entry.numbered for entry in stream.entries_again):
                problem = f"somebody else sent sequence {last_sequence} under this name"
                raise StreamBroken(producer=self._producer, segment_id=stream.segment_id, problem=problem)

    def set_topology(self, topology: Topology) -> None:
        """Route by a newer layout; a sealed segment's entries move on once nothing of it is in flight."""
        self._topology = topology
        self._hand_on()

    # What is to be sent

    def add(self, entry: Entry) -> None:
        """Take an entry in; a keyless one gets a hash of the active segment whose turn it is.

        Entries that the application numbered keep to one lane, keyed or not: a segment takes rising numbers.
        """
        if entry.keyless and not entry.numbered:
            entry.hash16 = self._keyless_hash()
        self._stream_of(entry.hash16).lane(keyless=entry.keyless and not entry.numbered).push(entry)

    def _keyless_hash(self) -> int:
        """Stay with one segment until its lane is full or was cut: few, full batches, evenly spread."""
        active = self._active
        segment = active[self._keyless_turn % len(active)]
        stream = self._streams.get(segment.segmentId)
        if stream is not None and stream.keyless.is_full(self._limits):
            self._keyless_turn += 1
            segment = active[self._keyless_turn % len(active)]
        return segment.start

    def urge(self, now: float) -> None:
        """Let nothing that was added until now linger."""
        self._urgent_before = now

    def take(self, now: float, permits: int) -> Batch | None:
        """Give the next batch to send, now in flight; None when nothing is due or all permits are in use."""
        if self.in_flight_count >= permits:
            return None
        for segment_id in list(self._streams):
            stream = self._streams[segment_id]
            batch = self._next_batch(stream, now) if self._may_send(stream, now) else None
            if batch is not None:
                self._send(stream, batch)
                return batch
        return None

    def next_due(self, now: float) -> float | None:
        """Tell when `take` is worth another call if nothing else happens before; None: never."""
        times = [
            max(stream.held_until, now if stream.again else self._lingers_until(stream))
            for stream in self._streams.values()
            if not stream.empty and self._may_send(stream, max(now, stream.held_until))
        ]
        return min(times, default=None)

    def _lingers_until(self, stream: SegmentStream) -> float:
        oldest = [lane.oldest_at for lane in (stream.keyed, stream.keyless) if lane]
        return min(oldest, default=float("inf")) + self._limits.linger_seconds

    def _may_send(self, stream: SegmentStream, now: float) -> bool:
        if stream.broken or stream.terminated or now < stream.held_until:
            return False
        return not any(sealed.overlaps(stream) for sealed in self._sealed)

    def _next_batch(self, stream: SegmentStream, now: float) -> Batch | None:
        if stream.again:
            return stream.again.pop(0)
        lane = stream.due_lane(now, self._urgent_before, self._limits)
        if lane is None:
            return None
        entries = lane.take(self._limits)
        for entry in [entry for entry in entries if not entry.numbered]:
            entry.sequence = self._next_sequence
            self._next_sequence += 1
            if entry.keyless:
                entry.hash16 = stream.start
        if lane is stream.keyless:
            self._keyless_turn += 1
        return Batch(stream.segment_id, entries)

    def _send(self, stream: SegmentStream, batch: Batch) -> None:
        batch.request_id = next(self._request_ids) & 0xFFFFFFFF
        batch.restart, stream.restart = stream.restart, False
        stream.in_flight[batch.request_id] = batch
        self.in_flight_count += 1
        # Behind the others, so that one busy segment does not use up the permits.
        self._streams[stream.segment_id] = self._streams.pop(stream.segment_id)

    # What comes back

    def on_receipt(
        self, segment_id: int, request_id: int, base_offset: int, *, duplicate: bool = False
    ) -> list[Settled]:
        """Settle a batch that is durable; unknown ones (of a lost connection) are ignored.

        Raises StreamBroken when another living producer has the same name.
        """
        stream, batch = self._answered(segment_id, request_id)
        if stream is None or batch is None:
            return []
        if duplicate and any(entry.is_new for entry in batch.entries):
            raise self._name_is_taken(stream, batch)
        stream.release()
        self._rest(stream)
        known = base_offset >= 0
        return [
            Settled(entry, MessageId(segment_id, base_offset + index if known else -1, index, duplicate))
            for index, entry in enumerate(batch.entries)
        ]

    def on_refused(
        self, segment_id: int, request_id: int, code: str, body: Mapping[str, Any], now: float
    ) -> list[Settled]:
        """Take back a batch that was not stored, to send it again, cut anew, elsewhere, or not at all.

        Raises StreamBroken when another living producer has the same name.
        """
        stream, batch = self._answered(segment_id, request_id)
        if stream is None or batch is None:
            return []
        stream.broken = True
        settled = self._take_back(stream, batch, code, body, now)
        self._rest(stream)
        return settled

    def _take_back(
        self, stream: SegmentStream, batch: Batch, code: str, body: Mapping[str, Any], now: float
    ) -> list[Settled]:
        if code == "batch_partly_duplicate":
            return self._cut_by_marks(stream, batch, body)
        if code == "batch_too_large" and len(batch.entries) > 1:
            stream.return_batches(batch.halves())
            return []
        batch.note_refusal(code, body)
        if code in _WAITS_FOR_LAYOUT:
            stream.terminated = True
        elif code in TRIED_AGAIN:
            stream.hold(now)
        elif code not in _COMES_BACK:
            error = error_from_json(body)
            return [Settled(entry, error) for entry in batch.entries]
        stream.return_batches([batch])
        return []

    def _cut_by_marks(self, stream: SegmentStream, batch: Batch, body: Mapping[str, Any]) -> list[Settled]:
        marks = [Mark(*mark) for mark in body["fields"]["marks"]]
        stored = [entry for entry in batch.entries if is_duplicate(entry, marks)]
        if any(entry.is_new for entry in stored):
            raise self._name_is_taken(stream, batch)
        rest = [entry for entry in batch.entries if not is_duplicate(entry, marks)]
        stream.return_batches(list(cut(rest, stream.segment_id, self._limits, marks)))
        return [Settled(entry, MessageId(stream.segment_id, -1, 0, True)) for entry in stored]

    def _name_is_taken(self, stream: SegmentStream, batch: Batch) -> StreamBroken:
        """A number that was never sent is known already: messages would be lost unseen from here on."""
        stream.in_flight[batch.request_id] = batch
        problem = f"somebody else sent sequence {batch.first_sequence} under this name"
        return StreamBroken(producer=self._producer, segment_id=stream.segment_id, problem=problem)

    def on_connection_lost(self) -> None:
        """Take back what is in flight: nobody knows whether it is stored, so the same sequences go again."""
        for stream in list(self._streams.values()):
            for batch in stream.in_flight.values():
                batch.doubt()
            stream.return_batches(list(stream.in_flight.values()))
            stream.in_flight.clear()
            stream.broken = stream.restart = False
        self.in_flight_count = 0
        self._hand_on()

    def _answered(self, segment_id: int, request_id: int) -> tuple[SegmentStream | None, Batch | None]:
        stream = self._streams.get(segment_id)
        batch = stream.in_flight.pop(request_id, None) if stream is not None else None
        if batch is not None:
            self.in_flight_count -= 1
        return stream, batch

    def _rest(self, stream: SegmentStream) -> None:
        """Once all in flight is answered, a broken stream may start again and a sealed one hands on."""
        if stream.in_flight:
            return
        if stream.broken:
            stream.broken, stream.restart = False, True
        if self._is_sealed(stream):
            self._hand_on()
        elif stream.empty:
            self._forget(stream)

    # Layout

    @property
    def _active(self) -> tuple[SegmentFrame, ...]:
        if self._topology is None:
            raise RuntimeError("the layout is not known yet")
        return self._topology.active

    def _is_sealed(self, stream: SegmentStream) -> bool:
        return self._topology is not None and not self._topology.is_active(stream.segment_id)

    def _stream_of(self, hash16: int) -> SegmentStream:
        if self._topology is None:
            raise RuntimeError("the layout is not known yet")
        segment = self._topology.find_active(hash16)
        found = self._streams.get(segment.segmentId)
        if found is None:
            found = SegmentStream(segment.segmentId, segment.start, segment.end)
            self._streams[segment.segmentId] = found
        return found

    def _hand_on(self) -> None:
        """Move the entries of sealed segments to the segments that cover their hashes now."""
        sealed = [stream for stream in self._streams.values() if self._is_sealed(stream)]
        for stream in [stream for stream in sealed if not stream.in_flight]:
            del self._streams[stream.segment_id]
            self._take_numbered(stream)
            self._move_sent(stream)
            for keyless in (False, True):
                self._move_unsent(stream.lane(keyless=keyless).take_all(), keyless=keyless)
        self._sealed = [stream for stream in sealed if stream.in_flight]

    def _take_numbered(self, stream: SegmentStream) -> None:
        """Treat what has numbers as sent: merged with another segment's, they must rise all the same."""
        if stream.keyed and stream.keyed.is_numbered:
            stream.return_batches(list(cut(stream.keyed.take_all(), stream.segment_id, self._limits)))

    def _move_sent(self, stream: SegmentStream) -> None:
        """Cut batches that have sequences by the new ranges, in ascending sequence."""
        parts = _grouped(
            stream.entries_again,
            lambda entry: self._stream_of(entry.hash16).segment_id,
        )
        for segment_id, entries in parts.items():
            successor = self._streams[segment_id]
            ordered = sorted([*successor.entries_again, *entries], key=lambda entry: entry.sequence)
            successor.again = list(cut(ordered, segment_id, self._limits))

    def _move_unsent(self, entries: list[Entry], *, keyless: bool) -> None:
        """Put entries that were never sent in front of what the successors got directly, which is later."""
        parts = _grouped(entries, lambda entry: self._stream_of(entry.hash16).segment_id)
        for segment_id, part in parts.items():
            self._streams[segment_id].lane(keyless=keyless).push_before(part)

    def _forget(self, stream: SegmentStream) -> None:
        # A terminated stream is kept until the layout says so too: else the next entry would be sent in vain.
        if not stream.terminated and not stream.restart:
            del self._streams[stream.segment_id]

    def drain(self) -> list[Entry]:
        """Remove and give everything undelivered, when the producer ends for good."""
        entries = [entry for stream in self._streams.values() for entry in _all_entries(stream)]
        self._streams.clear()
        self._sealed.clear()
        self.in_flight_count = 0
        return entries


def _all_entries(stream: SegmentStream) -> list[Entry]:
    batches = [*stream.in_flight.values(), *stream.again]
    sent = [entry for batch in batches for entry in batch.entries]
    return [*sent, *stream.keyed.take_all(), *stream.keyless.take_all()]


def _grouped(entries: Any, key_of: Callable[[Entry], int]) -> dict[int, list[Entry]]:
    parts: dict[int, list[Entry]] = {}
    for entry in entries:
        parts.setdefault(key_of(entry), []).append(entry)
    return parts
