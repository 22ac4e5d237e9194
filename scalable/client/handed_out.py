"""In which order messages of many segments were handed out, so that one can stand for all before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

MAX_ENTRIES = 50_000


class Place(NamedTuple):
    """One segment, while one consumer owns it under one generation."""

    consumer: int
    segment_id: int
    generation: int


class HandedOut:
    """Remembers the position behind each message that was not acknowledged, in the order of all segments.

    What is kept is bounded: of many entries every other one is forgotten. A message then stands for fewer of
    those before it, never for one that was handed out later.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._numbers: dict[Place, list[int]] = {}
        self._positions: dict[Place, list[int]] = {}
        self._next_number = 0
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    def note(self, place: Place, position: int) -> int:
        """Note the position behind a message that is handed out now, and give the message's number."""
        number = self._next_number
        self._next_number += 1
        self._numbers.setdefault(place, []).append(number)
        self._positions.setdefault(place, []).append(position)
        self._entries += 1
        if self._entries > self._max_entries:
            self._thin_out()
        return number

    def up_to(self, number: int) -> dict[Place, int]:
        """Give, by segment, the position behind the last message up to this number."""
        found = {}
        for place, numbers in self._numbers.items():
            count = bisect_right(numbers, number)
            if count:
                found[place] = self._positions[place][count - 1]
        return found

    def settle(self, positions: Mapping[Place, int]) -> None:
        """Forget what is acknowledged: all below a position in each segment."""
        for place, position in positions.items():
            self._drop(place, bisect_right(self._positions.get(place, ()), position))

    def forget(self, consumer: int) -> None:
        """Forget all segments of a consumer that was closed."""
        for place in [place for place in self._numbers if place.consumer == consumer]:
            self._drop(place, len(self._numbers[place]))

    def _drop(self, place: Place, count: int) -> None:
        if not count:
            return
        self._entries -= count
        for kept in (self._numbers, self._positions):
            del kept[place][:count]
            if not kept[place]:
                del kept[place]

    def _thin_out(self) -> None:
        for place in self._numbers:
            for kept in (self._numbers, self._positions):
                kept[place] = kept[place][-1::-2][::-1]
        self._entries = sum(map(len, self._numbers.values()))
