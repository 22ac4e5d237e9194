"""The state of the load report: recent samples, how far each node has come, what was reported.

One step takes the rows of a micro-batch and gives what is to be reported. A step is a pure function of the
state and the rows (and of the clock, only against nodes whose clock is ahead of it), so a step that is
repeated after a crash reports the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec

from scalable.domain.load import DEFAULT_CHANGE_THRESHOLD, SegmentRates, is_material
from spark.recent import Keys, Sample, Series, Tile, minute_of

VERSION = 2
CLOCK_TOLERANCE_MS = 60_000
"""A node whose clock is ahead by more is not believed, and as long as it lives nothing is complete."""
FIRST_GAP_MS = 10_000
SHORTEST_GAP_MS, LONGEST_GAP_MS = 1_000, 60_000
SILENT_AFTER_GAPS = 3
RETENTION_MS = 3_600_000
"""How long a segment or node that fell silent is remembered."""
LATE_MS = 300_000
"""How long the minutes are kept that a silent node may still tell of; nothing is kept so while all speak."""
REFRESH_MS = 30_000
"""After this long everything is reported again, in case the other side has lost or never taken it."""
REFRESHED_FOR_MS = 300_000
"""Not a segment that was silent for longer than this: sealed ones come to this end."""
OPEN_TILE_MS = 5_000
"""How often the tile of the running minute is sent."""

MESSAGE_KEY = ("node", "sequence", "segment_id", "offset")
"""What tells the rows of a message from others, and the order in which they are to be read."""

Row = Mapping[str, Any]
SegmentRef = tuple[int, int]


class NodeMark(msgspec.Struct):
    """How far a node has come: its last message's number and time, and how far apart its messages are."""

    sequence: int
    at_ms: int
    gap_ms: int = FIRST_GAP_MS

    @property
    def silent_after_ms(self) -> int:
        """A node that says nothing for longer than this is taken to be gone, and not waited for."""
        return _silent_after_ms(self.gap_ms)


class LoadUpdate(msgspec.Struct, kw_only=True):
    """What one step has to report (bodies of `scalable.wire.loads`), and what it saw."""

    watermark_ms: int | None
    loads: list[dict[str, Any]] = []
    tiles: list[dict[str, Any]] = []
    minutes: list[dict[str, Any]] = []
    """Rows of the history (`spark.history`): the minutes that ended with this step, or got more samples."""
    messages: int = 0
    samples: int = 0
    repeats: int = 0
    unreadable: int = 0
    """Messages that are none."""
    broken: int = 0
    """Samples that break a rule of the format."""
    missing: int = 0
    """Messages whose numbers were passed over: their node has given them up."""
    late: int = 0
    """Samples of a minute that was let go: their messages are in no tile and in no row of the history."""
    ahead: list[str] = []
    """Nodes that live and are not believed, since their clock is ahead: nothing is complete without them."""


class LoadState(msgspec.Struct, kw_only=True):
    """Everything that one step leaves to the next."""

    version: int = VERSION
    nodes: dict[str, NodeMark] = {}
    series: dict[SegmentRef, Series] = {}
    watermark_ms: int | None = None
    refreshed_ms: int = 0
    open_tiles_ms: int = 0
    ahead: dict[str, int] = {}
    """Nodes whose clock is ahead, with the time of the reader's clock until which each counts as alive."""

    def step(
        self, rows: Iterable[Row], *, now_ms: int, change_threshold: float = DEFAULT_CHANGE_THRESHOLD
    ) -> LoadUpdate:
        """Take in the rows of a micro-batch (`spark.samples.sample_rows`) and give what is to be reported.

        The rows of a message are together, and a node's messages in the order of their numbers. Rates are
        reported that moved by more than the threshold, a part of what was reported last.
        """
        update = LoadUpdate(watermark_ms=self.watermark_ms)
        for message in _messages(rows, update):
            self._take(message, update, now_ms)
        self.ahead = {node: until_ms for node, until_ms in self.ahead.items() if until_ms > now_ms}
        update.ahead = sorted(self.ahead)
        if not self.nodes:
            return update
        watermark_ms = update.watermark_ms = self._advance(now_ms)
        for series in self.series.values():
            series.advance(watermark_ms)
        update.loads = list(self._loads(watermark_ms, change_threshold))
        for each in self._tiles(watermark_ms):
            update.tiles.append({**_tile(*each), "observedMs": each[0].observed_ms(each[1])})
            if each[1] < minute_of(each[0].told_ms):
                update.minutes.append(_minute(*each))
        self._forget(watermark_ms)
        return update

    def _take(self, message: Iterator[Row], update: LoadUpdate, now_ms: int) -> None:
        head = next(message)
        node, at_ms = head["node"], head["at_ms"]
        mark = self.nodes.get(node)
        if at_ms > now_ms + CLOCK_TOLERANCE_MS:
            self.ahead[node] = now_ms + _silent_after_ms(head.get("every_ms") or FIRST_GAP_MS)
            return
        self.ahead.pop(node, None)
        if mark is not None and head["sequence"] <= mark.sequence:
            update.repeats += 1
            return
        if mark is not None:
            update.missing += head["sequence"] - mark.sequence - 1
        self.nodes[node] = _next_mark(mark, head)
        update.messages += 1
        for row in chain([head], message):
            update.broken += row.get("broken", False)
            if row["topic"] is not None:
                update.samples += 1
                update.late += not self._add(row, at_ms)

    def _add(self, row: Row, at_ms: int) -> bool:
        start_ms, interval_ms = at_ms - row["intervalMs"], row.get("everyMs") or row["intervalMs"]
        ref = (row["incarnation"], row["segmentId"])
        series = self.series.get(ref)
        if series is None:
            series = self.series[ref] = Series(
                topic=row["topic"],
                incarnation=row["incarnation"],
                segment_id=row["segmentId"],
                born_ms=start_ms,
                seen_until_ms=at_ms,
                window_ms=row["windowMs"],
                interval_ms=interval_ms,
            )
        counts = (row["msgIn"], row["bytesIn"], row["msgOut"], row["bytesOut"])
        sample = Sample(start_ms, at_ms, counts, tuple(row["parts"]), _keys(row.get("hotKeys")))
        in_time = series.add(sample, window_ms=row["windowMs"], interval_ms=interval_ms)
        return in_time or not any(counts)

    def _advance(self, now_ms: int) -> int:
        """Move the watermark to the time up to which every live node has said all; it never moves back.

        Nothing is complete that has not happened yet: a node whose clock is ahead makes the others neither
        silent nor late.
        """
        marks = [(min(mark.at_ms, now_ms), mark.silent_after_ms) for mark in self.nodes.values()]
        newest_ms = max(at_ms for at_ms, _ in marks)
        told_ms = min(at_ms for at_ms, silent_after_ms in marks if newest_ms - at_ms <= silent_after_ms)
        if self.watermark_ms is None or not self.ahead:
            self.watermark_ms = max(told_ms, self.watermark_ms or 0)
        return self.watermark_ms

    def _loads(self, watermark_ms: int, change_threshold: float) -> Iterator[dict[str, Any]]:
        refresh = watermark_ms - self.refreshed_ms >= REFRESH_MS
        if refresh:
            self.refreshed_ms = watermark_ms
        for series in self.series.values():
            rates = series.rates()
            if rates is None:
                continue
            silent_ms = watermark_ms - series.seen_until_ms
            repeat = refresh and silent_ms <= REFRESHED_FOR_MS + series.interval_ms
            changed = is_material(series.reported, rates, change_threshold)
            if changed:  # what is only told again is not written: it would let two thresholds add up
                series.reported = rates
            if changed or repeat:
                yield _load(series, rates)

    def _tiles(self, watermark_ms: int) -> Iterator[tuple[Series, int, Tile]]:
        """The minutes that ended with this step or got more samples, and now and then the open ones."""
        with_open = watermark_ms - self.open_tiles_ms >= OPEN_TILE_MS
        if with_open:
            self.open_tiles_ms = watermark_ms
        for series in self.series.values():
            minutes = series.close()
            if with_open:
                minutes.append(minute_of(series.told_ms))
            for minute_ms in minutes:
                tile = series.tile(minute_ms)
                if tile is not None:
                    yield series, minute_ms, tile

    def _forget(self, watermark_ms: int) -> None:
        oldest_ms = watermark_ms - RETENTION_MS
        self.nodes = {node: mark for node, mark in self.nodes.items() if mark.at_ms >= oldest_ms}
        recent = (mark.at_ms for mark in self.nodes.values() if mark.at_ms >= watermark_ms - LATE_MS)
        heard_ms = min(recent, default=watermark_ms)
        for series in self.series.values():
            series.forget(min(heard_ms, watermark_ms))
        self.series = {
            ref: series
            for ref, series in self.series.items()
            if series.seen_until_ms >= oldest_ms - series.interval_ms
        }

    def upgrade(self) -> None:
        """Take over what a reporter of an earlier version kept: of minutes that ended it has only parts."""
        self.version, open_ms = VERSION, minute_of(self.watermark_ms or 0)
        for series in self.series.values():
            series.closed_ms = series.kept_ms = open_ms


def encode_state(state: LoadState) -> bytes:
    """The durable form."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> LoadState | None:
    """Read the durable form, also that of the version before; None when it is damaged or of another one."""
    try:
        state = msgspec.msgpack.decode(data, type=LoadState)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if state.version == VERSION - 1:
        state.upgrade()
    return state if state.version == VERSION else None


def _messages(rows: Iterable[Row], update: LoadUpdate) -> Iterator[Iterator[Row]]:
    """Group the rows by message; a repeat is a message too."""
    for key, message in groupby(rows, key=itemgetter(*MESSAGE_KEY)):
        if key[0] is None:
            update.unreadable += 1
        else:
            yield message


def _next_mark(mark: NodeMark | None, head: Row) -> NodeMark:
    """How far a node has come with this message; more of the same time follows one that is not complete."""
    sequence, at_ms = head["sequence"], head["at_ms"] if head["complete"] else head["at_ms"] - 1
    every_ms = head.get("every_ms")
    if mark is None:
        return NodeMark(sequence, at_ms, every_ms or FIRST_GAP_MS)
    if not head["complete"]:
        return NodeMark(sequence, mark.at_ms, mark.gap_ms)
    # A node of an earlier version does not tell how often it speaks, and sometimes does so in between.
    gap_ms = every_ms or max(at_ms - mark.at_ms, mark.gap_ms // 2)
    return NodeMark(sequence, max(at_ms, mark.at_ms), gap_ms)


def _silent_after_ms(gap_ms: int) -> int:
    return SILENT_AFTER_GAPS * min(max(gap_ms, SHORTEST_GAP_MS), LONGEST_GAP_MS)


def _load(series: Series, rates: SegmentRates) -> dict[str, Any]:
    return {**_names(series), **rates.by_metric()}


def _tile(series: Series, minute_ms: int, tile: Tile) -> dict[str, Any]:
    return {**_names(series), "minuteMs": minute_ms, "mean": tile[0], "max": tile[1]}


def _minute(series: Series, minute_ms: int, tile: Tile) -> dict[str, Any]:
    rates, observed_ms = series.minute_rates(minute_ms)
    keys = series.minute_keys(minute_ms)
    hot = [{"key": key, "count": count} for key, count in sorted(keys.counts.items())]
    measured = {"observedMs": observed_ms, **rates.by_metric()}
    told = {"hotKeys": hot, "keysSeen": keys.seen, "keysError": keys.error}
    return {**_tile(series, minute_ms, tile), **measured, **told}


def _keys(told: Mapping[str, Any] | None) -> Keys | None:
    """Read what a sample tells of keys; Spark's driver gives a map as pairs."""
    return None if told is None else Keys(told["seen"], told["error"], dict(told["counts"]))


def _names(series: Series) -> dict[str, Any]:
    return {"topic": series.topic, "incarnation": series.incarnation, "segmentId": series.segment_id}
