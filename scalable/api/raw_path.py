"""What of a path or query is lost once its percent escapes are resolved, and must not be."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

from django.http import HttpRequest

from scalable.domain.errors import InvalidName, InvalidParameter

_QUOTED_SLASH = b"%2f"
SHOWN_CHARACTERS = 255


def check_path(request: HttpRequest) -> None:
    """Refuse a path with a quoted slash, which would be taken for two parts, or with what is no UTF-8.

    Raises InvalidName. A server that does not tell the path as it was sent has nothing to check.
    """
    check_scope(getattr(request, "scope", {}))


def check_scope(scope: Mapping[str, Any]) -> None:
    """Refuse such a path of a request or handshake that is not Django's; raises InvalidName."""
    raw: bytes = scope.get("raw_path") or b""
    shown = raw.decode("latin-1")[:SHOWN_CHARACTERS]
    if _QUOTED_SLASH in raw.lower():
        raise InvalidName(field="path", value=shown, problem="a name in it contains '/'")
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise InvalidName(field="path", value=shown, problem="it is not UTF-8") from error


def check_query(query: str) -> None:
    """Refuse a query with what is no UTF-8, which would be taken for other text; raises InvalidParameter."""
    for part in query.split("&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError as error:
            name, _, value = (unquote_plus(side)[:SHOWN_CHARACTERS] for side in part.partition("="))
            raise InvalidParameter(parameter=name, value=value, problem="it is not UTF-8") from error
