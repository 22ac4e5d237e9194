"""A producer and the DAG that it writes to, for the test of duplicates across splits and merges.

The producer knows for each record only whether an acknowledgement came. It sends a segment's records in the
order of their sequences, and sends again, cut in whatever way, what was not acknowledged.
"""

from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from scalable.domain.errors import BatchPartlyDuplicate, SegmentTerminated
from scalable.domain.keyspace import FULL_RANGE, HashRange, segment_hash
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.wire.batch import Record, encode_batch
from scalable.wire.marks import cut
from tests.segments.samples import fresh_key, stored

PRODUCER = "producer"
KEYS = tuple(f"key-{index}" for index in range(12))


def place_of(record: Record) -> int:
    """Give the segment hash of a keyed record."""
    assert record.key_hash is not None
    return segment_hash(record.key_hash)


@dataclass
class Lineage:
    """The segments of one topic: who is active, and all in the order in which they were made."""

    port: SegmentPort
    incarnation: int = field(default_factory=lambda: fresh_key().incarnation)
    active: dict[HashRange, SegmentKey] = field(default_factory=dict)
    made: list[SegmentKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._make(FULL_RANGE, [])

    def split(self, hash_range: HashRange) -> None:
        """Replace an active segment by two."""
        if hash_range.size > 1:
            self._replace([hash_range], list(hash_range.midpoint_split()))

    def merge(self, ranges: list[HashRange]) -> None:
        """Replace neighbours by one segment."""
        self._replace(ranges, [HashRange(ranges[0].start, ranges[-1].end)])

    def _replace(self, ranges: list[HashRange], children: list[HashRange]) -> None:
        parents = [self.active.pop(hash_range) for hash_range in ranges]
        for parent in parents:
            self.port.terminate(parent, fence=None)
        for child in children:
            self._make(child, parents)

    def _make(self, hash_range: HashRange, parents: list[SegmentKey]) -> None:
        key = SegmentKey(self.incarnation, len(self.made))
        self.port.create(key, hash_range=hash_range, subscriptions=[], fence=None)
        self.port.inherit_producer_marks(parents, key, fence=None)
        self.active[hash_range] = key
        self.made.append(key)

    def route(self, record: Record) -> SegmentKey:
        """Give the active segment of a record's key."""
        return next(key for hash_range, key in self.active.items() if hash_range.contains(place_of(record)))

    def everything(self) -> list[Record]:
        """Read all segments, parents before children."""
        return [record for key in self.made for record in stored(self.port, key)]


@dataclass
class Sender:
    """The producer's side: what it made, and what it must still see acknowledged, by ascending sequence."""

    lineage: Lineage
    random: Random
    produced: int = 0
    waiting: list[Record] = field(default_factory=list)

    def produce(self, number: int) -> None:
        """Make new records of random keys."""
        for _ in range(number):
            self.waiting.append(Record(self.random.choice(KEYS), b"", self.produced))
            self.produced += 1

    def send(self, key: SegmentKey, *, limit: int, lose_the_answer: bool) -> None:
        """Send the first waiting records of a segment in batches of random size; maybe never hear of it."""
        records = [record for record in self.waiting if self.lineage.route(record) == key][:limit]
        at = 0
        while at < len(records):
            size = self.random.randint(1, 5)
            self._append(key, records[at : at + size])
            at += size
        if not lose_the_answer:
            acknowledged = {record.sequence for record in records}
            self.waiting = [record for record in self.waiting if record.sequence not in acknowledged]

    def _append(self, key: SegmentKey, records: list[Record]) -> None:
        try:
            self.lineage.port.append(key, [encode_batch(records, published_at_ms=0)], producer=PRODUCER)
        except BatchPartlyDuplicate as refusal:
            for part in cut(records, refusal.marks):
                (result,) = self.lineage.port.append(
                    key, [encode_batch(part, published_at_ms=0)], producer=PRODUCER
                )
                assert not result.duplicate

    def send_late(self, key: SegmentKey) -> None:
        """Send to a segment that is sealed already, as a producer with an old layout does."""
        try:
            self.lineage.port.append(
                key, [encode_batch(self.waiting[:1], published_at_ms=0)], producer=PRODUCER
            )
        except SegmentTerminated:
            return
        raise AssertionError("a sealed segment took an append")

    def finish(self) -> None:
        """Send what is left until everything is acknowledged."""
        for key in self.lineage.active.values():
            self.send(key, limit=10**6, lose_the_answer=False)
        assert not self.waiting


def check_history(port: SegmentPort, data: st.DataObject) -> None:
    """Draw a history of sends, lost answers, splits, merges: each record is stored once, keys in order."""
    lineage = Lineage(port)
    sender = Sender(lineage, Random(data.draw(st.integers(0, 2**32 - 1))))
    for _ in range(data.draw(st.integers(1, 25))):
        _step(lineage, sender, data)
    sender.finish()
    everything = lineage.everything()
    assert sorted(record.sequence for record in everything) == list(range(sender.produced))
    for key in KEYS:
        own = [record.sequence for record in everything if record.key == key]
        assert own == sorted(own)


def _step(lineage: Lineage, sender: Sender, data: st.DataObject) -> None:
    ranges = sorted(lineage.active)
    place = data.draw(st.integers(0, len(ranges) - 1))
    match data.draw(st.sampled_from(["produce", "send", "lose", "split", "merge", "late"])):
        case "produce":
            sender.produce(data.draw(st.integers(1, 15)))
        case "send" | "lose" as kind:
            limit = data.draw(st.integers(1, 15))
            sender.send(lineage.active[ranges[place]], limit=limit, lose_the_answer=kind == "lose")
        case "split" if len(ranges) < 8:
            lineage.split(ranges[place])
        case "merge" if len(ranges) > 1:
            lineage.merge(ranges[place : place + data.draw(st.integers(2, 4))])
        case "late" if sender.waiting and len(lineage.made) > len(ranges):
            sealed = [key for key in lineage.made if key not in lineage.active.values()]
            sender.send_late(sealed[place % len(sealed)])
