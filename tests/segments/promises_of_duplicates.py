"""What every data plane port promises of messages that are sent again."""

import pytest

from scalable.domain.errors import (
    BatchPartlyDuplicate,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import AppendResult, SegmentKey, SegmentPort
from scalable.wire.batch import Record, encode_batch
from tests.segments.samples import (
    HIGH,
    LOW,
    batch,
    fresh_key,
    new_store,
    sequences,
    unnumbered,
)


class DuplicateSuite:
    """What a producer sends again."""

    def test_a_batch_sent_again_is_stored_once_and_found(self, port: SegmentPort) -> None:
        key = new_store(port)
        port.append(key, [batch(0, 3), batch(3, 5)], producer="p")
        again = port.append(key, [batch(3, 5), batch(5, 6)], producer="p")
        assert again == [AppendResult(3, True), AppendResult(5, False)]
        assert port.append(key, [batch(1, 4)], producer="p") == [AppendResult(-1, True)]
        assert sequences(port, key) == [0, 1, 2, 3, 4, 5]

    def test_a_batch_twice_in_one_call_is_stored_once(self, port: SegmentPort) -> None:
        key = new_store(port)
        first, second = port.append(key, [batch(0, 3), batch(0, 3)], producer="p")
        assert (first, second.duplicate) == (AppendResult(0, False), True)
        assert sequences(port, key) == [0, 1, 2]

    def test_a_batch_partly_stored_is_refused_with_the_marks_and_nothing_of_the_call_is_stored(
        self, port: SegmentPort
    ) -> None:
        key = new_store(port)
        port.append(key, [batch(0, 3)], producer="p")
        with pytest.raises(BatchPartlyDuplicate) as caught:
            port.append(key, [batch(3, 4), batch(2, 6)], producer="p")
        assert caught.value.sequence == 2
        assert caught.value.marks == [[0, 65535, 2]]
        assert sequences(port, key) == [0, 1, 2]

    def test_producers_are_told_apart_and_the_unnamed_is_never_checked(self, port: SegmentPort) -> None:
        key = new_store(port)
        for producer in ("p", "q", None, None):
            assert not port.append(key, [batch(0, 2)], producer=producer)[0].duplicate
        for _ in range(2):
            assert not port.append(key, [unnumbered(1)], producer="p")[0].duplicate
        assert [mark.last_sequence for mark in port.producer_marks(key, producer="p")] == [1]
        assert sequences(port, key) == [0, 1] * 4 + [-1, -1]

    def test_a_split_clips_and_a_merge_unites_and_never_takes_the_maximum(self, port: SegmentPort) -> None:
        parent, low, high, merged = (SegmentKey(fresh_key().incarnation, number) for number in range(4))
        port.create(parent, hash_range=FULL_RANGE, subscriptions=[], fence=None)
        port.append(parent, [batch(0, 5)], producer="p")
        port.terminate(parent, fence=None)
        for child, hash_range in ((low, LOW), (high, HIGH)):
            port.create(child, hash_range=hash_range, subscriptions=[], fence=None)
            port.inherit_producer_marks([parent], child, fence=None)
            assert [(m.hash_range, m.last_sequence) for m in port.producer_marks(child, producer="p")] == [
                (hash_range, 4)
            ]
        assert port.append(low, [batch(0, 5, within=LOW)], producer="p")[0].duplicate
        port.append(low, [batch(5, 8, within=LOW)], producer="p")
        port.append(high, [batch(100, 101, within=HIGH)], producer="p")
        for key in (low, high):
            port.terminate(key, fence=None)
        port.create(merged, hash_range=FULL_RANGE, subscriptions=[], fence=None)
        for _ in range(2):
            port.inherit_producer_marks([low, high], merged, fence=None)
        marks = [(m.hash_range, m.last_sequence) for m in port.producer_marks(merged, producer="p")]
        assert marks == [(LOW, 7), (HIGH, 100)]
        with pytest.raises(BatchPartlyDuplicate) as caught:
            port.append(merged, [batch(8, 30)], producer="p")
        assert caught.value.marks == [[LOW.start, LOW.end, 7], [HIGH.start, HIGH.end, 100]]
        assert not port.append(merged, [batch(8, 10, within=LOW)], producer="p")[0].duplicate
        assert port.append(merged, [batch(50, 60, within=HIGH)], producer="p")[0].duplicate

    def test_marks_of_a_segment_that_takes_appends_are_not_handed_on(self, port: SegmentPort) -> None:
        parent, child = new_store(port), new_store(port)
        with pytest.raises(ValueError, match="still takes appends"):
            port.inherit_producer_marks([parent], child, fence=None)

    def test_a_keyless_batch_follows_the_hash_that_routed_it(self, port: SegmentPort) -> None:
        parent, low, high = (SegmentKey(fresh_key().incarnation, number) for number in range(3))
        keyless = [
            encode_batch([Record(None, b"", 7)], published_at_ms=0, keyless_hash=place)
            for place in (None, LOW.start, HIGH.start)
        ]
        port.create(parent, hash_range=FULL_RANGE, subscriptions=[], fence=None)
        port.append(parent, keyless[:1], producer="p")
        port.terminate(parent, fence=None)
        for child, hash_range in ((low, LOW), (high, HIGH)):
            port.create(child, hash_range=hash_range, subscriptions=[], fence=None)
        port.inherit_producer_marks([parent], low, fence=None)
        assert [result.duplicate for result in port.append(low, keyless[:2], producer="p")] == [True, True]
        assert not port.append(high, keyless[2:], producer="p")[0].duplicate

    def test_trim_keeps_the_marks_and_the_offsets(self, port: SegmentPort) -> None:
        key, child = new_store(port), new_store(port)
        port.append(key, [batch(0, 4)], producer="old")
        port.append(key, [batch(0, 4), batch(4, 8)], producer="p")
        assert port.trim(key, before_offset=3, max_batches=10) == 0
        assert port.trim(key, before_offset=11, max_batches=1) == 4
        assert port.trim(key, before_offset=11, max_batches=10) == 8
        assert sequences(port, key) == [4, 5, 6, 7]
        for _ in range(2):
            assert port.trim(key, before_offset=99, max_batches=10) == 12
        assert port.append(key, [batch(0, 4), batch(4, 8)], producer="p") == [AppendResult(-1, True)] * 2
        assert port.append(key, [batch(0, 4)], producer="old") == [AppendResult(-1, True)]
        assert port.append(key, [batch(8, 9)], producer="p") == [AppendResult(12, False)]
        assert port.read(key, offset=0, max_bytes=1, max_batches=1).batches[0].base_offset == 12
        port.terminate(key, fence=None)
        port.inherit_producer_marks([key], child, fence=None)
        marks = {name: port.producer_marks(child, producer=name)[0].last_sequence for name in ("old", "p")}
        assert marks == {"old": 3, "p": 8}
