"""What every data plane port promises of messages in and out."""

from contextlib import suppress
from threading import Barrier, Event

import pytest

from scalable.domain.errors import (
    BatchInvalid,
    SegmentTerminated,
)
from scalable.segments.port import AppendResult, Fence, SegmentPort
from scalable.wire.batch import Record, encode_batch
from tests.segments.samples import (
    HIGH,
    LOW,
    batch,
    every,
    fresh_key,
    in_threads,
    keys_within,
    new_store,
    sequences,
    stored,
    unnumbered,
)


class AppendSuite:
    """Messages in and out."""

    def test_offsets_have_no_gap_and_records_keep_their_order(self, port: SegmentPort) -> None:
        key = new_store(port)
        results = port.append(key, [batch(0, 3), batch(3, 4)], producer="p")
        results += port.append(key, [unnumbered(2)], producer=None)
        results += port.append(key, [batch(4, 9)], producer="p")
        assert results == [AppendResult(offset, False) for offset in (0, 3, 4, 6)]
        assert sequences(port, key) == [0, 1, 2, 3, -1, -1, 4, 5, 6, 7, 8]
        assert (port.stats(key).start_offset, port.stats(key).end_offset) == (0, 11)

    def test_a_page_begins_at_the_offset_and_ends_at_the_limits(self, port: SegmentPort) -> None:
        key = new_store(port)
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
        key = new_store(port)
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
        key = new_store(port)
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
        key = new_store(port)

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
        key = new_store(port)
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
