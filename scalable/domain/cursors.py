"""Names of the cursors that a subscription has in a segment: one, or one for each entry bucket.

A key-shared subscription divides a segment by the low 16 bits of key hashes (PIP-486, entry buckets). Each
bucket has its own position and its own owner; a segment is drained when all of them stand at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from scalable.domain.keyspace import FULL_RANGE, HashRange


def bucket_ranges(entry_bucket_splits: Sequence[int]) -> tuple[HashRange, ...]:
    """Give the ranges of the entry buckets, of which `entry_bucket_splits` names all starts but the first."""
    return FULL_RANGE.split_at(entry_bucket_splits) if entry_bucket_splits else (FULL_RANGE,)


def cursor_name(subscription: str, bucket_range: HashRange | None) -> str:
    """Name the cursor of one bucket, as in `orders/4000-7fff`, or of a whole segment (None), as in `orders`.

    Names of subscriptions have no slash, so that no two cursors share a name.
    """
    return subscription if bucket_range is None else f"{subscription}/{bucket_range.hex}"


def cursor_names(subscription: str, key_shared: bool, entry_bucket_splits: Sequence[int]) -> list[str]:
    """Name all cursors that a subscription has in a segment, in the order of its buckets."""
    if not key_shared:
        return [cursor_name(subscription, None)]
    return [cursor_name(subscription, hash_range) for hash_range in bucket_ranges(entry_bucket_splits)]
