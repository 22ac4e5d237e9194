"""What a service refuses Django's admin, and how: a status and a sentence, an event, nothing changed."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from scalable import admin
from scalable.access_models import Grant, Tenant
from scalable.audit_models import AuditEvent
from scalable.domain.access import Scope
from scalable.models import Namespace
from scalable.services import grants
from scalable.store.clock import ClockTimestamp

GRANTS = "/manage/scalable/grant/"
TOPIC = Scope("public", "default", "orders")
HTML = {"Accept": "text/html"}
FORM = {"tenant": "public", "namespace": "default", "topic": "orders", "actions": ["produce"]}


@pytest.fixture
def ada(db: None) -> Client:
    """A superuser's browser."""
    client = Client(headers=HTML)
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a form tries passes, as when the world changes before the form is saved."""
    monkeypatch.setattr(admin, "_try", lambda call: None)


def refusals() -> list[tuple[str, str, str, str]]:
    """What the audit tells of attempts."""
    told = AuditEvent.objects.exclude(outcome="done").order_by("pk")
    return list(told.values_list("actor", "action", "target", "outcome"))


@pytest.fixture
def row(db: None) -> Grant:
    grants.grant(scope=TOPIC, role="worker", actions=["consume"], actor="test")
    return Grant.objects.get()


@pytest.mark.parametrize("role", ["worker", "other"])
def test_a_grant_is_not_saved_in_a_namespace_that_is_being_deleted(
    ada: Client, unwarned: None, row: Grant, role: str
) -> None:
    Namespace.objects.filter(tenant="public", name="default").update(deleting=True)
    address = f"{GRANTS}{row.pk}/change/"
    answer = ada.post(address, {**FORM, "role": role})
    assert answer.status_code == 409
    assert escape("public/default") in answer.content.decode()
    assert "default-src" in answer["Content-Security-Policy"]
    row.refresh_from_db()
    assert (row.role, row.actions) == ("worker", ["consume"])
    assert refusals() == [("user:ada", "POST admin:scalable_grant_change", address, "namespace_deleting")]


def test_a_refused_move_leaves_the_grant_where_it_was(ada: Client, unwarned: None, row: Grant) -> None:
    moved = {**FORM, "namespace": "nowhere", "role": "other"}
    assert ada.post(f"{GRANTS}{row.pk}/change/", moved).status_code == 404
    assert list(Grant.objects.values_list("namespace", "role")) == [("default", "worker")]
    assert not AuditEvent.objects.filter(action="grant.remove").exists()


def test_a_grant_is_moved_by_who_holds_its_scope_and_the_rows_of_both_roles(
    ada: Client, unwarned: None, row: Grant
) -> None:
    with CaptureQueriesContext(connection) as executed:
        assert ada.post(f"{GRANTS}{row.pk}/change/", {**FORM, "role": "other"}).status_code == 302
    statements = [each["sql"] for each in executed]
    (taken,) = [
        number for number, each in enumerate(statements) if each.startswith('DELETE FROM "scalable_grant')
    ]
    locks = [
        re.findall('FROM "scalable_([a-z]+)"', each)[0] for each in statements[:taken] if " FOR " in each
    ]
    assert locks == ["tenant", "namespace", "grant"]


def test_a_grant_whose_namespace_went_is_not_found(ada: Client) -> None:
    lost = Grant.objects.create(
        tenant="public", namespace="nowhere", role="worker", actions=["consume"], created_at=ClockTimestamp()
    )
    address = f"{GRANTS}{lost.pk}/delete/"
    answer = ada.post(address, {"post": "yes"}, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (404, "namespace_not_found")
    assert refusals() == [("user:ada", "POST admin:scalable_grant_delete", address, "namespace_not_found")]


def test_a_fixed_tenant_stays_as_it_is(ada: Client, unwarned: None) -> None:
    system = Tenant.objects.get(name="system")
    address = f"/manage/scalable/tenant/{system.pk}/change/"
    assert ada.post(address, {"admin_roles": "boss"}).status_code == 412
    assert refusals() == [("user:ada", "POST admin:scalable_tenant_change", address, "tenant_fixed")]


def test_an_attempt_that_says_nothing_is_not_noted(ada: Client, unwarned: None) -> None:
    assert ada.post(f"{GRANTS}add/", {**FORM, "role": "a/b"}).status_code == 400
    assert refusals() == []


def test_chosen_grants_are_taken_away(ada: Client, row: Grant) -> None:
    grants.grant(scope=TOPIC, role="other", actions=["consume"], actor="test")
    grants.grant(scope=Scope("public"), role="worker", actions=["consume"], actor="test")
    chosen = list(Grant.objects.filter(topic="orders").values_list("pk", flat=True))
    answer = ada.post(GRANTS, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})
    assert answer.status_code == 302
    assert list(Grant.objects.values_list("role", "topic")) == [("worker", "")]
    removed = AuditEvent.objects.filter(action="grant.remove").values_list("actor", "target")
    assert sorted(removed) == [
        ("user:ada", f"public/default/orders/permissions/{role}") for role in ("other", "worker")
    ]


def test_nothing_is_completed_as_one_types(ada: Client) -> None:
    asked = {"app_label": "auth", "model_name": "group", "field_name": "user"}
    assert ada.get("/manage/autocomplete/", asked).status_code == 404
