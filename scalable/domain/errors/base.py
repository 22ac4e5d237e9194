"""Every error that the product can answer with: a stable code, named fields, a sentence, a hint.

The first paragraph of a class's docstring is the sentence, with its fields in braces. Transports map the
code to an HTTP status or a close code in one table of their own; clients rebuild the same class from the
JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform

BY_CODE: dict[str, type[ScalableError]] = {}
LONGEST_TEXT = 1_000
"""Longer ones, which somebody sent, are cut: an error says what was wrong with them, and is no echo."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class ScalableError(Exception):
    """Base of all errors of the product; a subclass annotates its fields, which are keyword arguments."""

    code: ClassVar[str] = ""
    hint_template: ClassVar[str] = ""
    fields: dict[str, Any]
    reason: str
    hint: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.code in BY_CODE:
            raise TypeError(f"error code {cls.code!r} is used twice")
        BY_CODE[cls.code] = cls

    def __init__(self, **fields: Any) -> None:
        self._fill({**self._defaults(), **{name: _shown(value) for name, value in fields.items()}})
        sentence = " ".join((type(self).__doc__ or self.code).split("\n\n")[0].split())
        self.reason = sentence.format_map(self.fields)
        self.hint = self.hint_template.format_map(self.fields)
        super().__init__(self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return error_from_json, (self.to_json(),)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Name the fields of this error, in the order of their declaration."""
        return tuple(get_annotations(cls)) if cls is not ScalableError else ()

    @classmethod
    def needed_fields(cls) -> set[str]:
        """Name the fields that have no default."""
        return set(cls.field_names()) - set(cls._defaults())

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: cls.__dict__[name] for name in cls.field_names() if name in cls.__dict__}

    def _fill(self, fields: dict[str, Any]) -> None:
        wrong = set(fields) ^ set(self.field_names())
        if wrong:
            raise TypeError(f"{type(self).__name__}: missing or unknown fields {sorted(wrong)}")
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Give the body that REST answers and error frames carry: code, reason, fields, hint."""
        return {"code": self.code, "reason": self.reason, "fields": self.fields, "hint": self.hint}


def _shown(value: Any) -> Any:
    """A text, or each text of a list, as far as an error repeats it."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}…"
    return [_shown(each) for each in value] if isinstance(value, list) else value


def error_from_json(body: Mapping[str, Any]) -> ScalableError:
    """Rebuild an error from its JSON form; an unknown code, or one without its fields: `UnrecognisedError`.

    What a later version tells beside the fields that are known here stays in `fields`.
    """
    error_class = BY_CODE.get(str(body.get("code", "")))
    fields = dict(body.get("fields") or {})
    if error_class is None or not error_class.needed_fields() <= set(fields):
        return UnrecognisedError(
            original_code=str(body.get("code", "")),
            original_reason=str(body.get("reason", "")),
            original_fields=fields,
        )
    error = error_class(**{name: fields[name] for name in error_class.field_names() if name in fields})
    error.fields |= fields
    error.reason, error.hint = str(body.get("reason", error.reason)), str(body.get("hint", error.hint))
    error.args = (error.reason,)
    return error


class UnrecognisedError(ScalableError):
    """The server answered {original_code!r}: {original_reason}"""

    code = "unrecognised"
    hint_template = "The server speaks of an error that this client does not know; a newer client may."
    original_code: str
    original_reason: str
    original_fields: dict[str, Any]


class Internal(ScalableError):
    """Something went wrong inside the server (reference {reference})."""

    code = "internal"
    hint_template = "The server's log names the cause beside the reference; the request may be repeated."
    reference: str


class Unavailable(ScalableError):
    """The server cannot reach its database, or a lock there, just now (reference {reference})."""

    code = "unavailable"
    hint_template = "Repeat the request after a moment."
    reference: str
