"""The state of the load report: recent samples, how far each node has come, what was reported.

One step takes the rows of a micro-batch and gives what is to be reported. A step is a pure function of the
state and the rows (and of the clock, only to refuse samples from the future), so a step that is repeated
after a crash reports the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from scalable.domain.load import DEFAULT_CHANGE_THRESHOLD, SegmentRates, is_material
from spark.recent import MINUTE_MS, Keys, Sample, Series, Tile, minute_of

VERSION = 1
CLOCK_TOLERANCE_MS = 60_000
FIRST_GAP_MS = 10_000
SHORTEST_GAP_MS, LONGEST_GAP_MS = 1_000, 60_000
SILENT_AFTER_GAPS = 3
RETENTION_MS = 3_600_000
"""How long a segment or node that fell silent is remembered."""
REFRESH_MS = 30_000
"""After this long everything is reported again, in case the other side has lost or never taken it."""
REFRESHED_FOR_MS = 300_000
"""Not a segment that was silent for longer than this: sealed ones come to this end."""
OPEN_TILE_MS = 5_000
"""How often the tile of the running minute is sent."""

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
        return SILENT_AFTER_GAPS * min(max(self.gap_ms, SHORTEST_GAP_MS), LONGEST_GAP_MS)


class LoadUpdate(msgspec.Struct, kw_only=True):
    """What one step has to report (bodies of `scalable.wire.loads`), and what it saw."""

    watermark_ms: int | None
    loads: list[dict[str, Any]] = []
    tiles: list[dict[str, Any]] = []
    minutes: list[dict[str, Any]] = []
    """Rows of the history (`spark.history`): the minutes that ended with this step."""
    messages: int = 0
    samples: int = 0
    repeats: int = 0
    unreadable: int = 0


class LoadState(msgspec.Struct, kw_only=True):
    """Everything that one step leaves to the next."""

    version: int = VERSION
    nodes: dict[str, NodeMark] = {}
    series: dict[SegmentRef, Series] = {}
    watermark_ms: int | None = None
    refreshed_ms: int = 0
    open_tiles_ms: int = 0

    def step(
        self, rows: Iterable[Row], *, now_ms: int, change_threshold: float = DEFAULT_CHANGE_THRESHOLD
    ) -> LoadUpdate:
        """Take in the rows of a micro-batch (`spark.samples.sample_rows`) and give what is to be reported.

        Rates are reported that moved by more than the threshold, a part of what was reported last.
        """
        update = LoadUpdate(watermark_ms=self.watermark_ms)
        for message in _messages(rows, update):
            self._take(message, update, now_ms)
        if not self.nodes:
            return update
        before_ms, after_ms = self.watermark_ms, self._advance()
        update.watermark_ms = after_ms
        update.loads = list(self._loads(after_ms, change_threshold))
        tiles = list(self._tiles(before_ms, after_ms))
        update.tiles = [
            {**_tile(*each), "observedMs": each[0].observed_ms(each[1], after_ms)} for each in tiles
        ]
        update.minutes = [_minute(*each) for each in tiles if each[1] < minute_of(after_ms)]
        self._forget(after_ms)
        return update

    def _take(self, message: list[Row], update: LoadUpdate, now_ms: int) -> None:
        head = message[0]
        mark, at_ms = self.nodes.get(head["node"]), head["at_ms"]
        if at_ms > now_ms + CLOCK_TOLERANCE_MS:
            update.unreadable += 1
            return
        if mark is not None and head["sequence"] <= mark.sequence:
            update.repeats += 1
            return
        self.nodes[head["node"]] = _next_mark(mark, head)
        update.messages += 1
        for row in message:
            if row["topic"] is not None:
                self._add(row, at_ms)
                update.samples += 1

    def _add(self, row: Row, at_ms: int) -> None:
        start_ms = at_ms - row["intervalMs"]
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
                interval_ms=row["intervalMs"],
            )
        counts = (row["msgIn"], row["bytesIn"], row["msgOut"], row["bytesOut"])
        sample = Sample(start_ms, at_ms, counts, tuple(row["parts"]), _keys(row.get("hotKeys")))
        series.add(sample, window_ms=row["windowMs"])

    def _advance(self) -> int:
        """Move the watermark to the time up to which every live node has said all; it never moves back."""
        newest_ms = max(mark.at_ms for mark in self.nodes.values())
        live = (mark.at_ms for mark in self.nodes.values() if newest_ms - mark.at_ms <= mark.silent_after_ms)
        self.watermark_ms = max(min(live), self.watermark_ms or 0)
        return self.watermark_ms

    def _loads(self, watermark_ms: int, change_threshold: float) -> Iterator[dict[str, Any]]:
        refresh = watermark_ms - self.refreshed_ms >= REFRESH_MS
        if refresh:
            self.refreshed_ms = watermark_ms
        for series in self.series.values():
            rates = series.rates(watermark_ms)
            if rates is None:
                continue
            repeat = refresh and watermark_ms - series.seen_until_ms <= REFRESHED_FOR_MS
            if repeat or is_material(series.reported, rates, change_threshold):
                series.reported = rates
                yield _load(series, rates)

    def _tiles(self, before_ms: int | None, after_ms: int) -> Iterator[tuple[Series, int, Tile]]:
        """The minutes that ended with this step, and now and then the open one."""
        first, open_minute = minute_of(before_ms or 0), minute_of(after_ms)
        last = open_minute - MINUTE_MS
        if after_ms - self.open_tiles_ms >= OPEN_TILE_MS:
            self.open_tiles_ms, last = after_ms, open_minute
        if first > last:
            return
        for series in self.series.values():
            for minute_ms in sorted(series.minutes()):
                tile = series.tile(minute_ms, after_ms) if first <= minute_ms <= last else None
                if tile is not None:
                    yield series, minute_ms, tile

    def _forget(self, watermark_ms: int) -> None:
        oldest_ms = watermark_ms - RETENTION_MS
        self.nodes = {node: mark for node, mark in self.nodes.items() if mark.at_ms >= oldest_ms}
        for series in self.series.values():
            series.forget(watermark_ms)
        self.series = {
            ref: series for ref, series in self.series.items() if series.seen_until_ms >= oldest_ms
        }


def encode_state(state: LoadState) -> bytes:
    """The durable form."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> LoadState | None:
    """Read the durable form; None when it is damaged or of another version."""
    try:
        state = msgspec.msgpack.decode(data, type=LoadState)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return state if state.version == VERSION else None


def _messages(rows: Iterable[Row], update: LoadUpdate) -> Iterator[list[Row]]:
    """Group the rows by message, each node's in the order of their numbers; a repeat is a message too."""
    readable = []
    for row in rows:
        if row["node"] is None:
            update.unreadable += 1
        else:
            readable.append(row)
    message_key = itemgetter("node", "sequence", "segment_id", "offset")
    readable.sort(key=message_key)
    for _, message in groupby(readable, key=message_key):
        yield list(message)


def _next_mark(mark: NodeMark | None, head: Row) -> NodeMark:
    """How far a node has come with this message; more of the same time follows one that is not complete."""
    sequence, at_ms = head["sequence"], head["at_ms"] if head["complete"] else head["at_ms"] - 1
    if mark is None:
        return NodeMark(sequence, at_ms)
    if not head["complete"]:
        return NodeMark(sequence, mark.at_ms, mark.gap_ms)
    return NodeMark(sequence, max(at_ms, mark.at_ms), at_ms - mark.at_ms)


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
