"""The last minutes of load: what splits, merges and pruning must not change, and what is not known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.autoscale_view import View
from scalable.domain.keyspace import KEYSPACE_SIZE, HashRange
from scalable.domain.layout import Layout
from scalable.domain.load import LoadRecord, SegmentRates
from scalable.domain.recent import HIGHEST_FACTOR_OUT, MINUTE_MS, Minute, Recent, recent
from scalable.domain.segment import Segment
from tests.domain.autoscale_cases import NOW_MS, load, snapshot

START_MS = NOW_MS // MINUTE_MS * MINUTE_MS
RATE = 6_400.0
PARTS = 32
PEAK_SECONDS = 600


@dataclass
class Past:
    """A topic after some splits and merges: as it is, and with all segments that it ever had."""

    layout: Layout
    whole: Layout
    now_ms: int

    @property
    def pruned(self) -> dict[int, HashRange]:
        """Give the ranges of the segments that were pruned."""
        gone = self.whole.segments.keys() - self.layout.segments.keys()
        return {key: self.whole.segments[key].hash_range for key in gone}

    def recent(self, minutes: Sequence[Minute], records: dict[int, LoadRecord]) -> Recent:
        """Tell the last minutes."""
        return recent(
            self.layout,
            minutes,
            records,
            past=self.pruned,
            now_ms=self.now_ms,
            peak_seconds=PEAK_SECONDS,
        )


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Give a topic that was changed at any instants of some minutes, also several times in one."""
    now_ms = START_MS + draw(st.integers(4 * MINUTE_MS, 9 * MINUTE_MS))
    layout = Layout.initial(draw(st.integers(1, 3)), START_MS)
    for at_ms in sorted(draw(st.lists(st.integers(START_MS + 1, now_ms - 1), max_size=6))):
        place = draw(st.integers(0, len(layout.active) - 1))
        run = [each.segment_id for each in layout.active[place : place + 2]]
        merges = len(run) > 1 and draw(st.booleans())
        plan = layout.plan_merge(run) if merges else layout.plan_split(run[0])
        layout = layout.apply(plan, at_ms)
    left = layout
    for segment_id in sorted(layout.segments):
        segment = left.segments[segment_id]
        if not segment.is_active and not segment.parent_ids and draw(st.booleans()):
            left = left.prune(segment_id)
    return Past(left, layout, now_ms)


def rate_of(segment: Segment) -> float:
    """Give a segment's part of a load that is steady and even."""
    return RATE * segment.hash_range.size / KEYSPACE_SIZE


def tiles(past: Past) -> Iterator[Minute]:
    """Give what the pipeline tells of a steady load.

    Means are over the time since a segment was born, up to the end of the minute also where it was sealed.
    """
    for segment in past.whole.segments.values():
        sealed_ms = past.now_ms if segment.is_active else segment.sealed_at_ms
        for minute_ms in range(START_MS, past.now_ms, MINUTE_MS):
            seen_ms = max(minute_ms, segment.created_at_ms)
            until_ms = min(minute_ms + MINUTE_MS, past.now_ms)
            sending_ms = min(until_ms, sealed_ms) - seen_ms
            if sending_ms > 0:
                mean = rate_of(segment) * sending_ms / (until_ms - seen_ms) / PARTS
                yield Minute(segment.segment_id, minute_ms, [mean] * PARTS, until_ms - seen_ms)


@given(pasts())
def test_a_steady_load_has_no_peaks_and_no_trend_whatever_took_it_and_whatever_was_pruned(past: Past) -> None:
    records = {
        each.segment_id: LoadRecord(SegmentRates(rate_of(each)), past.now_ms) for each in past.layout.active
    }
    found = past.recent(list(tiles(past)), records)
    assert found.trends.keys() == found.peaks.keys() == records.keys()
    for key, record in records.items():
        steady = record.rates.msg_rate_in
        assert all(peak.rates.msg_rate_in == pytest.approx(steady) for peak in found.peaks[key])
        assert found.trends[key].slopes[0] == pytest.approx(0, abs=steady / 1e6)


@given(pasts(), st.integers(1, 3))
def test_a_busier_minute_counts_for_all_who_have_its_range_now(past: Past, busy: int) -> None:
    busy_ms = START_MS + busy * MINUTE_MS
    minutes = [
        Minute(each.segment_id, each.minute_ms, [3 * rate for rate in each.parts], each.observed_ms)
        if each.minute_ms == busy_ms
        else each
        for each in tiles(past)
    ]
    records = {
        each.segment_id: LoadRecord(SegmentRates(rate_of(each)), past.now_ms) for each in past.layout.active
    }
    found = past.recent(minutes, records)
    for each in past.layout.active:
        highest = max(found.peaks[each.segment_id], key=lambda peak: peak.rates.msg_rate_in)
        assert highest.rates.msg_rate_in == pytest.approx(3 * rate_of(each))
        assert highest.until_ms == busy_ms + MINUTE_MS + PEAK_SECONDS * 1_000


BY_MINUTE = st.dictionaries(st.integers(0, 30), st.integers(0, 50).map(float), max_size=20)


def one_segment(by_minute: dict[int, float], record: LoadRecord | None, now_ms: int) -> Recent:
    """Tell the minutes of a topic with one segment."""
    minutes = [Minute(0, START_MS + at * MINUTE_MS, (rate,)) for at, rate in by_minute.items()]
    loads = {} if record is None else {0: record}
    layout = Layout.initial(1, START_MS)
    return recent(layout, minutes, loads, past={}, now_ms=now_ms, peak_seconds=PEAK_SECONDS)


@given(BY_MINUTE, st.integers(0, 50), st.integers(31 * 60, 60 * 60))
def test_peaks_tell_for_each_later_instant_what_was_highest_so_long_before_it(
    by_minute: dict[int, float], rate: int, later_seconds: int
) -> None:
    now_ms, later_ms = START_MS + 31 * MINUTE_MS, START_MS + later_seconds * 1_000
    record = load(float(rate))
    by_minute = {30: 1.0, **by_minute}
    peaks = one_segment(by_minute, record, now_ms).peaks
    case = snapshot(1, {0: record}, {"mergePeakSeconds": PEAK_SECONDS}, peaks=peaks)
    of_last = (
        minute
        for at, minute in by_minute.items()
        if START_MS + (at + 1) * MINUTE_MS > later_ms - PEAK_SECONDS * 1_000
    )
    expected = max((float(rate), *of_last))
    assert View(case, now_ms).with_peak_at(0, later_ms)[0] == pytest.approx(expected)


POSITIVE = st.floats(0.01, 1e6)


@given(
    st.builds(SegmentRates, POSITIVE, POSITIVE, POSITIVE, POSITIVE),
    st.lists(st.floats(0, 1e6), min_size=3, max_size=6),
)
def test_bytes_in_go_with_messages_in_and_rates_out_within_bounds(
    rates: SegmentRates, series: list[float]
) -> None:
    """A topic of which much more is read than comes in, by consumers that catch up, has no such peak."""
    count = len(series)
    found = one_segment(dict(enumerate(series)), LoadRecord(rates, NOW_MS), START_MS + count * MINUTE_MS)
    size = rates.bytes_rate_in / rates.msg_rate_in
    for peak in found.peaks[0]:
        assert peak.rates.bytes_rate_in == pytest.approx(peak.rates.msg_rate_in * size)
        assert peak.rates.msg_rate_out <= HIGHEST_FACTOR_OUT * rates.msg_rate_out * (1 + 1e-9)
        assert peak.rates.bytes_rate_out <= HIGHEST_FACTOR_OUT * rates.bytes_rate_out * (1 + 1e-9)
    messages, bytes_in, messages_out, bytes_out = found.trends[0].slopes
    assert bytes_in == pytest.approx(messages * size, rel=1e-9, abs=1e-9)
    span_seconds = (count - 1) * 60
    assert abs(messages_out) * span_seconds <= rates.msg_rate_out * (1 + 1e-9)
    assert abs(bytes_out) * span_seconds <= rates.bytes_rate_out * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rate", "minutes", "trend", "peak"),
    [
        (10, [], False, False),
        (10, [1], False, False),
        (10, [29], False, True),
        (10, [28, 29, 30], True, True),
        (0, [], True, True),
        (0, [1], True, True),
        (None, [], False, False),
        (None, [30], False, True),
    ],
)
def test_what_the_minutes_do_not_tell_is_not_known_but_of_an_idle_segment(
    rate: float | None, minutes: list[int], trend: bool, peak: bool
) -> None:
    record = None if rate is None else load(rate)
    found = one_segment(dict.fromkeys(minutes, 10.0), record, START_MS + 31 * MINUTE_MS)
    assert (0 in found.trends, 0 in found.peaks) == (trend, peak)
