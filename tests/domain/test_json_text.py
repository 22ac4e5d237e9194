"""JSON of strangers is read or refused with a ValueError, however deep it nests."""

import json

import pytest

from scalable.domain.checkpoint import checkpoint_from_text
from scalable.domain.errors import InvalidParameter
from scalable.domain.json_text import MAX_DEPTH, NestedTooDeep, load_json, load_shallow_json

TOO_DEEP = 100_000


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_what_nests_too_deep_is_refused(opening: str) -> None:
    for load in (load_json, load_shallow_json):
        with pytest.raises(NestedTooDeep):
            load(opening * TOO_DEEP)
    with pytest.raises(InvalidParameter):
        checkpoint_from_text(opening * TOO_DEEP)


def test_what_is_written_again_may_nest_a_hundred_times() -> None:
    texts = ["[" * depth + "]" * depth for depth in (MAX_DEPTH, MAX_DEPTH + 1)]
    assert [load_json(text) for text in texts] == [json.loads(text) for text in texts]
    assert load_shallow_json(texts[0]) == json.loads(texts[0])
    with pytest.raises(NestedTooDeep):
        load_shallow_json(texts[1])
