"""The 16-bit hash space of a topic, its inclusive ranges, and how a key finds its place in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import mmh3

from scalable.domain.errors import InvalidBoundaries, InvalidRange

KEYSPACE_SIZE = 65536
MAX_HASH = KEYSPACE_SIZE - 1
MAX_PARTS = 256
"""So many children or parents one operation may have: the topic takes nothing while they change places."""
_HEX_RANGE = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})")


@dataclass(frozen=True, slots=True, order=True)
class HashRange:
    """An inclusive range of hashes, ordered by start, then end; raises InvalidRange outside 0..65535."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= MAX_HASH or not 0 <= self.end <= MAX_HASH:
            raise InvalidRange(start=self.start, end=self.end, problem="it leaves the hash space")
        if self.end < self.start:
            raise InvalidRange(start=self.start, end=self.end, problem="it ends before it starts")

    def __str__(self) -> str:
        return f"[{self.start:04x}, {self.end:04x}]"

    @property
    def size(self) -> int:
        """Count the hashes of the range."""
        return self.end - self.start + 1

    @property
    def hex(self) -> str:
        """Give the compact form of segment names, as in `0000-7fff`."""
        return f"{self.start:04x}-{self.end:04x}"

    @classmethod
    def parse_hex(cls, text: str) -> HashRange:
        """Read the compact form; raises InvalidRange."""
        match = _HEX_RANGE.fullmatch(text)
        if match is None:
            raise InvalidRange(start=-1, end=-1, problem=f"{text!r} is not of the form 0000-ffff")
        return cls(int(match[1], 16), int(match[2], 16))

    def contains(self, hash16: int) -> bool:
        """Tell whether the hash lies in the range."""
        return self.start <= hash16 <= self.end

    def overlaps(self, other: HashRange) -> bool:
        """Tell whether the ranges share a hash."""
        return self.start <= other.end and other.start <= self.end

    def adjacent_to(self, other: HashRange) -> bool:
        """Tell whether one range begins right behind the other; the space does not wrap around."""
        return self.end + 1 == other.start or other.end + 1 == self.start

    def union(self, other: HashRange) -> HashRange:
        """Join two adjacent ranges; raises InvalidRange when they are not adjacent."""
        if not self.adjacent_to(other):
            raise InvalidRange(start=other.start, end=other.end, problem=f"it is not adjacent to {self}")
        return HashRange(min(self.start, other.start), max(self.end, other.end))

    def intersection(self, other: HashRange) -> HashRange | None:
        """Give the hashes that both ranges have, or None."""
        if not self.overlaps(other):
            return None
        return HashRange(max(self.start, other.start), min(self.end, other.end))

    def midpoint_split(self) -> tuple[HashRange, HashRange]:
        """Halve the range, an odd one with a larger low half; raises InvalidBoundaries for a single hash."""
        middle = self.start + (self.end - self.start) // 2
        low, high = self.split_at([middle + 1])
        return low, high

    def split_at(self, boundaries: Sequence[int]) -> tuple[HashRange, ...]:
        """Cut the range before each boundary, the first hash of a later part; raises InvalidBoundaries."""
        starts = [self.start, *boundaries]
        problem = self._problem_of(boundaries)
        if problem:
            raise InvalidBoundaries(boundaries=list(boundaries), hash_range=self.hex, problem=problem)
        ends = [*(start - 1 for start in boundaries), self.end]
        return tuple(HashRange(start, end) for start, end in zip(starts, ends, strict=True))

    def _problem_of(self, boundaries: Sequence[int]) -> str | None:
        if not boundaries:
            return "at least one is needed"
        if any(after <= before for before, after in pairwise(boundaries)):
            return "they must ascend"
        if boundaries[0] <= self.start or boundaries[-1] > self.end:
            return f"each must lie within {self.start + 1}..{self.end}"
        return None

    def parts(self, count: int) -> tuple[HashRange, ...]:
        """Cut the range into equally wide parts, the last of which takes the remainder."""
        width = self.size // count
        if width < 1:
            raise InvalidRange(start=self.start, end=self.end, problem=f"it has no {count} parts")
        if count == 1:
            return (self,)
        return self.split_at([self.start + part * width for part in range(1, count)])

    def part_of(self, hash16: int, count: int) -> int:
        """Tell in which of `count` even parts of the range a hash of it lies, for load by part."""
        return (hash16 - self.start) * count // self.size


FULL_RANGE = HashRange(0, MAX_HASH)


def tiles(ranges: Iterable[HashRange]) -> bool:
    """Tell whether the ranges, in ascending order, cover the whole hash space exactly once."""
    expected = 0
    for hash_range in ranges:
        if hash_range.start != expected:
            return False
        expected = hash_range.end + 1
    return expected == KEYSPACE_SIZE


def key_hash(key: str) -> int:
    """Hash a key: Murmur3_32 of its UTF-8 form with seed 0, as an unsigned 32-bit number."""
    return encoded_key_hash(key.encode())


def encoded_key_hash(key: bytes) -> int:
    """Hash a key that is in its UTF-8 form already."""
    return mmh3.hash(key, 0, signed=False)


def segment_hash(hash32: int) -> int:
    """Give the high 16 bits of a key's hash, which choose the segment."""
    return hash32 >> 16


def bucket_hash(hash32: int) -> int:
    """Give the low 16 bits of a key's hash, which choose the entry bucket inside the segment."""
    return hash32 & 0xFFFF
