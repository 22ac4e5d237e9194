"""Heat tiles: one minute of a segment's load by even parts of its range, from finer samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PARTS = 32
TILE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Tile:
    """Messages per second in each part of a segment's range over a minute: the mean and the highest sample."""

    minute_ms: int
    mean: tuple[float, ...]
    peak: tuple[float, ...]


def minute_of(at_ms: int) -> int:
    """Give the start of the minute that an instant lies in."""
    return at_ms - at_ms % TILE_MS


def tile(minute_ms: int, samples: Sequence[tuple[Sequence[int], int]]) -> Tile:
    """Fold the samples of one minute, each (messages in by part, its length in ms), into a tile.

    The mean is weighted by length: all messages over all the time sampled. Without samples every part is
    zero.
    """
    zeros = (0.0,) * PARTS
    sampled_ms = sum(length_ms for _, length_ms in samples)
    if not sampled_ms:
        return Tile(minute_ms, zeros, zeros)
    rates = [[count * 1000 / length_ms for count in parts] for parts, length_ms in samples]
    totals = [sum(counts) for counts in zip(*(parts for parts, _ in samples), strict=True)]
    mean = tuple(total * 1000 / sampled_ms for total in totals)
    return Tile(minute_ms, mean, tuple(max(column) for column in zip(*rates, strict=True)))
