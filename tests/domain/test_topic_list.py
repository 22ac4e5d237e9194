"""The hash of a topic list, and what differs between two."""

import pytest

from scalable.domain.topic_list import difference, hash_of, matches


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "00000000"),
        (["topic://tenant/ns/t1"], "195271ae"),
    ],
)
def test_the_hash_is_pulsar_s(names: list[str], expected: str) -> None:
    assert hash_of(names) == expected


def test_the_hash_does_not_depend_on_the_order() -> None:
    assert hash_of(["b", "a", "c"]) == hash_of(iter(("c", "b", "a"))) != hash_of(["a", "b"])


def test_names_are_sorted_as_java_does() -> None:
    """By UTF-16, a character beyond the first plane comes before one at the end of it."""
    beyond, last = "topic://t/n/\U0001f600", "topic://t/n/\uffee"
    assert beyond > last
    assert hash_of([last, beyond]) == hash_of_sorted(beyond, last) != hash_of_sorted(last, beyond)


def hash_of_sorted(*names: str) -> str:
    """The hash of names that are not sorted any more, for they come as one."""
    return hash_of([",".join(names)])


def test_a_topic_made_again_is_removed_and_added() -> None:
    found = difference({"a": 1, "c": 3, "b": 2}, {"d": 4, "a": 1, "b": 7})
    assert (found.removed, found.added) == (("b", "c"), ("b", "d")), "in order of names, whatever the lists'"


def test_equal_lists_do_not_differ() -> None:
    assert not difference({"a": 1}, {"a": 1})


def test_filters_are_exact_and_all_must_hold() -> None:
    topic = {"team": "red", "tier": "1"}
    assert matches(topic, {})
    assert matches(topic, {"team": "red", "tier": "1"})
    for filters in ({"team": "re"}, {"team": "RED"}, {"team": "red", "tier": "2"}, {"absent": "1"}):
        assert not matches(topic, filters)
