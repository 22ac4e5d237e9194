"""How long a key, or a name or value of a property, may be; asked before writing, and when writing failed."""

from collections.abc import Iterable, Mapping

MAX_TEXT_BYTES = 65_535
"""In UTF-8: the batch format has two bytes for the length (docs/batch-format.md)."""

NAMED_CHARACTERS = 100
"""An error names a property by so much of its name, which may be as long as any text."""


def first_problem(texts: Iterable[tuple[str | None, Mapping[str, str]]]) -> str | None:
    """Name the first text that is too long, of (key, properties) of each record; None when none is."""
    for key, properties in texts:
        if key is not None and (problem := too_long("a key", key)):
            return problem
        for name, value in properties.items():
            what = f"the property {name[:NAMED_CHARACTERS]!r}"
            problem = too_long("a property's name", name) or too_long(what, value)
            if problem:
                return problem
    return None


def too_long(what: str, text: str) -> str | None:
    """Say of a text that it is longer than it may be; None when it is not."""
    size = len(text.encode(errors="replace"))
    if size <= MAX_TEXT_BYTES:
        return None
    return f"{what} has {size} bytes, and {MAX_TEXT_BYTES} are possible: what is longer belongs in the value"
