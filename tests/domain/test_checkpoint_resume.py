"""Checkpoints that meet a pruned, trimmed or reshaped topic; unions of several members'."""

import pytest

from scalable.domain.checkpoint import Checkpoint, PrunedExtent, SegmentExtent, Skipped, merge, resume
from scalable.domain.errors import InvalidParameter

EXTENTS = {1: SegmentExtent(0, 4, True), 2: SegmentExtent(2, 5, False), 3: SegmentExtent(0, 1, False, (1,))}
PRUNED = {0: PrunedExtent(10, (1, 2))}


def test_a_position_in_a_pruned_segment_goes_on_at_its_successors_with_a_note() -> None:
    found = resume(Checkpoint(7, {0: 3}), EXTENTS, PRUNED)
    assert found.skipped == (Skipped(0, (1, 2)),)
    assert found.positions == {1: 0, 2: 2, 3: 0}


def test_a_pruned_segment_that_was_read_needs_no_note() -> None:
    extents = {**EXTENTS, 2: SegmentExtent(0, 5, False)}
    assert resume(Checkpoint(7, {0: 10}), extents, PRUNED).skipped == ()


def test_what_comes_after_the_checkpoint_and_is_pruned_is_noted_though_it_has_no_entry() -> None:
    pruned = {**PRUNED, 4: PrunedExtent(0, ()), 1: PrunedExtent(4, (3,))}
    extents = {key: EXTENTS[key] for key in (2, 3)}
    found = resume(Checkpoint(7, {0: 10}), extents, pruned)
    assert found.skipped == (Skipped(1, (3,)), Skipped(2, (2,)))


def test_a_note_stands_for_all_that_came_after_its_segment_and_is_pruned() -> None:
    pruned = {**PRUNED, 1: PrunedExtent(4, (3,))}
    found = resume(Checkpoint(7, {0: 9, 2: 2}), {key: EXTENTS[key] for key in (2, 3)}, pruned)
    assert found.skipped == (Skipped(0, (2, 3)),)


def test_of_a_reader_that_has_read_nothing_the_oldest_that_is_pruned_is_noted() -> None:
    found = resume(Checkpoint(7, {}), {key: EXTENTS[key] for key in (2, 3)}, {1: PrunedExtent(4, (3,))})
    assert found.skipped == (Skipped(1, (3,)), Skipped(2, (2,)))


def test_an_entry_tells_that_what_came_before_was_read() -> None:
    found = resume(Checkpoint(7, {3: 0, 2: 5}), EXTENTS, PRUNED)
    assert (found.positions[1], sorted(found.ended)) == (4, [1])


def test_a_position_behind_the_end_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        resume(Checkpoint(7, {2: 6}), EXTENTS, PRUNED)


def test_members_checkpoints_are_united() -> None:
    assert merge([Checkpoint(7, {1: 4, 2: 3}), Checkpoint(7, {2: 5})]) == Checkpoint(7, {1: 4, 2: 5})
    with pytest.raises(InvalidParameter):
        merge([Checkpoint(7, {}), Checkpoint(8, {})])
