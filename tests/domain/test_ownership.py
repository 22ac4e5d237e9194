"""Hand-over of segments: never two owners, an abandoned one harms nobody, and none waits for ever."""

from collections.abc import Mapping

import pytest

from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned
from scalable.domain.ownership import Ownership, rebalance

HAND_OVER_MS = 10_000
Ownerships = dict[int, Ownership]


def settle(before: Mapping[int, Ownership], segments: int, consumers: str, now_ms: int = 0) -> Ownerships:
    return rebalance(before, range(segments), list(consumers), now_ms=now_ms, hand_over_ms=HAND_OVER_MS)


def owners(ownerships: Mapping[int, Ownership]) -> dict[int, str | None]:
    return {key: known.owner for key, known in ownerships.items()}


def deadlines(ownerships: Mapping[int, Ownership]) -> set[int]:
    return {
        known.release_deadline_ms for known in ownerships.values() if known.release_deadline_ms is not None
    }


def test_the_first_owner_starts_at_once_under_the_first_generation() -> None:
    assert settle({}, 2, "a") == {0: Ownership("a", generation=1), 1: Ownership("a", generation=1)}


def test_a_joiner_waits_until_the_holder_releases() -> None:
    held = settle({}, 2, "a")
    asked = settle(held, 2, "ab", now_ms=500)
    assert asked == {0: held[0], 1: Ownership("a", "b", 1, 500 + HAND_OVER_MS)}
    released = asked[1].released(segment_id=1, consumer="a", generation=1)
    assert released == Ownership("b", generation=2)


def test_a_holder_that_does_not_release_loses_the_segment_at_the_deadline() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert asked[1].release_deadline_ms == HAND_OVER_MS
    assert settle(asked, 2, "ab", now_ms=HAND_OVER_MS - 1) == asked
    assert settle(asked, 2, "ab", now_ms=HAND_OVER_MS)[1] == Ownership("b", generation=2)
    assert asked[1].past_deadline(HAND_OVER_MS - 1) == asked[1]
    assert asked[1].past_deadline(HAND_OVER_MS) == Ownership("b", generation=2)


def test_a_leaver_hands_over_at_once() -> None:
    held = settle({}, 2, "ab")
    assert settle(held, 2, "a")[1] == Ownership("a", generation=2)


def test_an_abandoned_hand_over_returns_to_the_holder_and_goes_to_nobody_else() -> None:
    """A holds; B joins and leaves before A releases; C joins. At each step exactly one may acknowledge."""
    held = settle({}, 2, "a")
    asked = settle(held, 2, "ab")
    abandoned = settle(asked, 2, "a", now_ms=1)
    assert abandoned == held
    anew = settle(abandoned, 2, "ac", now_ms=2)
    assert anew[1] == Ownership("a", "c", 1, 2 + HAND_OVER_MS)
    assert [known.owner for state in (held, asked, abandoned, anew) for known in state.values()] == ["a"] * 8


def test_a_release_that_crosses_the_end_of_its_hand_over_changes_nothing() -> None:
    held = settle({}, 1, "a")[0]
    assert held.released(segment_id=0, consumer="a", generation=1) == held


def test_a_release_by_a_former_owner_is_refused_by_name() -> None:
    passed_on = Ownership("b", generation=2)
    with pytest.raises(GenerationSuperseded) as caught:
        passed_on.released(segment_id=4, consumer="a", generation=1)
    assert (caught.value.segment_id, caught.value.generation, caught.value.current_generation) == (4, 1, 2)


@pytest.mark.parametrize(("consumer", "generation"), [("b", 1), ("a", 2), ("nobody", 1)])
def test_only_the_owner_releases(consumer: str, generation: int) -> None:
    with pytest.raises(SegmentNotOwned):
        Ownership("a", "b", 1, 99).released(segment_id=0, consumer=consumer, generation=generation)


def test_joins_cannot_postpone_a_release_for_ever() -> None:
    state = settle(settle({}, 2, "b"), 2, "bc")
    (deadline_ms,) = deadlines(state)
    for now_ms in range(1_000, 9_000, 1_000):
        state = settle(state, 2, "ab" if now_ms % 2_000 else "bc", now_ms=now_ms)
        assert deadlines(state) == {deadline_ms}


def test_a_hand_over_to_one_who_left_is_not_carried_out_at_the_deadline() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "a", now_ms=HAND_OVER_MS)[1] == Ownership("a", generation=1)


def test_a_late_hand_over_to_one_who_left_goes_to_another_at_once() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "ac", now_ms=HAND_OVER_MS)[1] == Ownership("c", generation=2)


def test_when_holder_and_next_owner_are_both_gone_another_starts_at_once() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "c") == {0: Ownership("c", generation=2), 1: Ownership("c", generation=2)}


def test_the_next_owner_starts_at_once_when_the_holder_leaves() -> None:
    asked = settle(settle({}, 2, "a"), 2, "ab")
    assert settle(asked, 2, "b")[1] == Ownership("b", generation=2)


def test_a_drained_segment_is_owned_by_nobody_and_opened_again_under_a_higher_generation() -> None:
    held = settle({}, 2, "a")
    drained = settle(held, 1, "a")
    assert drained[1] == Ownership(generation=1)
    assert settle(drained, 2, "a")[1] == Ownership("a", generation=2)


def test_without_consumers_nobody_owns_and_generations_stay() -> None:
    assert settle(settle({}, 1, "a"), 1, "") == {0: Ownership(generation=1)}


def test_a_segment_on_its_way_is_what_moves_when_a_third_joins() -> None:
    held = settle({}, 6, "a") | {4: Ownership("b", generation=1), 5: Ownership("b", generation=1)}
    asked = settle(held, 6, "ab")
    third = settle(asked, 6, "abc")
    assert owners(third) == owners(held)
    assert {key: known.next_owner for key, known in third.items() if known.in_hand_over} == {2: "c", 3: "c"}


def test_what_is_shut_again_is_withdrawn_and_refuses_its_former_owner() -> None:
    held = settle({}, 2, "a")
    shut = rebalance(held, [0], ["a"], shut={1}, now_ms=0, hand_over_ms=HAND_OVER_MS)
    assert shut == {0: held[0], 1: Ownership(generation=2)}
    assert rebalance(shut, [0], ["a"], shut={1}, now_ms=0, hand_over_ms=HAND_OVER_MS) == shut
    assert settle(shut, 2, "a")[1] == Ownership("a", generation=3)


def test_a_seek_keeps_the_owner_and_a_hand_over_under_a_new_generation() -> None:
    assert Ownership("a", "b", 4, 99).sought() == Ownership("a", "b", 5, 99)
    assert Ownership(generation=4).sought() == Ownership(generation=5)
