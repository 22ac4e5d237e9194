"""Every door of the URL table and every socket against every kind of caller; a door without a rule fails."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from scalable.api.sockets.routing import doors as socket_doors
from scalable.api.views.base import DoorView
from scalable.asgi import socket_application
from scalable.domain.access import Right
from scalable.services.access import mint_token
from tests.api.knocking import Session, socket_scope
from tests.api.rest import NAMESPACE, Rest

OPEN = {"livez", "readyz"}
PAGES_NAMESPACE = "webui"
PARTS = {
    "tenant": "public",
    "namespace": "default",
    "topic": "nothing",
    "segment_id": "0",
    "other_segment_id": "1",
    "operation_id": "00000000-0000-4000-8000-000000000000",
    "node_id": "00000000-0000-4000-8000-000000000001",
    "subscription": "s",
}
CALLERS = {
    **{right: {"admin"} for right in (Right.PRODUCE, Right.CONSUME, Right.ADMIN, Right.SUPERUSER)},
    Right.LOOKUP: {"admin", "system"},
    Right.SYSTEM: {"system"},
    Right.OBSERVE: {"admin", "system"},
    Right.KNOWN: {"admin", "system", "somebody"},
}
"""Who may enter by which right."""


def _patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            if entry.namespace != PAGES_NAMESPACE:  # pages have a login of their own, tested with them
                yield from _patterns(entry)
        elif entry.name not in OPEN:
            yield entry


def _path(pattern: Any) -> str:
    text = str(pattern.pattern)
    for name, value in PARTS.items():
        text = text.replace(f"<str:{name}>", value)
    assert "<" not in text, f"no sample for {text}"
    return f"/{text}"


def _view(pattern: URLPattern) -> type[DoorView]:
    view = getattr(pattern.callback, "view_class", None)
    assert view is not None, f"{pattern} is a door without a rule"
    assert issubclass(view, DoorView), f"{pattern} is a door without a rule"
    door_view: type[DoorView] = view
    return door_view


DOORS = [
    pytest.param(method, _path(pattern), door.right, id=f"{method}-{pattern.name}")
    for pattern in _patterns(get_resolver())
    for method, door in _view(pattern).doors.items()
]


@pytest.mark.parametrize(("method", "path", "right"), DOORS)
def test_who_may_enter(db: None, method: str, path: str, right: Right) -> None:
    assert Rest(None).refused(method, path) == (401, "unauthenticated")
    assert Rest(token="forged").refused(method, path) == (401, "unauthenticated")
    for role in ("admin", "system", "somebody"):
        status = Rest(role).call(method, path).status_code
        if role in CALLERS[right]:
            assert status in {200, 204, 400, 404}, role
        else:
            assert Rest(role).refused(method, path) == (403, "forbidden")


GUARDED = [door for door in DOORS if door.values[2] is not Right.KNOWN]


@pytest.mark.parametrize(("method", "path", "right"), GUARDED)
def test_a_stranger_learns_nothing(db: None, method: str, path: str, right: Right) -> None:
    """The answer is the same for what is there, what is not, and what cannot be read."""
    for address in (path, path.replace("nothing", "%00"), f"{path}?odd=1"):
        for body in (None, b"{"):
            assert Rest("somebody").refused(method, address, body) == (403, "forbidden")
            assert Rest(None).refused(method, address, body) == (401, "unauthenticated")


def test_a_challenge_names_the_scheme(db: None) -> None:
    answer = Rest(None).call("GET", NAMESPACE)
    assert answer["WWW-Authenticate"].startswith("Bearer ")


def test_livez_is_open(client: Client) -> None:
    assert client.get("/livez").status_code == 200


# The dashboard's session.


@pytest.fixture
def session(db: None) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def test_a_superusers_session_may_read(session: Client) -> None:
    assert session.get(NAMESPACE).status_code == 200


def test_a_session_without_the_pages_token_changes_nothing(session: Client) -> None:
    answer = session.put(f"{NAMESPACE}/forged", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert session.get(f"{NAMESPACE}/forged").status_code == 404


def test_a_session_with_the_pages_token_may_operate(session: Client) -> None:
    session.get("/topics")
    token = session.cookies["csrftoken"].value
    answer = session.put(f"{NAMESPACE}/made", content_type="application/json", headers={"X-CSRFToken": token})
    assert answer.status_code == 204


def test_another_users_session_has_no_right(db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("bob", password="x"))
    assert client.get(NAMESPACE).status_code == 403


# Sockets.


SOCKETS = [pytest.param(_path(pattern), id=str(pattern.pattern)) for pattern in socket_doors]


async def _handshake(path: str, *subprotocols: str, **headers: str) -> tuple[bool, int | None]:
    scope = socket_scope(path, headers=headers, subprotocols=list(subprotocols))
    application: Any = socket_application
    session = Session(application, scope)
    await session.send(type="websocket.connect")
    answer = await session.receive()
    await session.send(type="websocket.disconnect", code=1000)
    await session.ended()
    return answer["type"] == "websocket.accept", answer.get("code")


@pytest.mark.parametrize("path", SOCKETS)
async def test_who_may_open_a_socket(path: str) -> None:
    assert await _handshake(path) == (False, 4401)
    assert await _handshake(path, "scalable.v1", "bearer.forged") == (False, 4401)
    assert await _handshake(path, authorization="Basic forged") == (False, 4401)
    assert await _handshake(path, "scalable.v1", f"bearer.{mint_token(role='somebody')}") == (False, 4403)
    token = mint_token(role="admin")
    assert await _handshake(path, "scalable.v1", f"bearer.{token}") == (True, None)
    assert await _handshake(path, authorization=f"Bearer {token}") == (True, None)


@pytest.mark.parametrize("path", SOCKETS)
async def test_a_token_in_the_address_counts_for_nothing(path: str) -> None:
    token = mint_token(role="admin")
    assert await _handshake(f"{path}?token={token}&access_token={token}") == (False, 4401)


async def test_a_socket_path_that_is_no_door() -> None:
    token = mint_token(role="admin")
    assert await _handshake("/ws/v2/elsewhere", authorization=f"Bearer {token}") == (False, 4404)
