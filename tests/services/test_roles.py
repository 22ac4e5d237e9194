"""Roles of users who go or get another name: nothing waits for the next one of that name."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from scalable.audit_models import AuditEvent
from scalable.domain.access import Right, Scope, Subject
from scalable.domain.errors import InvalidName, Unauthenticated
from scalable.services import access, grants, idempotency, namespaces, roles, tenants, tokens
from scalable.services.rules import rules
from scalable.store import idempotency as store

pytestmark = pytest.mark.django_db

ACTOR = "test"
LEAVER, HEIR, OTHER = "user:leaver", "user:heir", "user:other"
TENANT = Scope("public")
NAMESPACE = Scope("public", "default")
TOPIC = Scope("public", "default", "not made yet")
ELSEWHERE = Scope("acme", "shop")
OUTLIVES = {"scalable_servicetoken", "scalable_auditevent"}
"""Where a role is named for ever: tokens that were revoked, and the audit."""
COLUMNS_OF_TEXT = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = current_schema()
    AND (data_type IN ('text', 'character varying', 'jsonb') OR udt_name = '_varchar')
"""


@pytest.fixture(autouse=True)
def given() -> None:
    """All that a role can have, and beside it roles that have some of it, too."""
    tenants.create_tenant(tenant="acme", admin_roles=[LEAVER, OTHER], actor=ACTOR)
    tenants.create_tenant(tenant="bolt", admin_roles=[LEAVER], actor=ACTOR)
    namespaces.create_namespace(tenant="acme", namespace="shop", actor=ACTOR)
    for scope in (TENANT, NAMESPACE, TOPIC, ELSEWHERE):
        grants.grant(scope=scope, role=LEAVER, actions=["produce"], actor=ACTOR)
    for role in (HEIR, OTHER):
        grants.grant(scope=TOPIC, role=role, actions=["consume"], actor=ACTOR)
    for role, key in ((LEAVER, "first"), (LEAVER, "both"), (HEIR, "both"), (OTHER, "first")):
        answer(role, key)


def who(role: str) -> str:
    """What is told of a role in an answer, which may be handed on and so does not name the role itself."""
    return role.removeprefix("user:")


def answer(role: str, key: str) -> None:
    """Keep an answer under the role's key, which tells whose it was."""
    row_id = idempotency.begin(role=role, key=key, fingerprint="the same request")
    assert isinstance(row_id, int)
    idempotency.finish(row_id, status=200, body=who(role), headers={})


def kept(role: str, key: str) -> str | None:
    """What is answered again to the role under the key; None: nothing yet."""
    known = idempotency.begin(role=role, key=key, fingerprint="the same request")
    return None if isinstance(known, int) else known.body


def has(role: str) -> dict[Scope, set[Right]]:
    """What a role may do by the rules as they are read by every node."""
    return {scope: set(rights) for scope, rights in rules.refresh().grants.get(role, {}).items()}


def tables_with(role: str) -> set[str]:
    """The tables of the whole database in which the role is named."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS_OF_TEXT)
        for table, column in cursor.fetchall():
            cursor.execute(f'SELECT 1 FROM "{table}" WHERE strpos("{column}"::text, %s) > 0 LIMIT 1', [role])
            if cursor.fetchone():
                found.add(table)
    return found


def forget() -> None:
    roles.forget(roles=[LEAVER, "user:never-had-any"], actor=ACTOR)


def rename() -> None:
    roles.rename(role=LEAVER, to=HEIR, actor=ACTOR)


@pytest.mark.parametrize("leave", [forget, rename])
def test_nothing_of_a_role_waits_for_the_next_one_of_its_name(leave: Callable[[], None]) -> None:
    issued = tokens.issue_token(role=LEAVER, actor=ACTOR)
    others = tokens.issue_token(role=OTHER, actor=ACTOR)
    assert tables_with(LEAVER) == {
        "scalable_grant",
        "scalable_tenant",
        "scalable_idempotentrequest",
        *OUTLIVES,
    }
    before = has(OTHER)
    leave()
    assert tables_with(LEAVER) == OUTLIVES
    assert has(LEAVER) == {}
    with pytest.raises(Unauthenticated, match="revoked"):
        access.authenticate(token=issued.token)
    assert has(OTHER) == before
    assert access.authenticate(token=others.token).role == OTHER


def test_a_new_name_has_what_the_former_one_had_beside_its_own() -> None:
    had = has(LEAVER)
    rename()
    assert has(HEIR) == {**had, TOPIC: {Right.PRODUCE, Right.CONSUME}}
    assert tenants.get_tenant(tenant="acme").admin_roles == tuple(sorted((HEIR, OTHER)))
    assert access.may(subject=Subject(HEIR), right=Right.ADMIN, scope=Scope("bolt"))


@pytest.mark.parametrize("leave", [forget, rename])
def test_each_change_is_in_the_audit(leave: Callable[[], None]) -> None:
    issued = tokens.issue_token(role=LEAVER, actor=ACTOR)
    last = AuditEvent.objects.latest("pk").pk
    leave()
    events = AuditEvent.objects.filter(pk__gt=last, actor=ACTOR).values_list("action", "target")
    places = ["public", "public/default", "public/default/not made yet", "acme/shop"]
    expected = [
        ("tenant.update", "acme"),
        ("tenant.update", "bolt"),
        ("token.revoke", f"tokens/{issued.token_id}"),
    ]
    expected += [("grant.remove", f"{place}/permissions/{LEAVER}") for place in places]
    if leave is rename:
        expected += [("grant.set", f"{place}/permissions/{HEIR}") for place in places]
    assert sorted(events) == sorted(expected)


def test_a_name_that_no_role_can_have_changes_nothing() -> None:
    had = has(LEAVER)
    with pytest.raises(InvalidName):
        roles.rename(role=LEAVER, to="a/b", actor=ACTOR)
    assert has(LEAVER) == had


def test_answers_are_given_again_to_whoever_got_them_and_not_to_the_next_of_the_name() -> None:
    rename()
    assert [kept(HEIR, key) for key in ("first", "both")] == [who(LEAVER), who(HEIR)]
    assert kept(LEAVER, "first") is None
    roles.forget(roles=[HEIR], actor=ACTOR)
    assert [kept(HEIR, key) for key in ("first", "both")] == [None, None]
    assert kept(OTHER, "first") == who(OTHER)


@pytest.mark.django_db(transaction=True)
def test_a_key_that_is_taken_during_a_rename_stays_in_work() -> None:
    taken: list[int] = []

    def take() -> int:
        try:
            row_id = idempotency.begin(role=LEAVER, key=f"late {len(taken)}", fingerprint="a late request")
            assert isinstance(row_id, int)
            return row_id
        finally:
            connections.close_all()

    def take_around(execute: Callable[..., Any], statement: str, *arguments: Any) -> Any:
        if "scalable_idempotentrequest" not in statement:
            return execute(statement, *arguments)
        taken.append(others.submit(take).result())
        try:
            return execute(statement, *arguments)
        finally:
            taken.append(others.submit(take).result())

    with ThreadPoolExecutor(1) as others, connection.execute_wrapper(take_around):
        rename()
    assert len(taken) >= 2
    assert all(store.mark_done(row_id) for row_id in taken)


@pytest.mark.parametrize("role", [" reader", "reader ", "\u00a0reader"])
def test_a_role_that_looks_like_another_one_gets_no_token(db: None, role: str) -> None:
    with pytest.raises(InvalidName):
        tokens.issue_token(role=role, actor="admin")
