"""What every data plane port promises; each adapter runs all of it (`test_memory.py`, `test_embedded.py`)."""

from contextlib import suppress
from threading import Barrier, Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.domain.errors import (
    BatchInvalid,
    BatchPartlyDuplicate,
    CursorSought,
    GenerationSuperseded,
    LeaseLost,
    PositionInvalid,
    SegmentStoreMissing,
    SegmentTerminated,
    SubscriptionNotFound,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import AppendResult, CursorState, Fence, SegmentKey, SegmentPort
from scalable.wire.batch import Record, encode_batch
from tests.segments.lineage import check_history
from tests.segments.samples import (
    HIGH,
    LOW,
    batch,
    every,
    fresh_key,
    in_threads,
    keys_within,
    sequences,
    stored,
    unnumbered,
)


def _new(port: SegmentPort, *subscriptions: str) -> SegmentKey:
    key = fresh_key()
    port.create(key, hash_range=FULL_RANGE, subscriptions=subscriptions, fence=None)
    return key


class StoreSuite:
    """Making, sealing and removing stores."""

    def test_create_leaves_what_is_there_and_adds_what_is_missing(self, port: SegmentPort) -> None:
        key = _new(port, "a")
        port.append(key, [batch(0, 3)], producer="p")
        port.acknowledge(key, subscription="a", generation=0, position=2)
        port.create(key, hash_range=FULL_RANGE, subscriptions=["a", "b"], fence=None)
        assert [(cursor.subscription, cursor.position) for cursor in port.cursors(key)] == [
            ("a", 2),
            ("b", 0),
        ]
        assert sequences(port, key) == [0, 1, 2]

    def test_terminate_seals_for_ever_and_may_be_repeated(self, port: SegmentPort) -> None:
        key = _new(port)
        port.append(key, [batch(0, 3)], producer="p")
        assert [port.terminate(key, fence=None), port.terminate(key, fence=None)] == [3, 3]
        for producer, payload in [("p", batch(3, 4)), ("p", batch(0, 3)), (None, unnumbered(1))]:
            with pytest.raises(SegmentTerminated):
                port.append(key, [payload], producer=producer)
        assert port.stats(key).terminated
        page = port.read(key, offset=0, max_bytes=1, max_batches=1)
        assert page.at_end

    def test_delete_removes_everything_and_may_be_repeated(self, port: SegmentPort) -> None:
        key, other = _new(port, "a"), _new(port, "a")
        port.append(key, [batch(0, 3)], producer="p")
        for _ in range(2):
            port.delete(key)
        assert port.keys(incarnation=key.incarnation) == []
        assert list(port.keys(incarnation=other.incarnation)) == [other]
        assert {key, other} & set(port.keys()) == {other}
        port.create(key, hash_range=FULL_RANGE, subscriptions=[], fence=None)
        assert port.cursors(key) == []
        assert stored(port, key) == []
        assert port.producer_marks(key, producer="p") == []

    def test_a_missing_store_is_told_by_name(self, port: SegmentPort) -> None:
        key = fresh_key()
        for ask in (
            lambda: port.append(key, [batch(0, 1)], producer="p"),
            lambda: port.read(key, offset=0, max_bytes=1, max_batches=1),
            lambda: port.terminate(key, fence=None),
            lambda: port.stats(key),
            lambda: port.cursors(key),
            lambda: port.create_cursor(key, subscription="s", position=None),
            lambda: port.trim(key, before_offset=1, max_batches=1),
            lambda: port.inherit_producer_marks([], key, fence=None),
        ):
            with pytest.raises(SegmentStoreMissing):
                ask()
        port.delete_cursor(key, subscription="s")

    def test_a_runner_with_an_older_token_changes_nothing(self, port: SegmentPort) -> None:
        key, parent = _new(port, "a"), _new(port)
        port.terminate(parent, fence=None)
        port.create(key, hash_range=FULL_RANGE, subscriptions=[], fence=Fence("op", 5))
        for ask in (
            lambda: port.create(key, hash_range=FULL_RANGE, subscriptions=["late"], fence=Fence("op", 4)),
            lambda: port.terminate(key, fence=Fence("op", 4)),
            lambda: port.inherit_producer_marks([parent], key, fence=Fence("op", 4)),
        ):
            with pytest.raises(LeaseLost):
                ask()
        assert [cursor.subscription for cursor in port.cursors(key)] == ["a"]
        port.append(key, [batch(0, 1)], producer="p")
        port.terminate(key, fence=Fence("another operation", 1))
        assert port.terminate(key, fence=Fence("op", 5)) == 1
        assert port.terminate(key, fence=Fence("op", 6)) == 1
        with pytest.raises(LeaseLost):
            port.terminate(key, fence=Fence("op", 5))


class AppendSuite:
    """Messages in and out."""

    def test_offsets_have_no_gap_and_records_keep_their_order(self, port: SegmentPort) -> None:
        key = _new(port)
        results = port.append(key, [batch(0, 3), batch(3, 4)], producer="p")
        results += port.append(key, [unnumbered(2)], producer=None)
        results += port.append(key, [batch(4, 9)], producer="p")
        assert results == [AppendResult(offset, False) for offset in (0, 3, 4, 6)]
        assert sequences(port, key) == [0, 1, 2, 3, -1, -1, 4, 5, 6, 7, 8]
        assert (port.stats(key).start_offset, port.stats(key).end_offset) == (0, 11)

    def test_a_page_begins_at_the_offset_and_ends_at_the_limits(self, port: SegmentPort) -> None:
        key = _new(port)
        payloads = [batch(start, start + 10) for start in range(0, 50, 10)]
        port.append(key, payloads, producer="p")
        size = len(payloads[0])

        def page(offset: int, max_bytes: int = 10**6, max_batches: int = 100) -> list[int]:
            result = port.read(key, offset=offset, max_bytes=max_bytes, max_batches=max_batches)
            offsets = [entry.base_offset for entry in result.batches]
            assert result.end_offset == 50
            assert result.next_offset == (offsets[-1] + 10 if offsets else max(offset, 0))
            return offsets

        assert page(0) == [0, 10, 20, 30, 40]
        assert page(15) == [10, 20, 30, 40]
        assert page(19, max_batches=1) == [10]
        assert page(20, max_batches=2) == [20, 30]
        assert page(0, max_bytes=1) == [0]
        assert page(0, max_bytes=2 * size + size // 2) == [0, 10]
        assert page(49) == [40]
        assert page(50) == []
        assert page(60) == []
        assert not port.read(key, offset=50, max_bytes=1, max_batches=1).at_end

    def test_size_counts_what_is_kept(self, port: SegmentPort) -> None:
        key = _new(port)
        payloads = [batch(0, 10), batch(10, 12), batch(12, 50)]
        port.append(key, payloads[:2], producer="p")
        port.append(key, payloads[2:], producer="p")
        assert port.stats(key).bytes_stored == sum(map(len, payloads))
        port.trim(key, before_offset=11, max_batches=10)
        assert port.stats(key).bytes_stored == len(payloads[1]) + len(payloads[2])

    def test_what_is_no_whole_batch_of_this_segment_is_refused(self, port: SegmentPort) -> None:
        key = fresh_key()
        port.create(key, hash_range=LOW, subscriptions=[], fence=None)
        good = batch(0, 3, within=LOW)
        flipped = bytearray(good)
        flipped[-1] ^= 1
        foreign = encode_batch([Record(keys_within(HIGH, 1)[0], b"")], published_at_ms=0)
        straying = encode_batch([Record(None, b"")], published_at_ms=0, keyless_hash=HIGH.start)
        both = encode_batch([Record(keys_within(part, 1)[0], b"") for part in (LOW, HIGH)], published_at_ms=0)
        for wrong in (b"", b"garbage", good[:-1], good + b"\0", bytes(flipped), foreign, straying, both):
            with pytest.raises(BatchInvalid):
                port.append(key, [good, wrong], producer="p")
        for number in (0, 1_001):
            with pytest.raises(BatchInvalid):
                port.append(key, [good] * number, producer="p")
        assert port.stats(key).end_offset == 0

    def test_appenders_at_the_same_time_leave_no_gap(self, port: SegmentPort) -> None:
        key = _new(port)
        start = Barrier(4)

        def appender(name: str) -> list[AppendResult]:
            start.wait(20)
            return [
                result
                for first in range(0, 40, 4)
                for result in port.append(
                    key, [batch(first, first + 1), batch(first + 1, first + 4)], producer=name
                )
            ]

        results = in_threads(every(appender, 4))
        offsets = [result.base_offset for one in results for result in one]
        assert len(set(offsets)) == len(offsets) == 80
        assert all(one == sorted(one, key=lambda result: result.base_offset) for one in results)
        assert sorted(sequences(port, key)) == sorted(list(range(40)) * 4)

    def test_a_reader_that_follows_appenders_skips_nothing(self, port: SegmentPort) -> None:
        key = _new(port)

        def appender(name: str) -> list[tuple[int, int]]:
            for first in range(0, 60, 2):
                port.append(key, [batch(first, first + 2)], producer=name)
            return []

        def reader() -> list[tuple[int, int]]:
            seen: list[tuple[int, int]] = []
            offset = 0
            while offset < 240:
                page = port.read(key, offset=offset, max_bytes=10**6, max_batches=3)
                seen += [(entry.base_offset, entry.count) for entry in page.batches]
                offset = page.next_offset
            return seen

        seen = in_threads([reader, *every(appender, 4)])[0]
        assert seen == [(offset, 2) for offset in range(0, 240, 2)]

    @pytest.mark.parametrize("attempt", range(6))
    def test_a_seal_loses_nothing_that_was_acknowledged_and_takes_nothing_later(
        self, port: SegmentPort, attempt: int
    ) -> None:
        key = _new(port)
        start, enough = Barrier(4), Event()

        def appender(name: str) -> list[int]:
            acknowledged: list[int] = []
            start.wait(20)
            with suppress(SegmentTerminated):
                for sequence in range(10_000):
                    (result,) = port.append(key, [batch(sequence, sequence + 1)], producer=name)
                    acknowledged.append(result.base_offset)
                    if sequence >= attempt:
                        enough.set()
            return acknowledged

        def sealer() -> list[int]:
            start.wait(20)
            enough.wait(20)
            return [port.terminate(key, fence=Fence("split", 1))]

        (end,), *appended = in_threads([sealer, *every(appender, 3)])
        assert sorted(offset for one in appended for offset in one) == list(range(end))
        assert len(stored(port, key)) == end == port.stats(key).end_offset


class DuplicateSuite:
    """What a producer sends again."""

    def test_a_batch_sent_again_is_stored_once_and_found(self, port: SegmentPort) -> None:
        key = _new(port)
        port.append(key, [batch(0, 3), batch(3, 5)], producer="p")
        again = port.append(key, [batch(3, 5), batch(5, 6)], producer="p")
        assert again == [AppendResult(3, True), AppendResult(5, False)]
        assert port.append(key, [batch(1, 4)], producer="p") == [AppendResult(-1, True)]
        assert sequences(port, key) == [0, 1, 2, 3, 4, 5]

    def test_a_batch_twice_in_one_call_is_stored_once(self, port: SegmentPort) -> None:
        key = _new(port)
        first, second = port.append(key, [batch(0, 3), batch(0, 3)], producer="p")
        assert (first, second.duplicate) == (AppendResult(0, False), True)
        assert sequences(port, key) == [0, 1, 2]

    def test_a_batch_partly_stored_is_refused_with_the_marks_and_nothing_of_the_call_is_stored(
        self, port: SegmentPort
    ) -> None:
        key = _new(port)
        port.append(key, [batch(0, 3)], producer="p")
        with pytest.raises(BatchPartlyDuplicate) as caught:
            port.append(key, [batch(3, 4), batch(2, 6)], producer="p")
        assert caught.value.sequence == 2
        assert caught.value.marks == [[0, 65535, 2]]
        assert sequences(port, key) == [0, 1, 2]

    def test_producers_are_told_apart_and_the_unnamed_is_never_checked(self, port: SegmentPort) -> None:
        key = _new(port)
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
        parent, child = _new(port), _new(port)
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
        key, child = _new(port), _new(port)
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


class CursorSuite:
    """Acknowledgements and their fences."""

    def _ready(self, port: SegmentPort) -> SegmentKey:
        key = _new(port, "s")
        port.append(key, [batch(0, 10)], producer="p")
        return key

    def test_an_acknowledgement_moves_up_and_never_back(self, port: SegmentPort) -> None:
        key = self._ready(port)
        positions = [
            port.acknowledge(key, subscription="s", generation=0, position=position).position
            for position in (3, 3, 1, 10, 0)
        ]
        assert positions == [3, 3, 3, 10, 10]
        assert port.cursor(key, subscription="s") == CursorState("s", 10, 0, 0)

    def test_acknowledgements_of_another_generation_are_refused_by_name(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.own(key, subscription="s", generation=2)
        port.own(key, subscription="s", generation=1)
        for generation in (0, 1, 3):
            with pytest.raises(GenerationSuperseded) as caught:
                port.acknowledge(key, subscription="s", generation=generation, position=5)
            assert caught.value.current_generation == 2
        assert port.acknowledge(key, subscription="s", generation=2, position=5).position == 5
        with pytest.raises(GenerationSuperseded):
            port.acknowledge(key, subscription="s", generation=1, position=5)

    def test_positions_behind_the_end_and_unknown_cursors_are_refused(self, port: SegmentPort) -> None:
        key = self._ready(port)
        for position in (11, -1):
            with pytest.raises(PositionInvalid):
                port.acknowledge(key, subscription="s", generation=0, position=position)
        for ask in (
            lambda: port.acknowledge(key, subscription="other", generation=0, position=1),
            lambda: port.seek(key, subscription="other", position=1),
            lambda: port.own(key, subscription="other", generation=1),
        ):
            with pytest.raises(SubscriptionNotFound):
                ask()
        assert port.cursor(key, subscription="other") is None

    def test_acknowledgements_of_a_sealed_segment_are_taken(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.terminate(key, fence=None)
        assert port.acknowledge(key, subscription="s", generation=0, position=10).position == 10

    def test_a_seek_goes_both_ways_and_refuses_earlier_acknowledgements(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.acknowledge(key, subscription="s", generation=0, position=8, incarnation=0)
        assert port.seek(key, subscription="s", position=2) == CursorState("s", 2, 1, 0)
        with pytest.raises(CursorSought) as caught:
            port.acknowledge(key, subscription="s", generation=0, position=9, incarnation=0)
        assert caught.value.current == 1
        assert port.acknowledge(key, subscription="s", generation=0, position=3, incarnation=1).position == 3
        assert port.seek(key, subscription="s", position=10).position == 10
        port.trim(key, before_offset=10, max_batches=1)
        for position in (9, 11):
            with pytest.raises(PositionInvalid):
                port.seek(key, subscription="s", position=position)

    def test_cursors_begin_where_told_and_are_removed(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.create_cursor(key, subscription="latest", position=10)
        port.create_cursor(key, subscription="latest", position=4)
        port.append(key, [batch(10, 11)], producer="p")
        port.trim(key, before_offset=10, max_batches=1)
        port.create_cursor(key, subscription="earliest", position=None)
        found = {cursor.subscription: cursor.position for cursor in port.cursors(key)}
        assert found == {"s": 0, "latest": 10, "earliest": 10}
        for _ in range(2):
            port.delete_cursor(key, subscription="s")
        assert port.cursor(key, subscription="s") is None

    def test_acknowledgements_and_a_new_owner_at_the_same_time(self, port: SegmentPort) -> None:
        """Once the generation has moved, no acknowledgement of the former owner moves the cursor."""
        key = self._ready(port)
        start = Barrier(3)

        def former_owner() -> int:
            start.wait(20)
            reached = 0
            for position in range(1, 10):
                try:
                    reached = port.acknowledge(
                        key, subscription="s", generation=0, position=position
                    ).position
                except GenerationSuperseded:
                    break
            return reached

        def new_owner() -> int:
            start.wait(20)
            port.own(key, subscription="s", generation=1)
            cursor = port.cursor(key, subscription="s")
            assert cursor is not None
            return cursor.position

        *reached, seen = in_threads([former_owner, former_owner, new_owner])
        final = port.cursor(key, subscription="s")
        assert final is not None
        assert final.position == seen == max(reached)


class LineageSuite:
    """A producer that sends again, across splits and merges."""

    histories = 40

    def test_whatever_is_sent_again_is_stored_exactly_once_and_in_order(self, port: SegmentPort) -> None:
        @settings(max_examples=self.histories, deadline=None, derandomize=True)
        @given(st.data())
        def history(data: st.DataObject) -> None:
            check_history(port, data)

        history()


class SegmentSuite(StoreSuite, AppendSuite, DuplicateSuite, CursorSuite, LineageSuite):
    """All promises; an adapter's test class inherits it and gives the fixture `port`."""
