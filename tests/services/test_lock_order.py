"""One order of locks: rows of access, the stamp of their changes, the row of an idempotency key last."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from scalable.domain.access import Scope
from scalable.domain.names import TopicName
from scalable.services import grants, idempotency, namespaces, roles, tenants, tokens, topics
from scalable.store import tokens as store
from scalable.store.clock import moment
from tests.locks import until_somebody_waits_for_a_lock

pytestmark = pytest.mark.django_db

ACTOR, ROLE, HEIR = "test", "user:somebody", "user:heir"
NAME = TopicName("acme", "shop", "orders")
NAMESPACE, TOPIC = Scope("acme", "shop"), Scope("acme", "shop", "orders")
KEYS = "scalable_idempotentrequest"
BEFORE_KEYS = ("scalable_tenant", "scalable_namespace", "scalable_grant", "scalable_servicetoken")

LATEST_FIRST = """
CREATE INDEX latest_first ON {table} (id DESC);
CLUSTER {table} USING latest_first;
DROP INDEX latest_first
"""
"""Lets a statement without an order of its own find the latest row first."""


@pytest.fixture(autouse=True)
def given() -> None:
    tenants.create_tenant(tenant="acme", admin_roles=[ROLE], actor=ACTOR)
    tenants.create_tenant(tenant="bolt", admin_roles=[ROLE], actor=ACTOR)
    grants.grant(scope=Scope("bolt"), role=ROLE, actions=["produce"], actor=ACTOR)
    namespaces.create_namespace(tenant="acme", namespace="shop", actor=ACTOR)
    topics.create_topic(name=NAME, actor=ACTOR)
    grants.grant(scope=TOPIC, role=ROLE, actions=["produce"], actor=ACTOR)
    tokens.issue_token(role=ROLE, actor=ACTOR)


def revoke_token() -> None:
    (token,), _ = tokens.list_tokens(limit=1)
    tokens.revoke_token(token_id=token.token_id, actor=ACTOR)


CHANGES: dict[str, Callable[[], object]] = {
    "tenant made": lambda: tenants.create_tenant(tenant="coil", admin_roles=[ROLE], actor=ACTOR),
    "tenant changed": lambda: tenants.update_tenant(tenant="acme", admin_roles=["other"], actor=ACTOR),
    "tenant deleted": lambda: tenants.delete_tenant(tenant="bolt", actor=ACTOR),
    "granted": lambda: grants.grant(scope=NAMESPACE, role=ROLE, actions=["consume"], actor=ACTOR),
    "granted anew": lambda: grants.grant(scope=TOPIC, role=ROLE, actions=["consume"], actor=ACTOR),
    "grant removed": lambda: grants.revoke(scope=TOPIC, role=ROLE, actor=ACTOR),
    "token given out": lambda: tokens.issue_token(role=ROLE, actor=ACTOR),
    "token revoked": revoke_token,
    "namespace made": lambda: namespaces.create_namespace(tenant="acme", namespace="new", actor=ACTOR),
    "topic deleted": lambda: topics.delete_topic(name=NAME, actor=ACTOR),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_access_marks_its_key_when_all_else_is_done(change: Callable[[], object]) -> None:
    row_id = idempotency.begin(role=ROLE, key="a key", fingerprint="a request")
    assert isinstance(row_id, int)
    idempotency.work_on(row_id, key="a key")
    try:
        with CaptureQueriesContext(connection) as executed:
            change()
    finally:
        idempotency.finish(row_id, status=204, body="", headers={})
    statements = [each["sql"] for each in executed]
    (marked,) = [number for number, statement in enumerate(statements) if KEYS in statement]
    late = [each for each in statements[marked:] if any(table in each for table in BEFORE_KEYS)]
    assert late == []


def rename() -> None:
    roles.rename(role=ROLE, to=HEIR, actor=ACTOR)


def forget() -> None:
    with transaction.atomic():
        grants.forget(scope=NAMESPACE)


def move() -> None:
    grants.move(scope=TOPIC, role=ROLE, to_scope=TOPIC, to_role=HEIR, actions=["consume"], actor=ACTOR)


def revoke_all() -> None:
    grants.revoke_all(chosen=[(TOPIC, HEIR), (TOPIC, ROLE)], actor=ACTOR)


def lock(role: str) -> str:
    return f"SELECT FROM scalable_grant WHERE topic <> '' AND role = '{role}' FOR UPDATE NOWAIT"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [rename, forget, move, revoke_all])
@pytest.mark.parametrize("held", [ROLE, HEIR])
def test_who_waits_for_a_grant_has_neither_a_later_one_nor_the_stamp(
    change: Callable[[], None], held: str, second_connection: Callable[[str], None]
) -> None:
    grants.grant(scope=TOPIC, role=HEIR, actions=["produce"], actor=ACTOR)
    with connection.cursor() as cursor:
        cursor.execute(LATEST_FIRST.format(table="scalable_grant"))
    second_connection(lock(held))

    def alone() -> None:
        try:
            change()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as others:
        changed = others.submit(alone)
        try:
            until_somebody_waits_for_a_lock()
            if held == ROLE:
                second_connection(lock(HEIR))
            second_connection("UPDATE scalable_accessstamp SET stamp = gen_random_uuid()")
        finally:
            second_connection("ROLLBACK")
        changed.result()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("held", "free"),
    [
        ("scalable_tenant WHERE name = 'acme'", "scalable_tenant WHERE name = 'bolt'"),
        ("scalable_namespace WHERE name = 'shop'", "scalable_grant"),
        ("scalable_tenant WHERE name = 'bolt'", "scalable_grant"),
    ],
)
def test_a_grant_is_moved_when_tenants_and_namespaces_are_held(
    held: str, free: str, second_connection: Callable[[str], None]
) -> None:
    second_connection(f"SELECT FROM {held} FOR UPDATE NOWAIT")

    def alone() -> None:
        try:
            to: Any = {"to_scope": NAMESPACE, "to_role": HEIR, "actions": ["consume"]}
            grants.move(scope=Scope("bolt"), role=ROLE, **to, actor=ACTOR)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as others:
        moved = others.submit(alone)
        try:
            until_somebody_waits_for_a_lock()
            second_connection(f"SELECT FROM {free} FOR UPDATE NOWAIT")
            second_connection("UPDATE scalable_accessstamp SET stamp = gen_random_uuid()")
        finally:
            second_connection("ROLLBACK")
        moved.result()
    assert HEIR in grants.list_grants(scope=NAMESPACE)
    assert grants.list_grants(scope=Scope("bolt")) == {}


def lock_token(token_id: str) -> str:
    return f"SELECT FROM scalable_servicetoken WHERE token_id = '{token_id}' FOR UPDATE NOWAIT"


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_an_expired_token_has_no_later_one(
    second_connection: Callable[[str], None],
) -> None:
    for token_id in ("first", "second"):
        store.insert(token_id, role=ROLE, created_by=ACTOR, expires_at=moment(1))
    with connection.cursor() as cursor:
        cursor.execute(LATEST_FIRST.format(table="scalable_servicetoken"))
    second_connection(lock_token("first"))

    def forget_expired() -> None:
        try:
            with transaction.atomic():
                store.forget_expired(before=moment(2))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as others:
        forgotten = others.submit(forget_expired)
        try:
            until_somebody_waits_for_a_lock()
            second_connection(lock_token("second"))
        finally:
            second_connection("ROLLBACK")
        forgotten.result()
    assert not store.knows("second")
