"""Django's admin: for superusers alone, through the services, with the audit to be read and nothing more."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver
from django.utils.html import escape
from pytest_django.fixtures import Settings

from scalable.access_models import Grant, ServiceToken, Tenant
from scalable.admin import site
from scalable.audit_models import AuditEvent
from scalable.cli import command as command_line
from scalable.domain.access import Right, Scope, Subject
from scalable.domain.errors import Unauthenticated
from scalable.services import access, auditing, grants, tenants, tokens
from scalable.services.rules import rules

ROOT = "/manage/"
PARTS = {"<path:object_id>": "1", "<id>": "1", "<app_label>": "scalable"}
LEADING_AWAY = {f"{ROOT}login/", f"{ROOT}logout/"}
USERS = f"{ROOT}auth/user/"
GRANTS = f"{ROOT}scalable/grant/"
TOPIC = Scope("public", "default", "orders")


def _routes(entries: list[URLPattern | URLResolver], before: str) -> Iterator[str]:
    for entry in entries:
        route = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry.url_patterns, route)
        else:
            yield route


def _addresses() -> list[str]:
    found = []
    for route in _routes(site.urls[0], ROOT):
        for name, value in PARTS.items():
            route = route.replace(name, value)
        found.append(re.sub(r"\(\?P<app_label>.*", "scalable/", route))
    return sorted({address for address in found if re.fullmatch(r"[\w/.-]+", address)})


@pytest.fixture
def ada(db: None) -> Client:
    """A superuser's browser."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def form(**fields: object) -> dict[str, object]:
    """A grant as the form sends it."""
    return {"tenant": "public", "namespace": "default", "topic": "orders", "role": "worker", **fields}


@pytest.mark.parametrize("address", _addresses())
def test_who_is_no_superuser_sees_nothing(db: None, address: str) -> None:
    nobody = Client().get(address)
    assert (nobody.status_code, nobody["Location"].partition("?")[0]) == (302, "/login")
    client = Client()
    client.force_login(User.objects.create_user("bob", is_staff=True))
    answer = client.get(address)
    assert answer.status_code == 403 or address in LEADING_AWAY, address
    assert client.post(address, {}).status_code in {302, 403}


def test_every_list_opens_under_the_policy_of_pages(ada: Client) -> None:
    grants.grant(scope=TOPIC, role="worker", actions=["consume"], actor="test")
    tokens.issue_token(role="worker", actor="test")
    lists = ("auth/user", "auth/group", *(f"scalable/{name}" for name in ("grant", "tenant")))
    for name in (*lists, "scalable/servicetoken", "scalable/auditevent"):
        page = ada.get(f"{ROOT}{name}/")
        assert page.status_code == 200, name
        assert "script-src 'self';" in page["Content-Security-Policy"]
        assert not re.search(rb"<script(?![^>]*(?: src=|application/json))", page.content)


def test_a_grant_is_made_changed_and_taken_away(ada: Client) -> None:
    worker = Subject("worker")
    assert ada.post(f"{GRANTS}add/", form(actions=["consume"])).status_code == 302
    assert access.may(subject=worker, right=Right.CONSUME, scope=TOPIC)
    row = Grant.objects.get()
    changed = form(role="other", actions=["produce"])
    assert ada.post(f"{GRANTS}{row.pk}/change/", changed).status_code == 302
    assert not access.may(subject=worker, right=Right.CONSUME, scope=TOPIC)
    assert access.may(subject=Subject("other"), right=Right.PRODUCE, scope=TOPIC)
    row = Grant.objects.get()
    assert ada.post(f"{GRANTS}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not access.may(subject=Subject("other"), right=Right.PRODUCE, scope=TOPIC)
    events = AuditEvent.objects.order_by("pk").values_list("actor", "action")
    assert set(events) == {("user:ada", "grant.set"), ("user:ada", "grant.remove")}


def test_users_are_audited_without_their_passwords(ada: Client) -> None:
    address = f"{ROOT}auth/user/"
    password = {"password1": "a long password 1", "password2": "a long password 1"}
    made = ada.post(f"{address}add/", {"username": "bob", "usable_password": "true", **password})
    assert made.status_code == 302, made.content
    bob = User.objects.get(username="bob")
    times = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    raised = {"username": "bob", "is_active": "on", "is_superuser": "on", **times}
    assert ada.post(f"{address}{bob.pk}/change/", raised).status_code == 302
    other = {"password1": "another password 2", "password2": "another password 2", "usable_password": "true"}
    assert ada.post(f"{address}{bob.pk}/password/", other).status_code == 302
    chosen = {"action": "delete_selected", "_selected_action": [bob.pk], "post": "yes"}
    assert ada.post(address, chosen).status_code == 302
    assert not User.objects.filter(username="bob").exists()
    events = AuditEvent.objects.order_by("pk")
    assert [(each.actor, each.action, each.target) for each in events] == [
        ("user:ada", f"user.{verb}", "users/bob") for verb in ("create", "change", "change", "delete")
    ]
    raised_event: Any = events[1].after
    assert raised_event["superuser"]
    assert "password 1" not in str(list(events.values()))
    assert ada.post(f"{ROOT}auth/group/add/", {"name": "operators"}).status_code == 302
    assert AuditEvent.objects.filter(action="group.create", target="groups/operators").exists()


def delete_one(ada: Client, bob: User) -> None:
    answer = ada.post(f"{USERS}{bob.pk}/delete/", {"post": "yes"})
    assert answer.status_code == 302


def delete_chosen(ada: Client, bob: User) -> None:
    carl = User.objects.create_user("carl")
    chosen = {"action": "delete_selected", "_selected_action": [bob.pk, carl.pk], "post": "yes"}
    assert ada.post(USERS, chosen).status_code == 302


def rename(ada: Client, bob: User, name: str = "robert") -> None:
    fields = {"username": name, "is_active": "on", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    assert ada.post(f"{USERS}{bob.pk}/change/", fields).status_code == 302


@pytest.mark.parametrize("leave", [delete_one, delete_chosen, rename])
def test_the_next_user_of_a_name_has_nothing_of_the_former_one(
    ada: Client, leave: Callable[[Client, User], None]
) -> None:
    bob = User.objects.create_user("bob")
    grants.grant(scope=TOPIC, role="user:bob", actions=["consume"], actor="test")
    grants.grant(scope=TOPIC, role="user:carla", actions=["consume"], actor="test")
    tenants.update_tenant(tenant="public", admin_roles=["user:bob", "user:carla"], actor="test")
    leave(ada, bob)
    assert not User.objects.filter(username="bob").exists()
    left = [role for role in ("user:bob", "user:carl", "user:carla") if role in rules.refresh().grants]
    assert left == ["user:carla"]
    told = AuditEvent.objects.filter(action="grant.remove").values_list("actor", "target")
    assert list(told) == [("user:ada", "public/default/orders/permissions/user:bob")]


def test_what_was_granted_follows_a_new_name_and_stays_with_an_old_one(ada: Client) -> None:
    bob = User.objects.create_user("bob")
    grants.grant(scope=TOPIC, role="user:bob", actions=["consume"], actor="test")
    rename(ada, bob, "bob")
    assert access.may(subject=Subject("user:bob"), right=Right.CONSUME, scope=TOPIC)
    rename(ada, bob)
    assert access.may(subject=Subject("user:robert"), right=Right.CONSUME, scope=TOPIC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant": "nowhere"},
        {"tenant": "system"},
        {"namespace": "nowhere"},
        {"role": "a/b"},
        {"actions": ["all"]},
    ],
)
def test_what_the_service_refuses_the_form_refuses(ada: Client, wrong: dict[str, object]) -> None:
    page = ada.post(f"{GRANTS}add/", form(actions=["consume"]) | wrong)
    assert page.status_code == 200
    assert b"errornote" in page.content
    assert not Grant.objects.exists()


def test_the_admin_roles_of_a_tenant_are_changed(ada: Client) -> None:
    address = f"{ROOT}scalable/tenant/"
    acme, system = Tenant.objects.get(name="public"), Tenant.objects.get(name="system")
    assert ada.post(f"{address}{acme.pk}/change/", {"admin_roles": "boss,chief"}).status_code == 302
    assert access.may(subject=Subject("chief"), right=Right.ADMIN, scope=TOPIC)
    refused = ada.post(f"{address}{system.pk}/change/", {"admin_roles": "boss"})
    assert refused.status_code == 200
    assert b"errornote" in refused.content
    assert ada.get(f"{address}add/").status_code == 403


def test_tokens_are_revoked_and_never_changed(ada: Client) -> None:
    issued = tokens.issue_token(role="worker", actor="test")
    row = ServiceToken.objects.get()
    address = f"{ROOT}scalable/servicetoken/"
    assert ada.get(f"{address}add/").status_code == 403
    assert ada.post(f"{address}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "revoke", "_selected_action": [row.pk]}
    assert ada.post(address, chosen).status_code == 302
    with pytest.raises(Unauthenticated):
        access.authenticate(token=issued.token)


def test_the_audit_is_read_alone(ada: Client) -> None:
    grants.grant(scope=TOPIC, role="worker", actions=["consume"], actor="test")
    address = f"{ROOT}scalable/auditevent/"
    event = AuditEvent.objects.get()
    assert ada.get(f"{address}{event.pk}/change/").status_code == 200
    for path in ("add/", f"{event.pk}/delete/"):
        assert ada.get(f"{address}{path}").status_code == 403
    assert ada.post(f"{address}{event.pk}/change/", {"actor": "nobody"}).status_code == 403


@pytest.mark.parametrize("model", list(site._registry), ids=lambda model: model.__name__)
def test_who_asks_for_a_form_that_there_is_not_is_told_what_to_do(ada: Client, model: type[Model]) -> None:
    answer = ada.get(f"{ROOT}{model._meta.app_label}/{model._meta.model_name}/add/")
    if answer.status_code != 200:
        rows: Any = site._registry[model]
        assert answer.status_code == 403
        assert escape(rows.made_by) in answer.content.decode()
        for words in re.findall("`scalable-topics ([a-z -]+)", rows.made_by):
            command: Any = command_line.command
            for word in words.split():
                command = command.commands[word]


def test_a_page_of_the_audit_costs_as_many_statements_as_an_empty_one(ada: Client) -> None:
    address = f"{ROOT}scalable/auditevent/"
    with CaptureQueriesContext(connection) as few:
        assert ada.get(address).status_code == 200
    for number in range(120):
        auditing.record("test.event", f"target-{number}", actor=f"role-{number}")
    with CaptureQueriesContext(connection) as many:
        page = ada.get(address)
    assert b"target-119" in page.content
    assert len(many) <= len(few)


def test_the_audit_is_filtered_by_what_there_is(ada: Client) -> None:
    for action in ("test.one", "test.other"):
        auditing.record(action, f"target of {action}", actor="a")
    page = ada.get(f"{ROOT}scalable/auditevent/?action=test.one")
    assert b"target of test.one" in page.content
    assert b"target of test.other" not in page.content
    assert b"?action=test.other" in page.content


@pytest.mark.parametrize(
    "query",
    [
        "scalable/grant/?role__regex=(",
        "scalable/grant/?role__iregex=(",
        "scalable/tenant/?name__regex=(",
        "scalable/auditevent/?target__regex=(",
        "auth/user/?last_login__year=99999999",
        "auth/user/?last_login__year__gte=99999999",
        "auth/user/?groups__name__regex=(",
        "auth/group/?name__regex=(",
    ],
)
def test_lists_are_filtered_by_plain_values_alone(ada: Client, query: str) -> None:
    assert ada.get(f"{ROOT}{query}").status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "is_active__exact=1",
        "groups__id__exact=1",
        "last_login__gte=2026-01-01T00:00:00Z",
        "email__isnull=False",
        "id=1",
    ],
)
def test_the_filters_of_a_list_are_taken(ada: Client, query: str) -> None:
    assert ada.get(f"{USERS}?{query}").status_code == 200


@pytest.mark.parametrize("key", ["x", "\x00", "", "-1", "9" * 30, "1.5", "१"])
@pytest.mark.parametrize(
    ("address", "action"),
    [(USERS, "delete_selected"), (GRANTS, "delete_selected"), (f"{ROOT}scalable/servicetoken/", "revoke")],
)
def test_a_row_is_chosen_by_its_number(ada: Client, address: str, action: str, key: str) -> None:
    chosen = {"action": action, "_selected_action": [key], "post": "yes"}
    assert ada.post(address, chosen).status_code == 400


def test_a_value_that_the_database_does_not_take_is_refused(
    ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise DataError("out of range")

    monkeypatch.setattr(site._registry[Grant], "get_queryset", read)
    assert ada.get(GRANTS).status_code == 400


def refusals() -> list[tuple[str, str, str, str]]:
    """What the audit tells of attempts."""
    told = AuditEvent.objects.exclude(outcome="done").order_by("pk")
    return list(told.values_list("actor", "action", "target", "outcome"))


def test_attempts_that_are_refused_are_noted(ada: Client, settings: Settings) -> None:
    bob = Client()
    bob.force_login(User.objects.create_user("bob", is_staff=True))
    add, tokens_add = f"{GRANTS}add/", f"{ROOT}scalable/servicetoken/add/"
    assert bob.get(add).status_code == 403  # who only looks changes nothing, as by REST
    assert bob.post(add, form(actions=["consume"])).status_code == 403
    assert ada.post(tokens_add, {}).status_code == 403
    settings.SCALABLE_READ_ONLY = True
    assert ada.post(add, form(actions=["consume"])).status_code == 403
    assert refusals() == [
        ("user:bob", "POST admin:scalable_grant_add", add, "forbidden"),
        ("user:ada", "POST admin:scalable_servicetoken_add", tokens_add, "forbidden"),
        ("user:ada", "POST admin:scalable_grant_add", add, "read_only"),
    ]


def test_a_refused_login_is_noted_without_its_password(db: None) -> None:
    User.objects.create_user("bob", password="right")
    for name, password in (("bob", "wrong"), ("nobody\x01", "guess"), ("bob", "right")):
        Client().post("/login", {"username": name, "password": password})
    assert refusals() == [
        ("nobody", "login", f"users/{name}", "unauthenticated") for name in ("bob", "nobody")
    ]
    assert "wrong" not in str(list(AuditEvent.objects.values()))


def test_in_read_only_mode_nothing_is_changed(ada: Client, settings: Settings) -> None:
    settings.SCALABLE_READ_ONLY = True
    assert ada.get(GRANTS).status_code == 200
    assert ada.post(f"{GRANTS}add/", form(actions=["consume"])).status_code == 403
    assert not Grant.objects.exists()
