"""Sketches of hot keys: bounded, and right within their error however they are cut and merged."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.sketch import LONGEST_KEY, HotKeys, shown

KEYS = st.lists(st.sampled_from([f"k{number}" for number in range(12)]), max_size=200)


def check(sketch: HotKeys, truth: Counter[str], capacity: int) -> None:
    """Hold the sketch against what was counted."""
    assert sketch.seen == truth.total()
    assert len(sketch.counts) <= capacity
    for key in truth:
        assert sketch.counts.get(key, 0) <= truth[key] <= sketch.counts.get(key, 0) + sketch.error


@given(parts=st.lists(KEYS, max_size=6), capacity=st.integers(1, 12), limit=st.integers(1, 6))
def test_counts_are_within_the_error(parts: list[list[str]], capacity: int, limit: int) -> None:
    whole, merged, truth = HotKeys(capacity), HotKeys(capacity), Counter[str]()
    for keys in parts:
        one = HotKeys(capacity)
        one.add(keys)
        whole.add(keys)
        truth.update(keys)
        check(one, Counter(keys), capacity)
        merged.merge(one.counts, seen=one.seen, error=one.error)
    check(whole, truth, capacity)
    check(merged, truth, capacity)
    check(merged.top(limit), truth, limit)
    assert merged.error * (capacity + 1) <= merged.seen


def test_a_key_with_much_of_the_load_is_found_among_thousands() -> None:
    sketch = HotKeys()
    for number in range(20_000):
        sketch.add(["hot" if number % 3 == 0 else f"k{number}"])
    (key,) = sketch.top(1).counts
    assert key == "hot"


def test_long_keys_are_told_apart_and_short() -> None:
    long = ["x" * 300 + str(number) for number in range(2)]
    assert shown("short") == "short"
    assert shown(long[0]) != shown(long[1])
    assert all(len(shown(key)) <= LONGEST_KEY for key in long)
