"""Where a producer begins the sub-blocks of a batch: at entry buckets, and not for a handful of records."""

from __future__ import annotations

import pytest

from scalable.client.batches import sub_block_starts
from scalable.domain.buckets import equal_splits

FOUR = equal_splits(4)


@pytest.mark.parametrize(
    ("records", "starts"),
    [(1, ()), (31, ()), (64, (32768,)), (127, (32768,)), (128, FOUR), (1_000, FOUR)],
)
def test_small_batches_have_fewer_sub_blocks(records: int, starts: tuple[int, ...]) -> None:
    assert tuple(sub_block_starts(FOUR, records)) == starts


def test_a_segment_of_one_bucket_is_not_cut() -> None:
    assert tuple(sub_block_starts((), 1_000)) == ()


@pytest.mark.parametrize("records", [100, 1_000, 65_535])
def test_sub_blocks_begin_at_entry_buckets_however_many_there_are(records: int) -> None:
    splits = equal_splits(1_024)
    starts = sub_block_starts(splits, records)
    assert set(starts) <= set(splits)
    assert 1 < len(starts) <= records / 32
