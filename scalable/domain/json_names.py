"""JSON objects that have a name twice: readers take one value or the other, so that nobody may guess."""

from __future__ import annotations

from typing import Any

MAX_SHOWN_CHARACTERS = 100


class RepeatedName(ValueError):
    """An object has a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the name {name[:MAX_SHOWN_CHARACTERS]!r} is in one object twice")


def refuse_repeated_names(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object of these pairs that has a name twice; raises RepeatedName."""
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise RepeatedName(name)
        names.add(name)


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Give the object of these pairs, as `object_pairs_hook` of a JSON reader; raises RepeatedName."""
    refuse_repeated_names(pairs)
    return dict(pairs)
