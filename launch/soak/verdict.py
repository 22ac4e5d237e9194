"""What the journals prove: nothing lost, nothing out of order, nothing twice that was done with."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.soak.journal import Did, Line

Name = tuple[str, int]
"""A message: its key, and its number among those of the key, from 0 without gaps."""
Place = tuple[int, int]
"""Segment and offset."""


@dataclass
class Verdict:
    """Figures of one subscription, and the first examples of what is wrong."""

    lost: int = 0
    reordered: int = 0
    duplicated: int = 0
    examples: list[str] = field(default_factory=list)

    def blame(self, what: str) -> None:
        """Keep a few examples."""
        if len(self.examples) < 5:
            self.examples.append(what)


def sent(journals: Iterable[Sequence[Line]]) -> set[Name]:
    """Collect the messages that were acknowledged to their producers."""
    return {(key, number) for lines in journals for key, number in _told(lines, Did.SENT)}


def received(journals: Iterable[Sequence[Line]]) -> set[Name]:
    """Collect the messages that were received by anybody."""
    return {(key, number) for lines in journals for key, number, *_ in _told(lines, Did.GOT)}


def lasting(journals: Iterable[Sequence[Line]]) -> set[Name]:
    """Collect the messages that a checkpoint holds which was kept."""
    return {effect for lines in journals for effect in _lasting(lines)}


def _told(lines: Sequence[Line], did: Did) -> Iterator[Any]:
    return (line.what for line in lines if line.did is did)


def judge_stream(produced: set[Name], journals: Sequence[Sequence[Line]]) -> Verdict:
    """Judge a STREAM subscription: order by key over all members; what was kept does not come again."""
    verdict = _judge_deliveries(produced, journals)
    last: dict[str, int] = defaultdict(lambda: -1)
    for line in _merged(journals):
        if line.did is Did.GOT:
            key, number, *_ = line.what
            if number > last[key] + 1:
                verdict.reordered += 1
                verdict.blame(f"{key}: {number} came after {last[key]}")
            last[key] = number
    return verdict


def judge_queue(produced: set[Name], journals: Sequence[Sequence[Line]]) -> Verdict:
    """Judge a QUEUE subscription, which knows no order."""
    return _judge_deliveries(produced, journals)


def judge_checkpoint(produced: set[Name], journals: Sequence[Sequence[Line]]) -> Verdict:
    """Judge a CHECKPOINT group of one member: what it did after its last checkpoint was undone by a crash.

    The rest is exactly once, and in the order of each key.
    """
    verdict = Verdict()
    effects = [effect for lines in journals for effect in _lasting(lines)]
    verdict.lost = _count_lost(verdict, produced, set(effects))
    expected: dict[str, int] = defaultdict(int)
    for key, number in effects:
        if number < expected[key]:
            verdict.duplicated += 1
            verdict.blame(f"{key}: {number} came again after a checkpoint that held it")
        elif number > expected[key]:
            verdict.reordered += 1
            verdict.blame(f"{key}: {number} came where {expected[key]} was next")
        expected[key] = max(expected[key], number + 1)
    return verdict


def _lasting(lines: Sequence[Line]) -> Iterator[Name]:
    """Give what was received before a checkpoint; the rest of a life was done in vain."""
    pending: list[Name] = []
    for line in lines:
        if line.did is Did.GOT:
            pending.append((line.what[0], line.what[1]))
        elif line.did is Did.KEPT:
            yield from pending
            pending = []
        elif line.did is Did.BEGAN:
            pending = []


def _judge_deliveries(produced: set[Name], journals: Sequence[Sequence[Line]]) -> Verdict:
    verdict = Verdict()
    verdict.lost = _count_lost(verdict, produced, received(journals))
    places: dict[Name, Place] = {}
    kept = _Kept()
    for line in _merged(journals):
        if line.did is Did.KEPT:
            kept.add(line.what)
        elif line.did is Did.GOT:
            key, number, *place = line.what
            segment_id, offset = place
            if kept.holds(segment_id, offset):
                verdict.duplicated += 1
                verdict.blame(f"{key}: {number} came again from {segment_id}:{offset} after its end")
            if places.setdefault((key, number), (segment_id, offset)) != (segment_id, offset):
                verdict.duplicated += 1
                verdict.blame(f"{key}: {number} is stored twice, at {places[key, number]} and {place}")
    return verdict


class _Kept:
    """Deliveries that are over: below a position (`[segment, position]`), or each `[segment, [offset]]`."""

    def __init__(self) -> None:
        self._below: dict[int, int] = {}
        self._single: set[Place] = set()

    def add(self, what: Iterable[tuple[int, int | list[int]]]) -> None:
        for segment_id, kept in what:
            if isinstance(kept, int):
                self._below[segment_id] = max(self._below.get(segment_id, 0), kept)
            else:
                self._single |= {(segment_id, offset) for offset in kept}

    def holds(self, segment_id: int, offset: int) -> bool:
        return offset < self._below.get(segment_id, 0) or (segment_id, offset) in self._single


def _merged(journals: Sequence[Sequence[Line]]) -> list[Line]:
    return sorted((line for lines in journals for line in lines), key=lambda line: line.at)


def _count_lost(verdict: Verdict, produced: set[Name], found: set[Name]) -> int:
    missing = produced - found
    for key, number in sorted(missing)[:3]:
        verdict.blame(f"{key}: {number} never came")
    return len(missing)
