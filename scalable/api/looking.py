"""Looks into some of the batches that are stored, to learn their hot keys, within a budget of records.

Producers count messages by parts of the hash space, and only the batch itself has the keys. Which batches are
looked into depends on the clock alone, so that what is seen is like what is not.
"""

import time
from collections.abc import Callable, Iterator

from scalable.domain.errors import BatchInvalid
from scalable.domain.sketch import shown
from scalable.wire.batch import decode_keys
from scalable.wire.batch_header import BatchHeader, Mode

RECORDS_PER_SECOND = 10_000
"""A record costs 0.2 to 0.3 microseconds: a few thousandths of a core."""
MOST_RECORDS = 4_000
"""So many records of a batch are looked at, and so many may be saved up."""
MOST_BYTES = 1024 * 1024
RECORDS_OF_A_LOOK = 20
"""What a look costs besides its records, in records."""


class Looker:
    """The budget of a process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._left = float(MOST_RECORDS)
        self._turn = 0

    def keys(self, batch: bytes, header: BatchHeader) -> list[str]:
        """Give the keys of a batch, or of a part of a large one; none when it is not looked into."""
        if header.mode is not Mode.KEYED or header.uncompressed_bytes > MOST_BYTES or not self._may_look():
            return []
        found: list[str] = []
        try:
            for index in self._blocks(header):
                found += map(shown, decode_keys(header, index, batch))
        except BatchInvalid:  # readers will say so; it has cost as much as a good one
            found.clear()
            self._left -= min(header.count, MOST_RECORDS)
        self._left -= len(found) + RECORDS_OF_A_LOOK
        return found

    def _may_look(self) -> bool:
        now = self._clock()
        self._left = min(MOST_RECORDS, self._left + (now - self._at) * RECORDS_PER_SECOND)
        self._at = now
        return self._left > 0

    def _blocks(self, header: BatchHeader) -> Iterator[int]:
        """Name the sub-blocks that are read: all, or of a large batch another one each time."""
        if header.count <= MOST_RECORDS:
            yield from range(len(header.buckets))
            return
        self._turn += 1
        index = self._turn % len(header.buckets)
        if header.buckets[index].count <= MOST_RECORDS:
            yield index
