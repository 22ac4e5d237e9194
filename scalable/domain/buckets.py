"""How many entry buckets a segment has, and where each begins (PIP-486, entry buckets).

Entry buckets divide a segment by the low 16 bits of key hashes, so that the consumers of a key-shared
subscription share the segment with the order of keys kept. A list of splits names the first hash of each
bucket behind the first one; an empty list is one bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scalable.domain.keyspace import KEYSPACE_SIZE

DEFAULT_BUDGET = 1
"""A layout made without saying how many buckets its segments share has one in each."""
MAX_PER_SEGMENT = 1_024
"""As many sub-blocks as a batch may have."""
MAX_PER_TOPIC = 4_096
"""So many may be asked for: whoever joins or leaves a key-shared subscription deals out all of them anew."""


def equal_splits(count: int) -> tuple[int, ...]:
    """Divide the space into `count` buckets of equal width; at most one for each hash."""
    count = min(count, KEYSPACE_SIZE)
    return tuple(number * KEYSPACE_SIZE // count for number in range(1, count))


def initial_splits(budget: int, segments: int) -> tuple[int, ...]:
    """Give the splits of each of a topic's first segments, which share a budget of buckets."""
    return equal_splits(max(1, budget // segments))


def splits_of_children(parent_splits: Sequence[int], children: int) -> tuple[int, ...]:
    """Give the splits of each child of a split segment: they share the parent's number of buckets."""
    return equal_splits(max(1, bucket_count(parent_splits) // children))


def splits_of_union(parents: Iterable[Sequence[int]], limit: int) -> tuple[int, ...]:
    """Give the splits of a merged segment: as many buckets as all its parents, up to a limit."""
    return equal_splits(min(limit, sum(bucket_count(splits) for splits in parents)))


def bucket_count(entry_bucket_splits: Sequence[int]) -> int:
    """Count the buckets."""
    return len(entry_bucket_splits) + 1
