"""Who opens a socket: a bearer token (header or sub-protocol), or the dashboard's session."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port, validate_host

from scalable.api.authentication import subject_of_user
from scalable.api.doorkeeper import Pass, Session
from scalable.api.errors import answer_of, close_code_of, headers_of
from scalable.api.node import node
from scalable.api.sessions import SessionStore
from scalable.domain.access import Right, Subject
from scalable.domain.access import Scope as Reach
from scalable.domain.errors import Forbidden, InvalidParameter, ScalableError, Unauthenticated
from scalable.domain.names import TopicName
from scalable.services import access
from scalable.services.rules import rules
from scalable.wire.frames import SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
ORIGIN_RIGHT = "sockets of this site's own pages"


async def pass_of(scope: Scope, *, right: Right) -> Pass:
    """What a handshake shows at the door; raises InvalidParameter, Unauthenticated, Forbidden.

    The rules are at hand then, so that the door can be opened without a wait.
    """
    check_host(scope)
    reach = Reach.of_path(scope["url_route"]["kwargs"])
    token = token_of(scope)
    if token is not None:
        shown = Pass(access.read_token(token=token), right, reach)
    else:
        shown = await _pass_of_session(scope, right, reach)
    check_origin(scope, shown.subject)
    await _read_rules(shown)
    return shown


async def deny(scope: Scope, send: Send, error: ScalableError) -> None:
    """Answer a handshake with an error: as REST does, or by a close where the server cannot send answers."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": close_code_of(error), "reason": error.code})
        return
    status = answer_of(error).status
    told = {"Content-Type": "application/json", **headers_of(error, status)}
    headers = [(name.lower().encode(), value.encode()) for name, value in told.items()]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": json.dumps(error.to_json()).encode()})


async def _read_rules(shown: Pass) -> None:
    """Have the rules at hand; a refusal compares them first, for the grant may be of a moment ago."""
    subject, right = shown.subject, shown.right
    depends = access.needs_rules(subject, right)
    if rules.fresh is None and (subject.token_id or depends):
        await node.call(rules.current)
    elif depends and not access.may(subject=subject, right=right, scope=shown.scope, known=rules.latest):
        await node.call(rules.refresh)


def check_host(scope: Scope) -> None:
    """Refuse a handshake for a foreign host, or for none or two, as requests are; raises InvalidParameter."""
    host = ",".join(
        value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == b"host"
    )
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        raise InvalidParameter(parameter="Host", value=host[:255], problem="this node is not called so")


def check_origin(scope: Scope, subject: Subject) -> None:
    """Refuse a page of another site, which might ride on a login of this one; raises Forbidden."""
    if header_of(scope, b"origin") is not None and not is_own_origin(scope):
        raise Forbidden(role=subject.role, right=ORIGIN_RIGHT)


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
    """True when the page that opens the socket is this site's, or one that the settings trust."""
    origin = header_of(scope, b"origin")
    if origin is None:
        return False
    try:
        shown = urlsplit(origin)
    except ValueError:  # no address at all
        return False
    is_own = (shown.scheme, shown.netloc) == (_page_scheme(scope), header_of(scope, b"host"))
    return is_own or origin in settings.CSRF_TRUSTED_ORIGINS


def _page_scheme(scope: Scope) -> str:
    """The scheme of pages that open such sockets; behind a proxy that is believed, what it forwards."""
    return "https" if scope.get("scheme") in {"wss", "https"} else "http"


async def _pass_of_session(scope: Scope, right: Right, reach: Reach) -> Pass:
    key = parse_cookie(header_of(scope, b"cookie") or "").get(settings.SESSION_COOKIE_NAME)
    found = await node.call(_read_session, session_key=key) if key else None
    if found is None:
        raise Unauthenticated(problem="there is none")
    subject, session = found
    if not is_own_origin(scope):  # a browser always tells, and others have tokens
        raise Forbidden(role=subject.role, right=ORIGIN_RIGHT)
    return Pass(subject, right, reach, session)


def _read_session(*, session_key: str) -> tuple[Subject, Session] | None:
    request = HttpRequest()
    request.session = SessionStore(session_key)
    user = get_user(request)
    subject = subject_of_user(user)
    if subject is None or user.is_anonymous:
        return None
    session = Session(session_key, str(request.session[SESSION_KEY]), user.get_session_auth_hash())
    return subject, session
