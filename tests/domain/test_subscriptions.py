"""Which segments are open, and who reads them; numbers are those of Pulsar's test vectors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import SegmentNotFound
from scalable.domain.layout import Layout
from scalable.domain.subscriptions import (
    BucketKey,
    KeyT,
    assign,
    assignable,
    parents_owners,
    units_of,
    waits_for,
)
from tests.domain.test_layout import initial, merge, split
from tests.domain.test_layout_properties import random_step

NAMES = [f"c{number}" for number in range(12)]


def spread(owners: Mapping[int, str], consumers: Sequence[str]) -> int:
    counts = Counter(owners.values())
    held = [counts[name] for name in consumers]
    return max(held) - min(held)


def moves(before: Mapping[int, str], after: Mapping[int, str], consumers: Sequence[str]) -> int:
    living = set(consumers)
    return sum(before.get(key) in living and before[key] != owner for key, owner in after.items())


def fewest_moves(segment_ids: Sequence[KeyT], consumers: Sequence[str], before: Mapping[KeyT, str]) -> int:
    """Count the changes of owner that no even assignment can avoid: what each may keep at most is kept."""
    base, odd = divmod(len(segment_ids), len(consumers))
    held = Counter(before[key] for key in segment_ids if before.get(key) in consumers)
    most_first = sorted(held.values(), reverse=True)
    kept = sum(min(count, base + (rank < odd)) for rank, count in enumerate(most_first))
    return sum(most_first) - kept


# Open segments.


def test_vector_76_children_wait_until_their_parent_is_drained() -> None:
    layout = split(initial(4), 0)
    assert set(assignable(layout, [])) == {0, 1, 2, 3}
    assert set(assignable(layout, [0])) == {1, 2, 3, 4, 5}


def test_open_segments_stand_in_the_order_of_start_end_and_id() -> None:
    layout = split(initial(2), 0)
    assert assignable(layout, [0]) == (2, 3, 1)
    assert assignable(split(layout, 1), []) == (0, 1)


def test_no_generation_is_skipped() -> None:
    """A sealed middle segment waits for its own ancestor, and is read before its children."""
    layout = split(split(initial(1), 0), 1)
    for drained, expected in (([], (0,)), ([0], (1, 2)), ([0, 1], (3, 4, 2)), ([0, 1, 2], (3, 4, 2))):
        assert assignable(layout, drained) == expected


def test_a_drained_middle_generation_does_not_open_the_way_around_an_undrained_ancestor() -> None:
    layout = split(split(initial(1), 0), 1)
    assert assignable(layout, [1]) == (0,)
    assert waits_for(layout, [1], 3) == (0,)


def test_the_child_of_a_merge_waits_for_every_parent() -> None:
    layout = merge(initial(2), 0, 1)
    assert assignable(layout, []) == (0, 1)
    assert assignable(layout, [0]) == (1,)
    assert waits_for(layout, [0], 2) == (1,)
    assert assignable(layout, [0, 1]) == (2,)


def test_a_new_subscription_at_earliest_sees_the_whole_history_in_order() -> None:
    layout = merge(split(split(initial(1), 0), 2), 1, 3)
    read: list[int] = []
    while sealed := [key for key in assignable(layout, read) if not layout.get(key).is_active]:
        assert layout.ancestors(sealed[0]) <= set(read)
        read.append(sealed[0])
    assert {*read, *assignable(layout, read)} == set(layout.segments)


def test_pruned_ancestors_count_as_drained() -> None:
    layout = split(initial(1), 0).prune(0)
    assert assignable(layout, []) == (1, 2)
    assert waits_for(layout, [], 1) == ()


def test_an_active_segment_cannot_be_drained() -> None:
    assert assignable(initial(2), [0, 1, 99]) == (0, 1)


def test_a_seek_back_shuts_descendants_again() -> None:
    layout = split(split(initial(1), 0), 1)
    assert assignable(layout, [0, 1]) == (3, 4, 2)
    assert assignable(layout, []) == (0,)


def test_waiting_for_an_unknown_segment_is_refused() -> None:
    with pytest.raises(SegmentNotFound):
        waits_for(initial(1), [], 7)


@given(st.integers(0, 2**32), st.integers(1, 40), st.data())
def test_open_means_exactly_that_every_kept_ancestor_is_drained(
    seed: int, steps: int, data: st.DataObject
) -> None:
    random, layout = Random(seed), Layout.initial(2, 0)
    for step in range(1, steps + 1):
        layout = random_step(layout, random, step)
    sealed = sorted(segment.segment_id for segment in layout.segments.values() if not segment.is_active)
    drained = data.draw(st.sets(st.sampled_from(sealed))) if sealed else set()
    open_ids = set(assignable(layout, drained))
    for segment_id in layout.segments:
        opened = segment_id not in drained and layout.ancestors(segment_id) <= drained
        assert (segment_id in open_ids) == opened
        assert (waits_for(layout, drained, segment_id) == ()) == (layout.ancestors(segment_id) <= drained)


# Assignment.


def test_vector_72_one_consumer_reads_everything() -> None:
    assert assign([0, 1, 2, 3], ["consumer-1"], {}) == dict.fromkeys(range(4), "consumer-1")


def test_vector_73_two_consumers_take_turns() -> None:
    owners = assign([0, 1, 2, 3], ["consumer-2", "consumer-1"], {})
    assert owners == {0: "consumer-1", 1: "consumer-2", 2: "consumer-1", 3: "consumer-2"}


def test_without_consumers_nobody_reads() -> None:
    assert assign([0, 1], [], {0: "gone"}) == {}


def test_consumers_without_a_segment_stand_by() -> None:
    assert assign([7, 3], ["c", "a", "b"], {}) == {7: "a", 3: "b"}


@given(st.lists(st.integers(0, 500), unique=True), st.sets(st.sampled_from(NAMES), min_size=1))
def test_without_history_the_assignment_is_round_robin(segment_ids: list[int], consumers: set[str]) -> None:
    names = sorted(consumers)
    expected = {key: names[turn % len(names)] for turn, key in enumerate(segment_ids)}
    assert assign(segment_ids, consumers, {}) == expected


@given(
    st.integers(0, 6),
    st.sets(st.sampled_from("abc"), min_size=1),
    st.dictionaries(st.integers(0, 7), st.sampled_from("abcd")),
)
def test_no_even_assignment_moves_fewer_segments(
    count: int, consumers: set[str], before: dict[int, str]
) -> None:
    """Compare with every even assignment there is."""
    segment_ids, names = list(range(count)), sorted(consumers)
    even = (
        dict(zip(segment_ids, choice, strict=True))
        for choice in product(names, repeat=count)
        if max(Counter(choice)[name] for name in names) - min(Counter(choice)[name] for name in names) <= 1
    )
    fewest = min(moves(before, after, names) for after in even)
    after = assign(segment_ids, names, before)
    assert moves(before, after, names) == fewest == fewest_moves(segment_ids, names, before)


segment_lists = st.lists(st.integers(0, 60), unique=True, max_size=60)
consumer_sets = st.sets(st.sampled_from(NAMES), min_size=1)
owner_maps = st.dictionaries(st.integers(0, 60), st.sampled_from([*NAMES, "gone"]))


@given(segment_lists, consumer_sets, owner_maps, owner_maps)
def test_every_assignment_is_complete_even_minimal_and_settled(
    segment_ids: list[int], consumers: set[str], before: dict[int, str], preferred: dict[int, str]
) -> None:
    names = sorted(consumers)
    after = assign(segment_ids, names, before, preferred)
    assert set(after) == set(segment_ids)
    assert set(after.values()) <= consumers
    assert spread(after, names) <= 1
    assert moves(before, after, names) == fewest_moves(segment_ids, names, before)
    assert assign(segment_ids, reversed_twice(names), after, preferred) == after
    assert assign(segment_ids, names, before, preferred) == after


def reversed_twice(names: list[str]) -> list[str]:
    """Give the same consumers in another order and named twice."""
    return [*reversed(names), *names]


def test_the_spread_and_the_moves_while_consumers_come_and_go() -> None:
    segment_ids, owners = list(range(8)), dict[int, str]()
    for count in (1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1):
        consumers, before = NAMES[:count], owners
        owners = assign(segment_ids, consumers, before)
        assert spread(owners, consumers) <= 1
        assert moves(before, owners, consumers) == fewest_moves(segment_ids, consumers, before)


def test_a_consumer_that_returns_gets_its_fair_share_and_no_more_moves() -> None:
    before = assign(list(range(8)), ["a", "b", "c"], {})
    without = assign(list(range(8)), ["b", "c"], before)
    back = assign(list(range(8)), ["a", "b", "c"], without)
    assert Counter(back.values()) == {"a": 2, "b": 3, "c": 3}
    assert moves(without, back, ["a", "b", "c"]) == 2


def test_drained_parents_weigh_nothing_in_the_balance() -> None:
    layout = split(split(split(initial(1), 0), 1), 2)
    open_ids = assignable(layout, [0, 1, 2])
    consumers = ["a", "b", "c", "d", "e"]
    owners = assign(open_ids, consumers, {0: "a", 1: "b", 2: "c"})
    assert set(owners) == {3, 4, 5, 6}
    assert sorted(owners.values()) == ["a", "b", "c", "d"]


def test_a_child_stays_with_the_consumer_of_its_parent_where_that_costs_nothing() -> None:
    layout = split(initial(2), 1)
    before = {0: "a", 1: "b"}
    open_ids = assignable(layout, [1])
    keys = units_of(layout, open_ids, key_shared=False)
    held = {BucketKey(segment_id): name for segment_id, name in before.items()}
    preferred = parents_owners(layout, keys, held)
    assert preferred == {BucketKey(2): "b", BucketKey(3): "b"}
    owners = assign(keys, ["a", "b"], held, preferred)
    assert owners == {BucketKey(0): "a", BucketKey(2): "b", BucketKey(3): "b"}


def test_a_consumer_that_must_give_something_up_gives_what_another_is_preferred_for() -> None:
    owners = assign([0, 1, 2, 3], ["a", "b"], dict.fromkeys(range(4), "a"), {0: "b", 1: "b"})
    assert owners == {0: "b", 1: "b", 2: "a", 3: "a"}


def test_a_preference_never_costs_balance_or_a_move() -> None:
    before = {0: "a", 1: "b"}
    owners = assign([0, 1, 2, 3], ["a", "b"], before, {0: "b", 2: "b", 3: "b"})
    assert owners == {0: "a", 1: "b", 2: "b", 3: "a"}


def test_the_child_of_a_merge_prefers_the_first_parent_that_had_a_consumer() -> None:
    layout = merge(initial(3), 1, 0, 2)
    held = {BucketKey(0): "a", BucketKey(2): "c"}
    assert parents_owners(layout, [BucketKey(3)], held) == {BucketKey(3): "a"}
    assert parents_owners(layout, [BucketKey(0), BucketKey(3)], {}) == {}


def test_sixty_five_thousand_segments_and_ten_thousand_consumers_are_assigned_at_once() -> None:
    """Guards the complexity: the time limit is far above n log n and far below n times the consumers."""
    consumers = [f"c{number}" for number in range(10_000)]
    owners = assign(range(65_536), consumers, {})
    after = assign(range(65_536), consumers[1:], owners)
    assert moves(owners, after, consumers[1:]) == 0
    assert spread(after, consumers[1:]) <= 1
