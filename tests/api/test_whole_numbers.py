"""Whole numbers are written as such: every parameter of every door refuses another spelling."""

from typing import Any, get_args

import msgspec
import pytest
from django.http import QueryDict

from scalable.api.serializers import Query, read_query
from scalable.api.urls import urlpatterns
from scalable.domain.errors import InvalidParameter


def _takes_whole_numbers(kind: Any) -> bool:
    return kind is int or any(map(_takes_whole_numbers, get_args(kind)))


def _parameters() -> set[tuple[type[Query], str]]:
    views: list[Any] = [entry.callback for entry in urlpatterns]
    doors = [door for view in views for door in view.view_class.doors.values()]
    return {
        (door.query, field.encode_name)
        for door in doors
        for field in msgspec.structs.fields(door.query)
        if _takes_whole_numbers(field.type)
    }


PARAMETERS = sorted(_parameters(), key=lambda each: (each[0].__name__, each[1]))


def test_there_are_such_parameters() -> None:
    assert {"limit", "offset", "before", "expectedEpoch"} <= {name for _, name in PARAMETERS}


@pytest.mark.parametrize(("shape", "name"), PARAMETERS, ids=[f"{s.__name__}-{n}" for s, n in PARAMETERS])
@pytest.mark.parametrize("text", ["5.0", "5e0", "0.5e1", "-0.0", "+5", "05", " 5", "5 ", "5_0", "", "٥"])
def test_another_spelling_is_refused(shape: type[Query], name: str, text: str) -> None:
    given = QueryDict(mutable=True)
    given[name] = text
    with pytest.raises(InvalidParameter) as refused:
        read_query(given, shape)
    assert refused.value.fields["parameter"] == name
