"""JSON that somebody else wrote: however deep it nests, what cannot be read is a ValueError."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100


class NestedTooDeep(ValueError):
    """Lists and objects are in one another more often than can be followed, or than makes sense."""

    def __init__(self) -> None:
        super().__init__("lists and objects nest too deep")


def load_json(text: str | bytes | bytearray, **reading: Any) -> Any:
    """Read JSON with these options of `json.loads`; raises ValueError, of which NestedTooDeep is one."""
    try:
        return json.loads(text, **reading)
    except RecursionError as error:
        raise NestedTooDeep from error


def load_shallow_json(text: str | bytes | bytearray, **reading: Any) -> Any:
    """Read JSON that is written, sent or shown again later on, which takes more room than reading it.

    Raises as `load_json`.
    """
    value = load_json(text, **reading)
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in _children(each)]
    if level:
        raise NestedTooDeep
    return value


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
