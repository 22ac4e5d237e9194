"""Who shows a door nothing that could let him in, as far as the head of a request tells."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import parse_cookie

from scalable.api.authentication import SCHEME
from scalable.domain.errors import Unauthenticated
from scalable.services import access
from scalable.services.rules import rules

DOORS = "/admin/v2/"
"""Below it there are doors alone, which ask who enters before they read anything."""


def is_stranger(scope: Mapping[str, Any]) -> bool:
    """True when a door will refuse the request, whatever its body; nothing is waited for.

    The session behind a cookie is in the database, so who has a cookie is judged by the door alone.
    """
    if not scope["path"].startswith(DOORS):
        return False
    shown = _header_of(scope, b"authorization").split()
    if shown and shown[0].lower() == SCHEME:
        return len(shown) != 2 or not _holds(shown[1].decode("latin-1"))
    return settings.SESSION_COOKIE_NAME not in parse_cookie(_header_of(scope, b"cookie").decode("latin-1"))


def _holds(token: str) -> bool:
    """Tell whether a token was signed, has not expired, and is not known to be revoked."""
    try:
        access.check_revoked(subject=access.read_token(token=token), known=rules.latest)
    except Unauthenticated:
        return False
    return True


def _header_of(scope: Mapping[str, Any], name: bytes) -> bytes:
    """All values of a header with commas between, as Django has them; `name` in lower case."""
    return b",".join(value for key, value in scope["headers"] if key == name)
