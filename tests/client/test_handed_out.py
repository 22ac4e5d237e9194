"""What stands for what, among the messages of many segments; and how much may wait of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.client.handed_out import HandedOut, Place
from scalable.client.inbox import OwnedSegment
from scalable.client.prefetch import Prefetch, SharedPrefetch
from scalable.client.queue_inbox import QueueSegment
from scalable.wire.frames import AssignedSegment

A, B = Place(1, 0, 7), Place(2, 0, 7)


def test_a_message_stands_for_all_before_it() -> None:
    handed_out = HandedOut()
    numbers = [handed_out.note(place, position) for place, position in ((A, 1), (B, 1), (A, 2), (B, 2))]
    assert numbers == [0, 1, 2, 3]
    assert handed_out.up_to(0) == {A: 1}
    assert handed_out.up_to(2) == {A: 2, B: 1}
    handed_out.settle({A: 2, B: 1})
    assert handed_out.up_to(3) == {B: 2}
    handed_out.forget(B.consumer)
    assert len(handed_out) == 0
    assert handed_out.up_to(3) == {}


def test_a_segment_that_was_lost_and_won_back_is_another_one() -> None:
    handed_out = HandedOut()
    handed_out.note(A, 9)
    number = handed_out.note(A._replace(generation=8), 5)  # it begins anew, further back
    assert handed_out.up_to(number) == {A: 9, A._replace(generation=8): 5}


@given(st.lists(st.sampled_from([A, B, Place(3, 1, 1)]), max_size=60), st.integers(2, 20))
def test_what_is_kept_is_bounded_and_stands_for_nothing_later(places: list[Place], bound: int) -> None:
    handed_out = HandedOut(bound)
    exact = HandedOut()
    for position, place in enumerate(places, start=1):
        number = handed_out.note(place, position)
        exact.note(place, position)
        assert len(handed_out) <= bound + 1
        for earlier in range(number + 1):
            truth = exact.up_to(earlier)
            found = handed_out.up_to(earlier)
            assert all(found[each] <= truth[each] for each in found)
        assert handed_out.up_to(number)[place] == position


def test_a_share_is_even_and_never_nothing() -> None:
    shared = SharedPrefetch(10)
    assert shared.per_segment == 10
    shared.note("one", 4)
    shared.note("two", 1)
    assert shared.per_segment == 2
    shared.note("one", 40)
    assert shared.per_segment == 1
    shared.note("one", 0)
    assert shared.per_segment == 10
    with pytest.raises(ValueError, match="at least 1"):
        Prefetch(0)


def owned() -> OwnedSegment:
    return OwnedSegment(
        AssignedSegment(
            segment_id=0, start=0, end=65535, name="", state="ACTIVE", generation=1, position=0, url=""
        )
    )


@pytest.mark.parametrize("make", [owned, lambda: QueueSegment(0)])
def test_permits_follow_a_share_that_changes(make: Callable[[], OwnedSegment | QueueSegment]) -> None:
    segment = make()
    assert segment.first_permits(10) == 10
    segment.owed_permits += 4
    assert segment.take_permits(10) == 0  # not yet half
    segment.owed_permits += 1
    assert segment.take_permits(10) == 5
    segment.owed_permits += 6
    assert segment.take_permits(4) == 0  # 4 are out still: others need the room
    segment.owed_permits += 4
    assert segment.take_permits(4) == 4
    assert segment.take_permits(10) == 6  # there is room again
