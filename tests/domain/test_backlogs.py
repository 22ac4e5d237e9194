"""Which messages a subscription receives next, and which segments wait for which."""

import random

import pytest

from scalable.domain.backlogs import (
    Wait,
    drained_segments,
    even_shares,
    next_messages,
    position_behind,
    waits,
)
from scalable.domain.layout import Layout


def grown() -> Layout:
    """Two first segments; 0 was split into 2 and 3, then 2 and 3 were merged into 4; 1 is active."""
    layout = Layout.initial(2, 0)
    layout = layout.apply(layout.plan_split(0), 1)
    return layout.apply(layout.plan_merge([2, 3]), 2)


def test_ancestors_give_all_before_their_children_give_any() -> None:
    pending = {0: 3, 1: 100, 2: 2, 3: 1, 4: 50}
    assert next_messages(grown(), pending, 4) == {0: 2, 1: 2}
    assert next_messages(grown(), pending, 103) == {1: 100, 0: 3}
    assert next_messages(grown(), pending, 106) == {1: 100, 0: 3, 2: 2, 3: 1}
    assert next_messages(grown(), pending, 110) == {1: 100, 0: 3, 2: 2, 3: 1, 4: 4}
    assert next_messages(grown(), pending, 10_000) == {1: 100, 0: 3, 2: 2, 3: 1, 4: 50}


def test_nothing_comes_of_nothing() -> None:
    assert next_messages(grown(), dict.fromkeys(range(5), 0), 10) == {}
    assert next_messages(grown(), {1: 5}, 0) == {}


def test_open_segments_share_evenly_and_the_small_ones_leave_their_part_to_others() -> None:
    assert even_shares({1: 10, 2: 3, 3: 100}, 30) == {1: 10, 2: 3, 3: 17}
    assert even_shares({1: 10, 2: 10}, 100) == {1: 10, 2: 10}
    assert sum(even_shares({1: 10, 2: 10, 3: 10}, 7).values()) == 7


def test_shares_are_exact_and_never_more_than_there_is() -> None:
    chance = random.Random(7)
    for _ in range(500):
        amounts = {key: chance.randrange(20) for key in range(chance.randrange(1, 8))}
        count = chance.randrange(100)
        shares = even_shares(amounts, count)
        assert sum(shares.values()) == min(count, sum(amounts.values()))
        assert all(0 < share <= amounts[key] for key, share in shares.items())


def test_a_shut_segment_names_all_that_it_waits_for() -> None:
    pending = {0: 0, 1: 7, 2: 10, 3: 0, 4: 50}
    drained = drained_segments(grown(), pending)
    assert drained == {0, 3}
    assert waits(grown(), pending, drained, limit=10) == {4: (Wait(2, 10),)}
    behind_all = waits(grown(), {0: 5, 2: 1}, (), limit=2)
    assert behind_all == {
        2: (Wait(0, 5),),
        3: (Wait(0, 5),),
        4: (Wait(0, 5), Wait(2, 1)),
    }


def test_active_segments_are_never_drained() -> None:
    assert waits(grown(), {}, {0, 1, 2, 3, 4}, limit=10) == {}
    assert drained_segments(grown(), {1: 0, 4: 0}) == frozenset()


@pytest.mark.parametrize(
    ("position", "acknowledged", "count", "behind"),
    [
        (10, [], 5, 15),
        (10, [(12, 20)], 1, 11),
        (10, [(12, 20)], 2, 20),
        (10, [(12, 20)], 3, 21),
        (10, [(30, 40), (12, 20)], 12, 40),
        (10, [(0, 5)], 1, 11),
        (10, [(5, 12)], 1, 13),
    ],
)
def test_what_is_acknowledged_one_by_one_does_not_count(
    position: int, acknowledged: list[tuple[int, int]], count: int, behind: int
) -> None:
    assert position_behind(position, acknowledged, count) == behind
