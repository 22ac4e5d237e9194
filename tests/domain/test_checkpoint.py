"""Checkpoints of readers: children after their parents, bounded steps, JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.checkpoint import Checkpoint, SegmentExtent, checkpoint_from_json
from scalable.domain.errors import InvalidParameter

INCARNATION = 7


def extent(end: int, *, start: int = 0, ended: bool = False, parents: tuple[int, ...] = ()) -> SegmentExtent:
    return SegmentExtent(start, end, ended, parents)


def checkpoint(**positions: int) -> Checkpoint:
    """Make a checkpoint by `s0=3`."""
    return Checkpoint(INCARNATION, {int(name[1:]): offset for name, offset in positions.items()})


SPLIT = {0: extent(3, ended=True), 1: extent(2, parents=(0,)), 2: extent(5, parents=(0,))}


class TestReadable:
    def test_children_wait_for_the_end_of_their_parents(self) -> None:
        assert Checkpoint.earliest(INCARNATION).readable(SPLIT) == (0,)
        assert checkpoint(s0=2).readable(SPLIT) == (0,)
        assert checkpoint(s0=3).readable(SPLIT) == (0, 1, 2)

    def test_a_merged_child_waits_for_all_parents(self) -> None:
        merged = {
            1: extent(2, ended=True),
            2: extent(5, ended=True),
            3: extent(1, parents=(1, 2)),
        }
        assert checkpoint(s1=2).readable(merged) == (1, 2)
        assert checkpoint(s1=2, s2=5).readable(merged) == (1, 2, 3)

    def test_an_active_parent_has_not_ended_whatever_was_read(self) -> None:
        assert checkpoint(s0=3).readable({0: extent(3), 1: extent(1, parents=(0,))}) == (0,)

    def test_a_pruned_parent_holds_nobody_back(self) -> None:
        assert Checkpoint.earliest(INCARNATION).readable({1: extent(2, parents=(0,))}) == (1,)

    def test_an_empty_parent_has_ended(self) -> None:
        assert Checkpoint.earliest(INCARNATION).readable(
            {0: extent(0, ended=True), 1: extent(2, parents=(0,))}
        ) == (0, 1)


class TestAdvance:
    def test_the_step_that_ends_a_parent_reads_no_child(self) -> None:
        first = Checkpoint.earliest(INCARNATION).advance(SPLIT)
        assert first == checkpoint(s0=3)
        assert first.advance(SPLIT) == checkpoint(s0=3, s1=2, s2=5)

    def test_at_most_so_many_messages_of_each_segment(self) -> None:
        assert checkpoint(s0=3).advance(SPLIT, max_messages=3) == checkpoint(s0=3, s1=2, s2=3)

    def test_what_was_trimmed_is_skipped_and_what_was_pruned_is_dropped(self) -> None:
        assert checkpoint(s0=3, s1=1).advance({1: extent(9, start=5)}, max_messages=2) == checkpoint(s1=7)

    def test_it_never_moves_back(self) -> None:
        assert checkpoint(s0=9).advance({0: extent(3)}) == checkpoint(s0=9)

    def test_latest_reads_only_what_comes(self) -> None:
        latest = Checkpoint.latest(INCARNATION, {0: extent(3)})
        assert latest.advance({0: extent(3)}) == latest
        assert latest.advance({0: extent(4, ended=True), 1: extent(1, parents=(0,))}) == checkpoint(s0=4)


@given(
    chain=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    max_messages=st.integers(1, 4),
)
def test_a_chain_of_segments_is_read_whole_and_one_after_the_other(
    chain: list[int], max_messages: int
) -> None:
    last = len(chain) - 1
    extents = {
        number: extent(end, ended=number < last, parents=(number - 1,) if number else ())
        for number, end in enumerate(chain)
    }
    position, read = Checkpoint.earliest(INCARNATION), []
    for _ in range(sum(chain) + len(chain)):
        after = position.advance(extents, max_messages=max_messages)
        step = [
            (segment, offset)
            for segment, end in after.positions.items()
            for offset in range(position.positions.get(segment, 0), end)
        ]
        assert len({segment for segment, _ in step}) <= 1
        read += step
        position = after
    assert read == [(segment, offset) for segment, end in enumerate(chain) for offset in range(end)]


def test_json_and_back() -> None:
    before = checkpoint(s10=3, s2=0)
    body = json.loads(json.dumps(before.to_json()))
    assert body == {"incarnation": INCARNATION, "positions": {"2": 0, "10": 3}}
    assert checkpoint_from_json(body) == before


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"incarnation": 1},
        {"incarnation": 1, "positions": []},
        {"incarnation": 1, "positions": {}, "more": 1},
        {"incarnation": True, "positions": {}},
        {"incarnation": 1.0, "positions": {}},
        {"incarnation": -1, "positions": {}},
        {"incarnation": 1, "positions": {"-1": 0}},
        {"incarnation": 1, "positions": {"one": 0}},
        {"incarnation": 1, "positions": {"²": 0}},
        {"incarnation": 1, "positions": {"1": None}},
        {"incarnation": 1, "positions": {"1": -1}},
    ],
    ids=str,
)
def test_what_is_no_checkpoint_is_refused(body: Any) -> None:
    with pytest.raises(InvalidParameter):
        checkpoint_from_json(body)
