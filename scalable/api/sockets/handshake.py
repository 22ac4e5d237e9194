"""Who opens a socket: a bearer token (header or sub-protocol), or the dashboard's session."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie

from scalable.api.authentication import subject_of_user
from scalable.api.node import node
from scalable.domain.access import Right, Subject
from scalable.domain.access import Scope as Reach
from scalable.domain.errors import Forbidden, Unauthenticated
from scalable.domain.names import TopicName
from scalable.services import access
from scalable.wire.frames import SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX

Scope = Mapping[str, Any]
ORIGIN_RIGHT = "sockets of this site's own pages"


async def subject_of(scope: Scope, *, right: Right) -> Subject:
    """The subject behind a handshake, if it has the right there; raises Unauthenticated, Forbidden."""
    where = Reach.of_path(scope["url_route"]["kwargs"])
    token = token_of(scope)
    if token is not None:
        return access.require(subject=access.authenticate(token=token), right=right, scope=where)
    subject = await _session_subject(scope)
    if subject is not None and not is_own_origin(scope):
        raise Forbidden(role=subject.role, right=ORIGIN_RIGHT)
    return access.require(subject=subject, right=right, scope=where)


def token_of(scope: Scope) -> str | None:
    """The bearer token of a handshake, from the header before the sub-protocol; raises Unauthenticated."""
    header = header_of(scope, b"authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated(problem="the header is not 'Bearer <token>'")
        return token.strip()
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(TOKEN_SUBPROTOCOL_PREFIX):
            return str(offered.removeprefix(TOKEN_SUBPROTOCOL_PREFIX))
    return None


def subprotocol_of(scope: Scope) -> str | None:
    """The sub-protocol to answer with: ours if it was offered; a browser wants none that it did not offer."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None


def topic_of(scope: Scope) -> TopicName:
    """The topic that the path names; raises InvalidName."""
    parts = scope["url_route"]["kwargs"]
    return TopicName(parts["tenant"], parts["namespace"], parts["topic"])


def header_of(scope: Scope, name: bytes) -> str | None:
    """A header of the handshake; `name` in lower case."""
    for key, value in scope.get("headers", ()):
        if key.lower() == name:
            return str(value.decode("latin-1"))
    return None


def is_own_origin(scope: Scope) -> bool:
    """True when the page that opens the socket is this site's, lest other sites ride on its cookie."""
    origin = header_of(scope, b"origin")
    if origin is None:
        return False
    return urlsplit(origin).netloc == header_of(scope, b"host") or origin in settings.CSRF_TRUSTED_ORIGINS


async def _session_subject(scope: Scope) -> Subject | None:
    session_key = parse_cookie(header_of(scope, b"cookie") or "").get(settings.SESSION_COOKIE_NAME)
    return await node.call(_read_session, session_key=session_key) if session_key else None


def _read_session(*, session_key: str) -> Subject | None:
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return subject_of_user(get_user(request))
