"""Load samples made at random, and what the load report must make of them, computed the plain way.

Times are multiples of 100 ms, so a sample's messages can be laid out on slots of that width and counted.
"""

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable.domain.load import SegmentRates

SLOT_MS = 100
EVERY_MS = 1_000
MINUTE_MS = 60_000
PARTS = 32
AXES = ("msgIn", "bytesIn", "msgOut", "bytesOut")

Message = dict[str, Any]
Ref = tuple[int, int]


def make_messages(
    random: Random,
    *,
    refs: Sequence[tuple[str, int, int]],
    start_ms: int,
    seconds: int,
    nodes: Sequence[str] = ("node-a", "node-b", "node-c"),
    window_ms: int = 5_000,
) -> list[Message]:
    """Messages of some nodes, about one a second each, in the order of their times.

    Segments get hot, cold and idle; a segment that falls idle on a node gets one sample of zeros there. A
    sample begins where its node's last message ended: what lies before that may be late by then.
    """
    messages = []
    for node in nodes:
        busy: set[int] = set()
        at_ms = start_ms
        for sequence in range(seconds):
            interval_ms = EVERY_MS + random.choice([-SLOT_MS, 0, 0, SLOT_MS])
            at_ms += interval_ms
            active = {number for number in range(len(refs)) if random.random() < 0.8}
            samples = [
                _sample(random, refs[number], interval_ms, window_ms, busy=number in active)
                for number in sorted(active | busy)
            ]
            busy = active
            messages.append(
                {"node": node, "sequence": sequence, "atMs": at_ms, "complete": True, "samples": samples}
            )
    return sorted(messages, key=lambda message: (message["atMs"], message["node"]))


def with_repeats(random: Random, messages: Sequence[Message]) -> list[Message]:
    """The same messages, some of them once more at some later place."""
    repeated = list(messages)
    for message in random.sample(list(messages), len(messages) // 5):
        repeated.insert(random.randint(repeated.index(message) + 1, len(repeated)), message)
    return repeated


def rows_of(messages: Iterable[Message], first_offset: int = 0) -> list[dict[str, Any]]:
    """The rows that Spark makes of messages (`spark.samples.sample_rows`)."""
    return [
        {
            "segment_id": 0,
            "offset": offset,
            "node": message["node"],
            "sequence": message["sequence"],
            "at_ms": message["atMs"],
            "every_ms": message.get("everyMs"),
            "complete": message["complete"],
            **(sample or dict.fromkeys(["topic", "incarnation", "segmentId"])),
        }
        for offset, message in enumerate(messages, start=first_offset)
        for sample in message["samples"] or [None]
    ]


def encoded(messages: Iterable[Message]) -> list[bytes]:
    """The values as nodes publish them."""
    return [json.dumps(message).encode() for message in messages]


def expected_watermark(messages: Iterable[Message]) -> int:
    """The time up to which all nodes have said everything."""
    newest: dict[str, int] = {}
    for message in messages:
        newest[message["node"]] = max(newest.get(message["node"], 0), message["atMs"])
    return min(newest.values())


class Oracle:
    """The load of one segment on slots of 100 ms."""

    def __init__(self, messages: Sequence[Message], ref: Ref) -> None:
        samples = [
            (message["atMs"], sample)
            for message in _distinct(messages)
            for sample in message["samples"]
            if (sample["incarnation"], sample["segmentId"]) == ref
        ]
        self.start_ms: int = (
            min(at_ms - sample["intervalMs"] for at_ms, sample in samples) // MINUTE_MS * MINUTE_MS
        )
        self.born_ms: int = min(at_ms - sample["intervalMs"] for at_ms, sample in samples)
        self.window_ms = samples[-1][1]["windowMs"]
        slots = (max(at_ms for at_ms, _ in samples) - self.start_ms) // SLOT_MS + MINUTE_MS // SLOT_MS
        self.counts = np.zeros((slots, len(AXES)))
        self.parts = np.zeros((slots, PARTS))
        self.touched = np.zeros(slots, dtype=bool)
        for at_ms, sample in samples:
            self._lay(at_ms, sample)

    def rates(self, watermark_ms: int) -> SegmentRates:
        """Rates over the window that ends at the watermark."""
        start_ms = max(watermark_ms - self.window_ms, self.born_ms)
        span = self.counts[self._slot(start_ms) : self._slot(watermark_ms)]
        return SegmentRates(*(span.sum(axis=0) * 1000 / (watermark_ms - start_ms)).tolist())

    def tile(
        self, minute_ms: int, watermark_ms: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Mean and largest rate per part of the minute up to the watermark; None if no sample touches it."""
        start_ms, end_ms = max(minute_ms, self.born_ms), min(minute_ms + MINUTE_MS, watermark_ms)
        inside = slice(self._slot(start_ms), self._slot(end_ms))
        if not self.touched[inside].any():
            return None
        laid = np.zeros((MINUTE_MS // SLOT_MS, PARTS))
        offset = (start_ms - minute_ms) // SLOT_MS
        laid[offset : offset + inside.stop - inside.start] = self.parts[inside]
        mean = laid.sum(axis=0) * 1000 / (end_ms - start_ms)
        seconds = laid.reshape(60, 10, PARTS).sum(axis=1)
        return mean, np.maximum(seconds.max(axis=0), mean)

    def _slot(self, time_ms: int) -> int:
        return (time_ms - self.start_ms) // SLOT_MS

    def _lay(self, at_ms: int, sample: dict[str, Any]) -> None:
        slots = sample["intervalMs"] // SLOT_MS
        span = slice(self._slot(at_ms) - slots, self._slot(at_ms))
        self.counts[span] += np.array([sample[axis] for axis in AXES]) / slots
        self.parts[span] += np.array(sample["parts"]) / slots
        self.touched[span] = True


def _distinct(messages: Iterable[Message]) -> list[Message]:
    return list({(message["node"], message["sequence"]): message for message in messages}.values())


def _sample(
    random: Random, ref: tuple[str, int, int], interval_ms: int, window_ms: int, *, busy: bool
) -> dict[str, Any]:
    parts = [random.randint(0, 20) if busy else 0 for _ in range(PARTS)]
    return {
        "topic": ref[0],
        "incarnation": ref[1],
        "segmentId": ref[2],
        "intervalMs": interval_ms,
        "everyMs": EVERY_MS,
        "windowMs": window_ms,
        "msgIn": sum(parts),
        "bytesIn": sum(parts) * 100,
        "msgOut": random.randint(0, 500) if busy else 0,
        "bytesOut": random.randint(0, 50_000) if busy else 0,
        "parts": parts,
    }
