"""Hot keys by a sketch of bounded size, which may be merged with others of its kind.

The summary of Misra and Gries (1982), merged as by Agarwal et al. (Mergeable Summaries, 2012): of `seen`
keys, each was there `count` times at least and `count + error` times at most; others count as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scalable.domain.keyspace import key_hash

CAPACITY = 64
LONGEST_KEY = 100
_PREFIX = 80


@dataclass(slots=True)
class HotKeys:
    """Keys with their counts, `capacity` at most."""

    capacity: int = CAPACITY
    seen: int = 0
    error: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, keys: Iterable[str]) -> None:
        """Count keys."""
        found = Counter(keys)
        self.merge(found, seen=found.total(), error=0)

    def merge(self, counts: Mapping[str, int], *, seen: int, error: int) -> None:
        """Take in what another sketch holds."""
        for key, count in counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.seen += seen
        self.error += error
        self._cut(self.capacity)

    def top(self, limit: int) -> HotKeys:
        """Give a sketch of the most frequent keys alone."""
        cut = HotKeys(self.capacity, self.seen, self.error, dict(self.counts))
        cut._cut(limit)
        return cut

    def _cut(self, limit: int) -> None:
        """Leave so many keys at most: what the first that goes has is taken from all, and may be missing."""
        if len(self.counts) <= limit:
            return
        missing = sorted(self.counts.values(), reverse=True)[limit]
        self.counts = {key: count - missing for key, count in self.counts.items() if count > missing}
        self.error += missing


def shown(key: str) -> str:
    """Give a key as it is counted: of a long one its beginning and its hash."""
    return key if len(key) <= LONGEST_KEY else f"{key[:_PREFIX]}…{key_hash(key):08x}"
