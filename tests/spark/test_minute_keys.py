"""Hot keys of a minute, united from samples of nodes that looked at different parts of their messages."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.sketch import HotKeys
from spark.recent import KEYS_OF_A_MINUTE, MINUTE_MS, PARTS, Keys, Sample, Series

MINUTE = 28_000_000 * MINUTE_MS
NAMES = st.integers(0, 40).map(lambda number: f"k{number}")


def minute_keys(samples: Sequence[tuple[int, Keys | None]]) -> HotKeys:
    """Give what a minute tells of samples of a second each, as messages and hot keys."""
    made = [
        Sample(MINUTE + 1000 * number, MINUTE + 1000 * (number + 1), (messages, 0, 0, 0), (0,) * PARTS, keys)
        for number, (messages, keys) in enumerate(samples)
    ]
    series = Series(
        topic="topic://public/default/a",
        incarnation=1,
        segment_id=0,
        born_ms=MINUTE,
        seen_until_ms=MINUTE,
        window_ms=5_000,
        interval_ms=1_000,
        samples=made,
    )
    return series.minute_keys(MINUTE)


def sketch(keys: Sequence[str]) -> Keys:
    """Count keys as a node does."""
    found = HotKeys()
    found.add(keys)
    told = found.top(8)
    return Keys(told.seen, told.error, told.counts)


def test_a_node_that_looks_at_a_tenth_weighs_as_its_messages() -> None:
    quiet, busy = Keys(1_000, 0, {"X": 1_000}), Keys(10_000, 0, {"Y": 10_000})
    found = minute_keys([(1_000, quiet), (100_000, busy), (5_000, None), (7, Keys(0, 0, {}))])
    assert (found.seen, found.error) == (11_000, 1)
    assert found.counts == {"X": 11_000 // 101, "Y": 11_000 * 100 // 101}


def test_nodes_that_look_at_all_are_added_up_as_they_are() -> None:
    found = minute_keys([(10, Keys(5, 1, {"X": 3, "Y": 1})), (30, Keys(15, 2, {"X": 7}))])
    assert (found.seen, found.error, found.counts) == (20, 3, {"X": 10, "Y": 1})


def test_of_samples_without_a_message_keys_are_kept() -> None:
    """Keys and counts of a node are told at slightly different times."""
    assert minute_keys([(0, Keys(5, 0, {"X": 5}))]).counts == {"X": 5}
    assert minute_keys([]) == HotKeys()


@given(st.lists(st.tuples(st.lists(NAMES, max_size=60), st.integers(1, 50)), max_size=12))
def test_the_bounds_hold_for_what_the_samples_stand_for(nodes: list[tuple[list[str], int]]) -> None:
    """Each node looked at one of so many of its messages, and the others had the same keys."""
    found = minute_keys([(len(keys) * each, sketch(keys)) for keys, each in nodes])
    messages = sum(len(keys) * each for keys, each in nodes)
    assert found.seen == sum(len(keys) for keys, _ in nodes)
    assert len(found.counts) <= KEYS_OF_A_MINUTE
    true: Counter[str] = Counter()
    for keys, each in nodes:
        for key in keys:
            true[key] += each
    for key, count in true.items():
        share = count * found.seen / messages
        tolerance = 1e-3  # a weight is a whole number of millionths
        assert found.counts.get(key, 0) <= share + tolerance
        assert share <= found.counts.get(key, 0) + found.error + tolerance
