"""The recent samples of one segment, and what follows from them alone: rates at a moment, tiles of a minute.

Nothing is accumulated: each answer is computed anew from the samples that are kept, so that a repeated step
gives the same answer and no message can count twice. A series is complete up to a multiple of its topic's
interval, for this is when nodes tell what they counted; what came after it is told with the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalable.domain.load import SegmentRates
from scalable.domain.sketch import HotKeys

PARTS = 32
MINUTE_MS = 60_000
MOST_CELLS = 60
KEYS_OF_A_MINUTE = 16
KEY_PARTS = 2**20
"""Parts of a message, in which keys are counted while samples are united."""
Tile = tuple[list[float], list[float]]
"""Mean and largest rate of incoming messages, per part of a segment's range."""
KNOWN_AFTER = 0.5
"""Part of its window that a segment must have been observed for before its rates are told."""


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """Hot keys of a sample, see `scalable.domain.sketch`."""

    seen: int
    error: int
    counts: dict[str, int]


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Messages and bytes in and out during (start, end], and messages in per 1/32 of the segment's range."""

    start_ms: int
    end_ms: int
    counts: tuple[int, int, int, int]
    parts: tuple[int, ...]
    keys: Keys | None = None

    def overlap(self, start_ms: int, end_ms: int) -> float:
        """The part of this sample that lies in the span; its messages are taken to be spread evenly."""
        common = min(self.end_ms, end_ms) - max(self.start_ms, start_ms)
        return max(0, common) / (self.end_ms - self.start_ms)


class Series(msgspec.Struct, kw_only=True):
    """A segment's recent samples of all nodes; `born_ms` is the start of the first one ever seen.

    It is complete up to `told_ms`. Minutes before `closed_ms` were told as ended, and those from `kept_ms` on
    can be told anew: all their samples are there. `late` are the ended ones that more samples came for.
    """

    topic: str
    incarnation: int
    segment_id: int
    born_ms: int
    seen_until_ms: int
    window_ms: int
    interval_ms: int
    samples: list[Sample] = []
    reported: SegmentRates | None = None
    told_ms: int = 0
    closed_ms: int = 0
    kept_ms: int = 0
    late: set[int] = set()

    def add(self, sample: Sample, *, window_ms: int, interval_ms: int) -> bool:
        """Take in one sample, and tell whether all its minutes can still be told.

        The latest window and interval rule.
        """
        self.samples.append(sample)
        self.window_ms, self.interval_ms = window_ms, interval_ms
        self.born_ms = min(self.born_ms, sample.start_ms)
        self.seen_until_ms = max(self.seen_until_ms, sample.end_ms)
        if sample.start_ms < self.closed_ms:
            ended = (minute for minute in _minutes(sample) if self.kept_ms <= minute < self.closed_ms)
            self.late.update(ended)
        return sample.start_ms >= self.kept_ms

    def advance(self, watermark_ms: int) -> None:
        """Go on to the last end of an interval that nodes have told everything up to; never back."""
        self.told_ms = max(self.told_ms, watermark_ms - watermark_ms % self.interval_ms)

    def close(self) -> list[int]:
        """Give the minutes with samples to tell as ended: each once, and again when more came for it."""
        open_ms = minute_of(self.told_ms)
        if open_ms == self.closed_ms and not self.late:
            return []
        ended = {minute for minute in self.minutes() if self.closed_ms <= minute < open_ms} | self.late
        self.closed_ms, self.late = max(self.closed_ms, open_ms), set()
        return sorted(ended)

    def forget(self, heard_ms: int) -> None:
        """Drop what neither the window nor a minute needs that is open, or that one may still tell of.

        Nobody will tell of a time before `heard_ms`.
        """
        horizon_ms = minute_of(min(self.told_ms, heard_ms))
        self.kept_ms = max(self.kept_ms, horizon_ms)
        needed_ms = min(horizon_ms, self.told_ms - self.window_ms)
        self.samples = [sample for sample in self.samples if sample.end_ms > needed_ms]

    def rates(self) -> SegmentRates | None:
        """Rates per second over the window that ends at `told_ms`, or over the segment's life if shorter.

        None while the segment was observed for less than half of its window: a moment is no rate.
        """
        start_ms = max(self.told_ms - self.window_ms, self.born_ms)
        span_ms = self.told_ms - start_ms
        if span_ms <= 0 or span_ms < self.window_ms * KNOWN_AFTER:
            return None
        return self._mean_rates(start_ms, self.told_ms)

    def minute_rates(self, minute_ms: int) -> tuple[SegmentRates, int]:
        """Rates per second over an ended minute, and for how many ms of it the segment was observed.

        The rates are over that part of the minute.
        """
        start_ms, end_ms = self._observed(minute_ms)
        return self._mean_rates(start_ms, end_ms), end_ms - start_ms

    def observed_ms(self, minute_ms: int) -> int:
        """Give for how long of a minute, as far as it is told, the segment was observed."""
        start_ms, end_ms = self._observed(minute_ms)
        return end_ms - start_ms

    def _observed(self, minute_ms: int) -> tuple[int, int]:
        return max(minute_ms, self.born_ms), min(minute_ms + MINUTE_MS, self.told_ms)

    def minute_keys(self, minute_ms: int) -> HotKeys:
        """Give the hot keys of the samples that ended in a minute."""
        end_ms = minute_ms + MINUTE_MS
        return _hot_keys([sample for sample in self.samples if minute_ms < sample.end_ms <= end_ms])

    def _mean_rates(self, start_ms: int, end_ms: int) -> SegmentRates:
        totals = [0.0, 0.0, 0.0, 0.0]
        for sample in self.samples:
            weight = sample.overlap(start_ms, end_ms)
            if weight:
                for axis, count in enumerate(sample.counts):
                    totals[axis] += count * weight
        return SegmentRates(*(total * 1000 / (end_ms - start_ms) for total in totals))

    def minutes(self) -> set[int]:
        """The minutes that the samples touch."""
        return {minute for sample in self.samples for minute in _minutes(sample)}

    def tile(self, minute_ms: int) -> Tile | None:
        """Mean and largest rate per part of one minute, as far as it is told; None without samples.

        The mean is over the part of the minute in which the segment existed; the largest is that of one
        interval.
        """
        start_ms, end_ms = self._observed(minute_ms)
        inside = [sample for sample in self.samples if sample.overlap(start_ms, end_ms)]
        if not inside:
            return None
        width_ms = MINUTE_MS / min(MOST_CELLS, max(1, round(MINUTE_MS / self.interval_ms)))
        cells = _cells(inside, minute_ms, (start_ms, end_ms), width_ms)
        mean = cells.sum(axis=0) * 1000 / (end_ms - start_ms)
        peak = np.maximum(cells.max(axis=0) * 1000 / width_ms, mean)
        return mean.tolist(), peak.tolist()


def minute_of(time_ms: int) -> int:
    """The start of the minute."""
    return time_ms - time_ms % MINUTE_MS


def _minutes(sample: Sample) -> range:
    return range(minute_of(sample.start_ms), sample.end_ms, MINUTE_MS)


def _hot_keys(samples: Iterable[Sample]) -> HotKeys:
    """Unite the keys of samples by the messages that they stand for, in numbers of those looked at.

    A node that looked at a tenth of its messages weighs ten times as much as one that looked at all. Counts
    are added as whole parts of a message, and are then rounded so that the bounds hold.
    """
    looked = [(sample.counts[0], sample.keys) for sample in samples if sample.keys and sample.keys.seen]
    seen, messages = sum(keys.seen for _, keys in looked), sum(count for count, _ in looked)
    found = HotKeys()
    for count, keys in looked:
        weight = round(KEY_PARTS * count / messages * seen / keys.seen) if messages else KEY_PARTS
        weighed = {key: number * weight for key, number in keys.counts.items()}
        found.merge(weighed, seen=keys.seen, error=keys.error * weight)
    hottest = found.top(KEYS_OF_A_MINUTE)
    lost = max((number % KEY_PARTS for number in hottest.counts.values()), default=0)
    counts = {key: number // KEY_PARTS for key, number in hottest.counts.items() if number >= KEY_PARTS}
    return HotKeys(seen=seen, error=-(-(hottest.error + lost) // KEY_PARTS), counts=counts)


def _cells(
    samples: Iterable[Sample], minute_ms: int, span: tuple[int, int], width_ms: float
) -> NDArray[np.float64]:
    """Messages per interval of the minute and per part."""
    cells = np.zeros((round(MINUTE_MS / width_ms), PARTS))
    for sample in samples:
        parts = np.asarray(sample.parts, dtype=np.float64)
        start_ms, end_ms = max(sample.start_ms, span[0]), min(sample.end_ms, span[1])
        first = int((start_ms - minute_ms) // width_ms)
        for cell in range(first, len(cells)):
            cell_start = minute_ms + cell * width_ms
            if cell_start >= end_ms:
                break
            common = min(end_ms, cell_start + width_ms) - max(start_ms, cell_start)
            cells[cell] += parts * (common / (sample.end_ms - sample.start_ms))
    return cells
