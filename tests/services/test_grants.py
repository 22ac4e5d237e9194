"""Grants, tenants and tokens: what is given holds, what is taken away does not, and the database agrees."""

from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django.fixtures import Settings

from scalable.access_models import Grant, ServiceToken, Tenant
from scalable.domain.access import GRANTABLE, Right, Scope, Subject, implied
from scalable.domain.errors import (
    AccessFull,
    InvalidName,
    InvalidParameter,
    NamespaceNotFound,
    ScalableError,
    TenantExists,
    TenantFixed,
    TenantNotEmpty,
    TenantNotFound,
    TokenNotFound,
)
from scalable.domain.names import TopicName
from scalable.models import Namespace
from scalable.services import access, grants, namespaces, tenants, tokens, topics
from scalable.store.clock import ClockTimestamp

pytestmark = pytest.mark.django_db

ACTOR = "test"
TENANT = Scope("public")
NAMESPACE = Scope("public", "default")
TOPIC = Scope("public", "default", "orders")
OTHERS = [Scope("publi"), Scope("public", "defaul"), Scope("public", "default", "order"), Scope("Public")]


def give(scope: Scope, *actions: str, role: str = "worker") -> None:
    grants.grant(scope=scope, role=role, actions=actions, actor=ACTOR)


def has(right: Right, scope: Scope, *, role: str = "worker") -> bool:
    return access.may(subject=Subject(role), right=right, scope=scope)


@pytest.mark.parametrize("scope", [TENANT, NAMESPACE, TOPIC])
@pytest.mark.parametrize("action", sorted(GRANTABLE))
def test_a_grant_holds_in_its_scope_and_below(scope: Scope, action: Right) -> None:
    give(scope, action)
    for each in (TENANT, NAMESPACE, TOPIC):
        rights = {right for right in GRANTABLE if has(right, each)}
        assert rights == (implied(frozenset({action})) if scope in each.around else set())
    for each in (other for other in OTHERS if scope not in other.around):
        assert not any(has(right, each) for right in Right if right is not Right.KNOWN)
    assert not any(has(right, TOPIC, role="other") for right in GRANTABLE)


def test_grants_of_several_scopes_add_up_and_go_one_by_one() -> None:
    give(TENANT, "lookup")
    give(NAMESPACE, "produce")
    give(TOPIC, "consume")
    assert grants.effective_grants(scope=TOPIC) == {"worker": {"lookup", "produce", "consume"}}
    assert grants.list_grants(scope=NAMESPACE) == {"worker": {"produce"}}
    grants.revoke(scope=NAMESPACE, role="worker", actor=ACTOR)
    assert (has(Right.PRODUCE, TOPIC), has(Right.CONSUME, TOPIC), has(Right.LOOKUP, NAMESPACE)) == (
        *(False, True),
        True,
    )
    grants.revoke(scope=NAMESPACE, role="worker", actor=ACTOR)


def test_a_grant_replaces_the_one_before() -> None:
    give(TOPIC, "produce", "consume")
    give(TOPIC, "consume")
    assert (has(Right.PRODUCE, TOPIC), has(Right.CONSUME, TOPIC)) == (False, True)


def test_what_is_deleted_takes_its_grants_along() -> None:
    topics.create_topic(name=TopicName("public", "default", "orders"), actor=ACTOR)
    give(TOPIC, "produce")
    topics.delete_topic(name=TopicName("public", "default", "orders"), actor=ACTOR)
    assert not has(Right.PRODUCE, TOPIC)
    namespaces.create_namespace(tenant="public", namespace="brief", actor=ACTOR)
    give(Scope("public", "brief"), "admin")
    give(Scope("public", "brief", "t"), "admin")
    namespaces.delete_namespace(tenant="public", namespace="brief", actor=ACTOR)
    assert not has(Right.ADMIN, Scope("public", "brief", "t"))
    assert not Grant.objects.exists()


REFUSED_GRANTS: list[tuple[Scope, str, list[str], type[ScalableError]]] = [
    (Scope("nowhere"), "worker", ["lookup"], TenantNotFound),
    (Scope("public", "nowhere"), "worker", ["lookup"], NamespaceNotFound),
    (Scope("public", "nowhere", "t"), "worker", ["lookup"], NamespaceNotFound),
    (Scope("system", "load"), "worker", ["lookup"], TenantFixed),
    (NAMESPACE, "a/b", ["lookup"], InvalidName),
    (NAMESPACE, "", ["lookup"], InvalidName),
    (Scope("public", "default", "a\x00b"), "worker", ["lookup"], InvalidName),
    (NAMESPACE, "worker", [], InvalidParameter),
    (NAMESPACE, "worker", ["superuser"], InvalidParameter),
    (NAMESPACE, "worker", ["lookup", "all"], InvalidParameter),
]


@pytest.mark.parametrize(("scope", "role", "actions", "error"), REFUSED_GRANTS)
def test_refused_grants_change_nothing(
    scope: Scope, role: str, actions: list[str], error: type[ScalableError]
) -> None:
    with pytest.raises(error):
        grants.grant(scope=scope, role=role, actions=actions, actor=ACTOR)
    assert not Grant.objects.exists()


def test_names_as_long_as_they_may_be() -> None:
    long = "\U0001f600" * 255
    tenants.create_tenant(tenant=long, admin_roles=[long], actor=ACTOR)
    namespaces.create_namespace(tenant=long, namespace=long, actor=ACTOR)
    give(Scope(long, long, long), "produce", role=long)
    give(Scope(long, long, long), "consume", role=long)
    assert grants.list_grants(scope=Scope(long, long, long)) == {long: {"consume"}}


@pytest.mark.parametrize("role", [" worker", "worker ", "\u00a0worker"])
def test_roles_that_look_like_others_are_given_nothing(role: str) -> None:
    with pytest.raises(InvalidName):
        give(TOPIC, "produce", role=role)
    with pytest.raises(InvalidName):
        tenants.create_tenant(tenant="another", admin_roles=[role], actor=ACTOR)
    with pytest.raises(InvalidName):
        tenants.update_tenant(tenant=TOPIC.tenant, admin_roles=[role], actor=ACTOR)


def test_an_odd_role_that_administers_a_tenant_already_stays() -> None:
    Tenant.objects.filter(name=TOPIC.tenant).update(admin_roles=[" of-old"])
    tenants.update_tenant(tenant=TOPIC.tenant, admin_roles=[" of-old", "new"], actor=ACTOR)
    assert Tenant.objects.get(name=TOPIC.tenant).admin_roles == [" of-old", "new"]


def test_grants_and_tokens_are_bounded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SCALABLE_MAX_GRANTS = settings.SCALABLE_MAX_TOKENS = 2
    give(TOPIC, "lookup", role="one")
    give(TENANT, "lookup", role="two")
    give(TOPIC, "admin", role="one")
    with pytest.raises(AccessFull):
        give(TOPIC, "lookup", role="three")
    monkeypatch.setattr(grants, "ROLES_PER_SCOPE", 1)
    settings.SCALABLE_MAX_GRANTS = 10
    with pytest.raises(AccessFull):
        give(TOPIC, "lookup", role="three")
    for _ in range(2):
        tokens.issue_token(role="worker", actor=ACTOR)
    with pytest.raises(AccessFull):
        tokens.issue_token(role="worker", actor=ACTOR)


# Tenants


def test_the_admin_roles_of_a_tenant_administer_all_of_it() -> None:
    tenants.update_tenant(tenant="public", admin_roles=["boss", "boss"], actor=ACTOR)
    assert tenants.get_tenant(tenant="public").admin_roles == ("boss",)
    assert all(has(right, TOPIC, role="boss") for right in GRANTABLE)
    assert not has(Right.ADMIN, Scope("elsewhere"), role="boss")
    give(TENANT, "lookup", role="boss")
    assert has(Right.ADMIN, TOPIC, role="boss")
    tenants.update_tenant(tenant="public", admin_roles=[], actor=ACTOR)
    assert (has(Right.ADMIN, TOPIC, role="boss"), has(Right.LOOKUP, TOPIC, role="boss")) == (False, True)


def test_a_tenant_comes_and_goes_with_its_grants() -> None:
    tenants.create_tenant(tenant="acme", actor=ACTOR)
    with pytest.raises(TenantExists):
        tenants.create_tenant(tenant="acme", actor=ACTOR)
    namespaces.create_namespace(tenant="acme", namespace="shop", actor=ACTOR)
    give(Scope("acme"), "admin")
    with pytest.raises(TenantNotEmpty):
        tenants.delete_tenant(tenant="acme", actor=ACTOR)
    namespaces.delete_namespace(tenant="acme", namespace="shop", actor=ACTOR)
    tenants.delete_tenant(tenant="acme", actor=ACTOR)
    assert not has(Right.ADMIN, Scope("acme"))
    for call in (tenants.delete_tenant, tenants.get_tenant):
        with pytest.raises(TenantNotFound):
            call(tenant="acme", **({} if call is tenants.get_tenant else {"actor": ACTOR}))
    with pytest.raises(TenantNotFound):
        namespaces.create_namespace(tenant="acme", namespace="shop", actor=ACTOR)


def test_the_tenant_of_the_system_stays_as_it_is() -> None:
    with pytest.raises(TenantFixed):
        tenants.update_tenant(tenant="system", admin_roles=["boss"], actor=ACTOR)
    with pytest.raises(TenantFixed):
        tenants.delete_tenant(tenant="system", actor=ACTOR)


def test_lists_name_what_the_subject_may_see_and_nothing_else() -> None:
    for tenant in ("acme", "bolt"):
        tenants.create_tenant(tenant=tenant, actor=ACTOR)
        for namespace in ("one", "two"):
            namespaces.create_namespace(tenant=tenant, namespace=namespace, actor=ACTOR)
    give(Scope("acme", "two", "t"), "lookup")
    worker, boss = Subject("worker"), Subject("admin", superuser=True)
    seen, total = tenants.list_tenants(subject=worker, limit=10)
    assert ([each.name for each in seen], total) == (["acme"], 1)
    assert tenants.list_namespaces(tenant="acme", subject=worker, limit=10) == (["two"], 1)
    for unseen in ("bolt", "nowhere"):
        assert tenants.list_namespaces(tenant=unseen, subject=worker, limit=10) == ([], 0)
    assert tenants.list_tenants(subject=boss, limit=10)[1] == 4
    assert tenants.list_namespaces(tenant="bolt", subject=boss, limit=1) == (["one"], 2)
    give(Scope("bolt"), "lookup")
    assert tenants.list_namespaces(tenant="bolt", subject=worker, limit=10) == (["one", "two"], 2)


# Tokens


def test_a_token_is_noted_without_itself_and_revoked_for_ever() -> None:
    issued = tokens.issue_token(role="worker", ttl_seconds=60, actor="ada")
    (noted,), total = tokens.list_tokens(limit=10)
    assert (noted.token_id, noted.role, noted.created_by, total) == (issued.token_id, "worker", "ada", 1)
    assert noted.expires_at_ms == issued.expires_at_ms
    assert issued.token not in str(list(ServiceToken.objects.values()))
    assert access.authenticate(token=issued.token).role == "worker"
    first = tokens.revoke_token(token_id=issued.token_id, actor=ACTOR)
    assert tokens.revoke_token(token_id=issued.token_id, actor=ACTOR) == first
    with pytest.raises(ScalableError, match="revoked"):
        access.authenticate(token=issued.token)
    with pytest.raises(TokenNotFound):
        tokens.revoke_token(token_id="unknown", actor=ACTOR)


# The database's own word


def _token() -> ServiceToken:
    return ServiceToken.objects.create(
        token_id="t", role="r", created_by="", created_at=ClockTimestamp(), revoked_at=ClockTimestamp()
    )


def _grant(**fields: object) -> Callable[[], object]:
    row = {"tenant": "public", "role": "r", "actions": ["lookup"], "created_at": ClockTimestamp(), **fields}
    return lambda: Grant.objects.create(**row)


def _twice() -> None:
    _grant()()
    _grant(actions=["admin"])()


BROKEN: dict[str, Callable[[], object]] = {
    "grant_actions-empty": _grant(actions=[]),
    "grant_actions-unknown": _grant(actions=["all"]),
    "grant_scope-gap": _grant(topic="t"),
    "grant_scope-role": _grant(role=""),
    "grant_never_in_system": _grant(tenant="system"),
    "grant_has_tenant": _grant(tenant="nowhere"),
    "grant_unique": _twice,
    "namespace_has_tenant": lambda: Namespace.objects.create(
        tenant="nowhere", name="n", created_at=ClockTimestamp()
    ),
    "namespace_has_tenant-gone": lambda: Tenant.objects.filter(name="public").delete(),
    "tenant_system_has_no_admins": lambda: Tenant.objects.filter(name="system").update(admin_roles=["r"]),
    "token_stays-revived": lambda: ServiceToken.objects.filter(pk=_token().pk).update(revoked_at=None),
    "token_stays-role": lambda: ServiceToken.objects.filter(pk=_token().pk).update(role="admin"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_database_refuses_by_itself(rule: str) -> None:
    def attempt() -> None:
        with transaction.atomic():
            BROKEN[rule]()
            connection.check_constraints()

    with pytest.raises(IntegrityError, match=rule.partition("-")[0]):
        attempt()
