"""Every door of the URL table and every socket against every kind of caller; a door without a rule fails."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from scalable.api.doors import Door
from scalable.api.node import node
from scalable.api.sockets.base import Socket
from scalable.api.sockets.routing import doors as socket_doors
from scalable.api.views.base import DoorView
from scalable.asgi import socket_application
from scalable.domain.access import GRANTABLE, Right
from scalable.services.access import mint_token
from scalable.services.rules import rules
from tests.api.callers import INVALID, MAY_ENTER, VALID, make_callers, may_enter
from tests.api.knocking import Session, socket_scope
from tests.api.rest import NAMESPACE, Orders, Rest

OPEN = {"livez", "readyz"}
PAGES = {"webui", "admin"}
ENTERED = {200, 202, 204, 400, 404, 409, 412, 501}
PARTS = {
    "tenant": "public",
    "namespace": "default",
    "topic": "nothing",
    "segment_id": "0",
    "other_segment_id": "1",
    "operation_id": "00000000-0000-4000-8000-000000000000",
    "node_id": "00000000-0000-4000-8000-000000000001",
    "subscription": "s",
    "descriptor": "0000-ffff-0",
    "role": "whoever",
    "job_id": "00000000-0000-4000-8000-000000000003",
    "file": "report.html",
    "token_id": "00000000-0000-4000-8000-000000000002",
}


def _patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            if entry.namespace not in PAGES:  # which have a login of their own, and tests of their own
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


KNOCKS = {
    f"{method}-{pattern.name}": (method, _path(pattern), door)
    for pattern in _patterns(get_resolver())
    for method, door in _view(pattern).doors.items()
}


def each_door(*rights: Right) -> pytest.MarkDecorator:
    """Run a test for each door that wants one of these rights."""
    chosen = {name: knock for name, knock in KNOCKS.items() if knock[2].right in rights}
    return pytest.mark.parametrize(("method", "path", "door"), chosen.values(), ids=chosen)


@pytest.fixture
def callers(db: None) -> dict[str, str]:
    """The token of every kind of caller."""
    return make_callers()


def _knock(token: str, method: str, path: str) -> tuple[int, str]:
    """Status and code of a request, whose effects are undone."""
    with transaction.atomic():
        answer = Rest(None, token=token or None).call(method, path)
        transaction.set_rollback(True)
    rules.outdate()
    body = answer.json() if answer.status_code >= 400 else {}
    return answer.status_code, body.get("code", "")


@each_door(*Right)
def test_who_may_enter(callers: dict[str, str], method: str, path: str, door: Door) -> None:
    for caller in INVALID:
        assert _knock(callers[caller], method, path) == (401, "unauthenticated"), caller
    for caller in VALID - may_enter(door.right, door.level):
        assert _knock(callers[caller], method, path) == (403, "forbidden"), caller
    for caller in may_enter(door.right, door.level):
        assert _knock(callers[caller], method, path)[0] in ENTERED, caller


@each_door(*GRANTABLE)
def test_the_tenant_of_the_system_is_its_own(
    callers: dict[str, str], method: str, path: str, door: Door
) -> None:
    path = path.replace("/public", "/system")
    may_look = {"superuser"} if door.right is Right.LOOKUP else set()
    for caller in {"superuser", "tenant admin", "namespace admin"} - may_look:
        assert _knock(callers[caller], method, path) == (403, "forbidden"), caller
    for caller in {"system"} | may_look:
        assert _knock(callers[caller], method, path)[0] in ENTERED, caller


@each_door(*GRANTABLE)
def test_a_scoped_right_has_a_scope(method: str, path: str, door: Door) -> None:
    assert "/public" in path


@each_door(*set(Right) - {Right.KNOWN})
def test_a_stranger_learns_nothing(db: None, method: str, path: str, door: Door) -> None:
    """The answer is the same for what is there, what is not, and what cannot be read."""
    for address in (path, path.replace("nothing", "%00"), f"{path}?odd=1"):
        for body in (None, b"{"):
            assert Rest("somebody").refused(method, address, body) == (403, "forbidden")
            assert Rest(None).refused(method, address, body) == (401, "unauthenticated")


def test_a_grant_on_a_topic_opens_that_topic_alone(rest: Rest, orders: Orders) -> None:
    role = f"{orders.path}/permissions/worker"
    assert rest.call("POST", role, ["consume"]).status_code == 204
    worker = Rest("worker")
    assert worker.call("GET", orders.path).status_code == 200
    for path in (f"{NAMESPACE}/orders2", NAMESPACE, f"{NAMESPACE}/orders/permissions"):
        assert worker.refused("GET", path) == (403, "forbidden")
    assert worker.refused("DELETE", orders.path) == (403, "forbidden")
    assert rest.call("DELETE", role).status_code == 204
    assert worker.refused("GET", orders.path) == (403, "forbidden")


RIGHTS = {
    "POST-split": Right.ADMIN,
    "POST-merge": Right.ADMIN,
    "POST-merge-pair": Right.ADMIN,
    "POST-rebucket": Right.ADMIN,
    "POST-policy": Right.ADMIN,
    "PUT-topic": Right.ADMIN,
    "DELETE-topic": Right.ADMIN,
    "GET-topic": Right.LOOKUP,
    "GET-namespace": Right.LOOKUP,
    "GET-batches": Right.CONSUME,
    "GET-peek": Right.CONSUME,
    "PUT-subscription": Right.CONSUME,
    "POST-seek": Right.CONSUME,
    "GET-assignments": Right.ADMIN,
    "POST-topic-role-permissions": Right.ADMIN,
    "POST-namespace-role-permissions": Right.ADMIN,
    "POST-tokens": Right.SUPERUSER,
    "POST-load-reports": Right.SYSTEM,
    "POST-tile-reports": Right.SYSTEM,
}


def test_the_doors_that_matter_want_what_they_should() -> None:
    assert {name: KNOCKS[name][2].right for name in RIGHTS} == RIGHTS


def test_a_challenge_names_the_scheme(db: None) -> None:
    answer = Rest(None).call("GET", NAMESPACE)
    assert answer["WWW-Authenticate"].startswith("Bearer ")


def test_livez_is_open(client: Client) -> None:
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("path", sorted(OPEN))
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_probes_are_read_alone(path: str, method: str) -> None:
    answer = Client(enforce_csrf_checks=True).generic(method, f"/{path}")
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
    assert answer.json()["code"] == "method_not_allowed"


# The dashboard's session.


@pytest.fixture
def session(db: None) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def test_a_superusers_session_may_read(session: Client) -> None:
    assert session.get(NAMESPACE).status_code == 200


FORGED: dict[str, dict[str, str]] = {
    "no token": {},
    "another token": {"X-CSRFToken": "x" * 32},
    "another site": {"Origin": "https://evil.example"},
    "a hidden site": {"Origin": "null"},
}
"""What is shown in place of the token of a page of this site, or beside it."""


@pytest.mark.parametrize("shown", FORGED)
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_a_session_without_the_pages_token_changes_nothing(session: Client, shown: str, method: str) -> None:
    session.get("/topics")
    of_the_page = {"X-CSRFToken": session.cookies["csrftoken"].value} if "Origin" in FORGED[shown] else {}
    headers = {**of_the_page, **FORGED[shown]}
    answer = session.generic(method, f"{NAMESPACE}/forged", content_type="application/json", headers=headers)
    body = answer.json()
    assert (answer.status_code, body["code"], set(body["fields"])) == (403, "cross_site_request", {"problem"})
    assert "another site" in body["reason"]
    assert not re.search(r"role|Anonymous|CSRF Failed|\.\.|\.:", body["reason"])
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


SOCKETS: dict[str, tuple[str, type[Socket]]] = {
    str(pattern.pattern).split("/")[3]: (_path(pattern), pattern.callback.consumer_class)
    for pattern in socket_doors
}
each_socket = pytest.mark.parametrize(("path", "socket"), SOCKETS.values(), ids=SOCKETS)
SOCKET_RIGHTS = {
    "lookup": Right.LOOKUP,
    "produce": Right.PRODUCE,
    "consume": Right.CONSUME,
    "queue": Right.CONSUME,
    "controller": Right.CONSUME,
}


@pytest.fixture
async def threads(transactional_db: None) -> AsyncIterator[None]:
    """The node of this process, whose threads read the rules; none of them is left behind."""
    yield
    await node.stop()


async def _handshake(path: str, *subprotocols: str, **headers: str) -> tuple[bool, int | None]:
    scope = socket_scope(path, headers=headers, subprotocols=list(subprotocols))
    application: Any = socket_application
    session = Session(application, scope)
    await session.send(type="websocket.connect")
    answer = await session.receive()
    await session.send(type="websocket.disconnect", code=1000)
    await session.ended()
    return answer["type"] == "websocket.accept", answer.get("code")


@each_socket
async def test_who_may_open_a_socket(threads: None, path: str, socket: type[Socket]) -> None:
    callers = await node.call(make_callers)
    of_the_system = {"system", "superuser"} if socket.right is Right.LOOKUP else {"system"}
    for caller in INVALID:
        offered = [f"bearer.{callers[caller]}"] if callers[caller] else []
        assert await _handshake(path, "scalable.v1", *offered) == (False, 4401), caller
    for caller in VALID:
        expected = (True, None) if caller in MAY_ENTER[socket.right] else (False, 4403)
        assert await _handshake(path, "scalable.v1", f"bearer.{callers[caller]}") == expected, caller
        assert await _handshake(path, authorization=f"Bearer {callers[caller]}") == expected, caller
        within = path.replace("/public", "/system")
        expected = (True, None) if caller in of_the_system else (False, 4403)
        assert await _handshake(within, authorization=f"Bearer {callers[caller]}") == expected, caller
    assert await _handshake(path, authorization="Basic forged") == (False, 4401)


def test_the_sockets_want_what_they_should() -> None:
    assert {name: SOCKETS[name][1].right for name in SOCKET_RIGHTS} == SOCKET_RIGHTS


@each_socket
async def test_a_token_in_the_address_counts_for_nothing(path: str, socket: type[Socket]) -> None:
    token = mint_token(role="admin")
    assert await _handshake(f"{path}?token={token}&access_token={token}") == (False, 4401)


@each_socket
async def test_a_socket_is_opened_for_this_host_and_this_site_alone(path: str, socket: type[Socket]) -> None:
    bearer = f"Bearer {mint_token(role='admin')}"
    for host in ("evil.example", "", "localhost.evil.example", "evil.example:80"):
        assert await _handshake(path, authorization=bearer, host=host) == (False, 4400), host
    foreign = ("https://evil.example", "null", "http://localhost.evil.example", "http://[", "")
    for origin in (*foreign, "https://localhost", "//localhost", "localhost"):
        assert await _handshake(path, authorization=bearer, origin=origin) == (False, 4403), origin
    assert await _handshake(path, authorization=bearer, origin="http://localhost") == (True, None)


async def test_a_handshake_that_fails_inside_is_answered() -> None:
    """Without a database, which this test may not use, nobody knows what the role was granted."""
    path, _ = SOCKETS["lookup"]
    try:
        assert await _handshake(path, authorization=f"Bearer {mint_token(role='somebody')}") == (False, 4500)
    finally:
        await node.stop()


async def test_a_socket_path_that_is_no_door() -> None:
    token = mint_token(role="admin")
    assert await _handshake("/ws/v2/elsewhere", authorization=f"Bearer {token}") == (False, 4404)
