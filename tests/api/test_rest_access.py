"""Permissions and tokens by REST, in Pulsar's shape."""

from typing import Any
from urllib.parse import quote

import pytest

from scalable.services import access, tokens
from tests.api.rest import NAMESPACE, Rest

SCOPES = {
    "tenant": "/admin/v2/tenants/public",
    "namespace": "/admin/v2/namespaces/public/default",
    "topic": f"{NAMESPACE}/orders",
}
TOKENS = "/admin/v2/tokens"


@pytest.mark.parametrize("scope", SCOPES)
def test_permissions_are_given_listed_and_taken_away(rest: Rest, scope: str) -> None:
    path = f"{SCOPES[scope]}/permissions"
    assert rest.json(path) == {}
    assert rest.call("POST", f"{path}/worker", ["produce", "consume"]).status_code == 204
    assert rest.call("POST", f"{path}/looker", ["lookup"]).status_code == 204
    assert rest.json(path) == {"looker": ["lookup"], "worker": ["consume", "produce"]}
    assert rest.call("POST", f"{path}/worker", ["consume", "consume"]).status_code == 204
    assert rest.json(path) == {"looker": ["lookup"], "worker": ["consume"]}
    for _ in range(2):
        assert rest.call("DELETE", f"{path}/worker").status_code == 204
    assert rest.json(path) == {"looker": ["lookup"]}


def test_a_topics_permissions_are_those_that_hold(rest: Rest) -> None:
    for scope, action in (("tenant", "lookup"), ("namespace", "produce"), ("topic", "consume")):
        rest.call("POST", f"{SCOPES[scope]}/permissions/worker", [action])
    assert rest.json(f"{SCOPES['topic']}/permissions") == {"worker": ["consume", "lookup", "produce"]}
    assert rest.json(f"{SCOPES['namespace']}/permissions") == {"worker": ["produce"]}


REFUSED: list[tuple[str, str, object, int, str]] = [
    ("POST", f"{SCOPES['namespace']}/permissions/worker", [], 400, "unreadable_body"),
    ("POST", f"{SCOPES['namespace']}/permissions/worker", ["functions"], 400, "unreadable_body"),
    ("POST", f"{SCOPES['namespace']}/permissions/worker", {"actions": ["produce"]}, 400, "unreadable_body"),
    ("POST", f"{SCOPES['namespace']}/permissions/worker", None, 400, "unreadable_body"),
    ("POST", f"{SCOPES['namespace']}/permissions/a%2Fb", ["lookup"], 404, "unknown_path"),
    ("POST", f"{SCOPES['namespace']}/permissions/a%00b", ["lookup"], 400, "invalid_name"),
    ("POST", f"{SCOPES['namespace']}/permissions/{'x' * 256}", ["lookup"], 400, "invalid_name"),
    ("GET", "/admin/v2/namespaces/public/nowhere/permissions", None, 404, "namespace_not_found"),
    ("POST", "/admin/v2/namespaces/public/nowhere/permissions/w", ["lookup"], 404, "namespace_not_found"),
    ("DELETE", "/admin/v2/scalable/public/nowhere/t/permissions/w", None, 404, "namespace_not_found"),
    ("GET", "/admin/v2/tenants/nowhere/permissions", None, 404, "tenant_not_found"),
    ("POST", TOKENS, {"role": ""}, 400, "unreadable_body"),
    ("POST", TOKENS, {"role": "a/b"}, 400, "invalid_name"),
    ("POST", TOKENS, {"role": "w", "ttlSeconds": 0}, 400, "unreadable_body"),
    ("POST", TOKENS, {"role": "w", "ttlSeconds": 1e12}, 400, "unreadable_body"),
    ("POST", TOKENS, {"role": "w", "for": "ever"}, 400, "unknown_field"),
    ("DELETE", f"{TOKENS}/unknown", None, 404, "token_not_found"),
    ("DELETE", f"{TOKENS}/a%00b", None, 404, "token_not_found"),
    ("DELETE", f"{TOKENS}/{'x' * 300}", None, 404, "token_not_found"),
    ("GET", f"{TOKENS}?limit=0", None, 400, "invalid_parameter"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), REFUSED)
def test_refusals(rest: Rest, method: str, path: str, body: object, status: int, code: str) -> None:
    assert rest.refused(method, path, body) == (status, code)
    assert rest.json(f"{SCOPES['namespace']}/permissions") == {}
    assert rest.json(TOKENS) == {"tokens": [], "total": 0}


@pytest.mark.parametrize(
    "role", ["user:ada", "a.b", "50%", "é ü", "日本", "0000-7fff-1", "<b>", "a?b=c", "permissions", "x" * 255]
)
def test_a_role_may_have_any_name(rest: Rest, role: str) -> None:
    path = f"{SCOPES['topic']}/permissions"
    assert rest.call("POST", f"{path}/{quote(role, safe='')}", ["consume"]).status_code == 204
    assert rest.json(path) == {role: ["consume"]}
    issued = rest.call("POST", TOKENS, {"role": role}).json()
    worker = Rest(token=issued["token"])
    assert worker.call("GET", f"{SCOPES['topic']}/subscriptions").status_code == 404
    assert rest.call("DELETE", f"{path}/{quote(role, safe='')}").status_code == 204
    assert worker.refused("GET", f"{SCOPES['topic']}/subscriptions") == (403, "forbidden")


def test_a_token_is_minted_listed_and_revoked(rest: Rest) -> None:
    minted = rest.call("POST", TOKENS, {"role": "worker", "ttlSeconds": 60})
    issued: dict[str, Any] = minted.json()
    assert minted["Cache-Control"] == "no-store"
    assert set(issued) == {"id", "role", "token", "expiresAtMs"}
    for_ever = rest.call("POST", TOKENS, {"role": "admin", "ttlSeconds": None}).json()
    assert for_ever["expiresAtMs"] is None
    listed = rest.json(TOKENS)
    assert [(each["id"], each["role"], each["createdBy"]) for each in listed["tokens"]] == [
        (for_ever["id"], "admin", "admin"),
        (issued["id"], "worker", "admin"),
    ]
    assert issued["token"] not in str(listed)
    assert rest.json(f"{TOKENS}?limit=1&offset=1")["tokens"][0]["id"] == issued["id"]
    boss = Rest(token=for_ever["token"])
    assert boss.call("GET", NAMESPACE).status_code == 200
    for _ in range(2):
        assert rest.call("DELETE", f"{TOKENS}/{for_ever['id']}").status_code == 204
    assert boss.refused("GET", NAMESPACE) == (401, "unauthenticated")
    assert rest.json(TOKENS)["tokens"][0]["revokedAtMs"] is not None


def test_a_namespaces_administrator_grants_there_and_nowhere_else(rest: Rest) -> None:
    rest.call("POST", f"{SCOPES['namespace']}/permissions/owner", ["admin"])
    owner = Rest("owner")
    assert owner.call("POST", f"{SCOPES['namespace']}/permissions/w", ["lookup"]).status_code == 204
    assert owner.call("POST", f"{SCOPES['topic']}/permissions/w", ["consume"]).status_code == 204
    assert owner.refused("POST", f"{SCOPES['tenant']}/permissions/w", ["lookup"]) == (403, "forbidden")
    assert owner.refused("POST", TOKENS, {"role": "admin"}) == (403, "forbidden")
    assert owner.refused("DELETE", SCOPES["namespace"]) == (403, "forbidden")


def test_a_token_of_mint_token_without_an_id_holds_until_the_secret_changes(db: None) -> None:
    subject = access.authenticate(token=access.mint_token(role="worker"))
    assert subject.token_id == ""
    assert tokens.list_tokens(limit=1) == ([], 0)
