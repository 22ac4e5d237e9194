"""Errors: stable codes, sentences made of named fields, hints, and the way over the wire and back."""

import json
import pickle
import string
from inspect import get_annotations
from typing import Any

import pytest

from scalable.domain import errors
from scalable.domain.errors import BY_CODE, ScalableError, SegmentNotFound, UnrecognisedError, error_from_json

SAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 7,
    "float": 1.5,
    "bool": True,
    "Any": 3,
    "list[int]": [1, 2],
    "list[str]": ["a", "b"],
    "list[Any]": [{"start": 0}],
    "list[dict[str, Any]]": [{"start": 0}],
    "dict[str, Any]": {"k": 1},
}


def sample(error_class: type[ScalableError]) -> ScalableError:
    return error_class(**{name: SAMPLES[kind] for name, kind in get_annotations(error_class).items()})


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_has_a_sentence_of_its_fields_and_a_hint(code: str) -> None:
    error_class = BY_CODE[code]
    error = sample(error_class)
    fields = set(error.field_names())
    assert error.reason
    assert error.hint
    assert placeholders(error_class.__doc__ or "") | placeholders(error.hint_template) <= fields
    assert "{" not in error.reason.replace("{'k': 1}", "").replace("{'start': 0}", "")


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_survives_json_and_pickle(code: str) -> None:
    error = sample(BY_CODE[code])
    body = json.loads(json.dumps(error.to_json()))
    assert set(body) == {"code", "reason", "fields", "hint"}
    for copy in (error_from_json(body), pickle.loads(pickle.dumps(error))):
        assert type(copy) is type(error)
        assert copy.to_json() == error.to_json()


def test_every_error_class_is_exported_from_the_package() -> None:
    assert {error.__name__ for error in BY_CODE.values()} <= set(errors.__all__)


def test_fields_are_attributes_and_wrong_ones_are_refused() -> None:
    assert SegmentNotFound(segment_id=3).segment_id == 3
    with pytest.raises(TypeError, match="segment"):
        SegmentNotFound(segment="3")  # type: ignore[call-arg]


def test_an_error_repeats_no_more_than_the_beginning_of_a_long_text() -> None:
    error = errors.InvalidParameter(parameter="p", value=["x" * 5_000, "y"], problem="z" * 5_000)
    assert error.fields["value"] == ["x" * 1_000 + "…", "y"]
    assert len(str(error)) < 2_200
    assert error_from_json(error.to_json()).to_json() == error.to_json()


def test_an_error_of_a_newer_server_keeps_its_code_and_reason() -> None:
    body = {"code": "from_the_future", "reason": "It is too late.", "fields": {"year": 2100}, "hint": ""}
    error = error_from_json(body)
    assert isinstance(error, UnrecognisedError)
    assert error.original_code == "from_the_future"
    assert "It is too late." in str(error)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_an_error_of_another_version_keeps_its_class(code: str) -> None:
    """A later server tells fields that are not known here; an earlier one lacks those that came later."""
    error_class = BY_CODE[code]
    body = sample(error_class).to_json()
    needed = {name: value for name, value in body["fields"].items() if name in error_class.needed_fields()}
    for fields in ({**body["fields"], "more": 1}, needed):
        error = error_from_json({**body, "fields": fields})
        assert type(error) is error_class
        assert fields.items() <= error.fields.items()
        assert pickle.loads(pickle.dumps(error)).to_json() == error.to_json()


def test_known_code_with_other_fields_is_not_forced_into_the_class() -> None:
    error = error_from_json({"code": "segment_not_found", "reason": "gone", "fields": {"id": 1}})
    assert isinstance(error, UnrecognisedError)
    assert error.original_code == "segment_not_found"
