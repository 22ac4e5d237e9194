"""Layered rings of tiles: minutes for hours, tens of minutes for days, hours for a month; then they go.

Each ring ends at a full hour, so that a coarser tile lies wholly on one side of the end of the finer ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Ring:
    """Tiles of one width, and for how long they are kept."""

    minutes: int
    kept_ms: int

    @property
    def width_ms(self) -> int:
        """Give the width of a tile."""
        return self.minutes * MINUTE_MS

    def start_ms(self, now_ms: int) -> int:
        """Give the beginning of the oldest hour that is kept."""
        oldest_ms = max(0, now_ms - self.kept_ms)
        return oldest_ms - oldest_ms % HOUR_MS

    def block_ms(self, time_ms: int) -> int:
        """Give the start of the tile that a time lies in."""
        return time_ms - time_ms % self.width_ms


MINUTES = Ring(1, 2 * HOUR_MS)
TENS = Ring(10, 2 * DAY_MS)
HOURS = Ring(60, 30 * DAY_MS)
RINGS = (MINUTES, TENS, HOURS)
COARSER = ((TENS, MINUTES), (HOURS, TENS))
"""Each ring that is rolled up, with the one that it is made of."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A span of time, and the ring that tells it best; `to_ms` is not in it, None is without end."""

    ring: Ring
    from_ms: int
    to_ms: int | None


def layers(now_ms: int) -> Iterator[Layer]:
    """Divide the past among the rings, the oldest first: the finest ring that has a moment tells it."""
    starts = [ring.start_ms(now_ms) for ring in RINGS]
    ends = [None, *starts[:-1]]
    for ring, start, end in reversed(list(zip(RINGS, starts, ends, strict=True))):
        yield Layer(ring, start, end)


def lived_ms(observed_ms: int, *, start_ms: int, width_ms: int, created_ms: int, sealed_ms: int) -> int:
    """Give how much of what was observed of a tile lies before its segment was sealed.

    Observing goes on until the end of the minute of the seal, or as far as a running minute is told; and in
    later minutes in which what was left in it is read.
    """
    if not start_ms <= sealed_ms < start_ms + width_ms:
        return observed_ms
    born_ms = max(start_ms, created_ms)
    until_ms = sealed_ms - sealed_ms % MINUTE_MS + MINUTE_MS
    if width_ms == MINUTE_MS:
        until_ms = min(until_ms, born_ms + observed_ms)
    return max(0, min(observed_ms - max(0, until_ms - sealed_ms), sealed_ms - born_ms))
