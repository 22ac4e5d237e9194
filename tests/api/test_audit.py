"""The audit: what is done, and what is refused, leaves an event; and what a read-only server refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from scalable import trace
from scalable.domain.access import Right
from scalable.models import Namespace
from scalable.services import auditing, namespaces
from scalable.store.audit import AuditFilter
from tests.api.rest import NAMESPACE, Rest
from tests.api.test_doors import KNOCKS

TOPIC = f"{NAMESPACE}/audited"
NAME = "topic://public/default/audited"
SPACES = "/admin/v2/namespaces/public"


def events(**wanted: Any) -> list[Any]:
    return auditing.list_events(wanted=AuditFilter(**wanted), limit=100)


STEPS: list[tuple[str, str, object, str, str]] = [
    ("PUT", TOPIC, {"team": "a"}, "topic.create", NAME),
    ("PUT", f"{TOPIC}/properties", {"team": "b"}, "topic.properties", NAME),
    ("POST", f"{TOPIC}/autoScalePolicy", {"maxSegments": 4}, "topic.policy", NAME),
    ("DELETE", f"{TOPIC}/autoScalePolicy", None, "topic.policy", NAME),
    ("POST", f"{TOPIC}/lifetimes", {"retentionSeconds": 60}, "topic.lifetimes", NAME),
    ("PUT", f"{TOPIC}/subscriptions/s?type=QUEUE", None, "subscription.create", f"{NAME}/subscriptions/s"),
    ("POST", f"{TOPIC}/subscriptions/s/skip-all", None, "subscription.seek", f"{NAME}/subscriptions/s"),
    ("DELETE", f"{TOPIC}/subscriptions/s", None, "subscription.delete", f"{NAME}/subscriptions/s"),
    ("POST", f"{TOPIC}/permissions/r", ["lookup"], "grant.set", "public/default/audited/permissions/r"),
    ("DELETE", f"{TOPIC}/permissions/r", None, "grant.remove", "public/default/audited/permissions/r"),
    ("PUT", f"{SPACES}/audited", None, "namespace.create", "public/audited"),
    ("POST", f"{SPACES}/audited/lifetimes", {"retentionSeconds": 9}, "namespace.lifetimes", "public/audited"),
    ("DELETE", f"{SPACES}/audited", None, "namespace.delete", "public/audited"),
    ("DELETE", TOPIC, None, "topic.delete", NAME),
]


def test_each_change_leaves_an_event_with_who_what_and_which_request(db: None) -> None:
    for number, (method, path, body, action, target) in enumerate(STEPS):
        with trace.about(request_id=f"r{number}"):
            answer = Rest().call(method, path, body)
        assert answer.status_code in {200, 204}, (method, path, answer.content)
        (event,) = [each for each in events() if each.request_id == f"r{number}"]
        assert (event.action, event.target) == (action, target)
        assert (event.actor, event.outcome) == ("admin", "done")
    changed = next(each for each in events(action="topic.properties"))
    assert (changed.before, changed.after) == ({"team": "a"}, {"team": "b"})


def test_what_is_done_again_changes_nothing_and_leaves_nothing(db: None) -> None:
    token = Rest().call("POST", "/admin/v2/tokens", {"role": "r"}).json()["id"]
    Rest().call("POST", f"{SPACES}/default/permissions/r", ["lookup"])
    for method, path, action in (
        ("PUT", f"{SPACES}/again", "namespace.create"),
        ("DELETE", f"/admin/v2/tokens/{token}", "token.revoke"),
        ("DELETE", f"{SPACES}/default/permissions/r", "grant.remove"),
    ):
        for _ in range(2):
            assert Rest().call(method, path).status_code == 204
        assert len(events(action=action)) == 1, action


def test_a_namespace_that_is_going_is_neither_made_nor_deleted_again(db: None) -> None:
    with trace.about(actor="a"):
        namespaces.create_namespace(tenant="public", namespace="going", actor="a")
    Namespace.objects.filter(name="going").update(deleting=True)
    assert Rest().refused("PUT", f"{SPACES}/going") == (409, "namespace_deleting")
    assert Rest().call("DELETE", f"{SPACES}/going").status_code == 204
    found = [(each.action, each.outcome) for each in reversed(events())]
    assert found == [("namespace.create", "done"), ("PUT namespace-life", "namespace_deleting")]


def test_admin_roles_of_a_tenant_are_told_as_they_were_and_are(db: None) -> None:
    path = "/admin/v2/tenants/acme"
    for method, roles in (("PUT", ["ada"]), ("POST", ["bob"]), ("DELETE", None)):
        body = None if roles is None else {"adminRoles": roles}
        assert Rest().call(method, path, body).status_code == 204
    told = [(each.action, each.before, each.after) for each in reversed(events(target="acme"))]
    assert told == [
        ("tenant.create", None, {"adminRoles": ["ada"]}),
        ("tenant.update", {"adminRoles": ["ada"]}, {"adminRoles": ["bob"]}),
        ("tenant.delete", {"adminRoles": ["bob"]}, None),
    ]


def test_what_is_done_to_single_segments_is_named(db: None) -> None:
    """The system role, too, leaves an event for each change, in the order of Pulsar's segment doors."""
    assert Rest().call("PUT", TOPIC).status_code == 204
    segment, system = "/admin/v2/segments/public/default/audited/0000-ffff-0", Rest("system")
    assert Rest().call("PUT", f"{TOPIC}/subscriptions/s").status_code == 204
    steps = [
        ("PUT", "", "segment.create", ""),
        ("PUT", "/subscription/s", "segment.cursor.create", "/subscriptions/s"),
        ("DELETE", "/subscription/gone", "segment.cursor.delete", "/subscriptions/gone"),
        ("POST", "/terminate", "segment.terminate", ""),
        ("DELETE", "", "segment.delete", ""),
    ]
    for number, (method, end, action, target) in enumerate(steps):
        path = segment.replace("ffff-0", "ffff-7") if action == "segment.delete" else segment
        with trace.about(request_id=f"s{number}"):
            assert system.call(method, path + end).status_code == 204, (method, end)
        (event,) = [each for each in events() if each.request_id == f"s{number}"]
        name = f"{NAME}/segments/{path.rpartition('/')[2]}{target}"
        assert (event.actor, event.action, event.target) == ("system", action, name)


def test_a_split_and_its_abort_are_named(db: None) -> None:
    Rest().call("PUT", TOPIC)
    operation = Rest().call("POST", f"{TOPIC}/split/0", Prefer="respond-async").json()
    assert Rest().call("POST", f"{TOPIC}/operations/{operation['operationId']}/abort").status_code == 200
    abort, split = events(target=NAME)[:2]
    assert (split.action, abort.action) == ("operation.split", "operation.abort")
    assert split.after["operationId"] == abort.after["operationId"] == operation["operationId"]


def test_what_is_rolled_back_was_not_done(db: None) -> None:
    with transaction.atomic():
        auditing.record("topic.create", NAME, actor="a")
        transaction.set_rollback(True)
    assert events() == []


CHANGES = [
    pytest.param(method, path, id=name)
    for name, (method, path, door) in KNOCKS.items()
    if door.changes(method) and door.right is not Right.KNOWN
]
MACHINERY = {"POST-load-reports", "POST-tile-reports"}
ONLY_ASKED = {"POST-decision-preview"}


def test_only_reports_of_load_and_what_only_asks_count_as_no_change(db: None) -> None:
    changing = {name for name, (method, _, _) in KNOCKS.items() if method != "GET"}
    assert changing - {str(each.id) for each in CHANGES} == MACHINERY | ONLY_ASKED


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_refused_attempt_is_noted(db: None, method: str, path: str) -> None:
    assert Rest("somebody").refused(method, path) == (403, "forbidden")
    (event,) = events()
    assert (event.actor, event.target, event.outcome) == ("somebody", path.split("?")[0], "forbidden")
    assert event.action.startswith(f"{method} ")


@pytest.mark.parametrize("odd", ["%00", "%0A", "%FF", "%ED%A0%80", "x" * 5_000])
def test_a_refused_attempt_is_noted_whatever_its_path_has(db: None, odd: str) -> None:
    path = f"/admin/v2/tenants/a{odd}"
    assert Rest("somebody").refused("PUT", path) == (403, "forbidden")
    (event,) = events()
    assert event.target.startswith("/admin/v2/tenants/a")


def test_strangers_and_unreadable_requests_leave_nothing(db: None) -> None:
    assert Rest(None).refused("PUT", TOPIC) == (401, "unauthenticated")
    assert Rest().refused("PUT", f"{TOPIC}?odd=1")[0] == 400
    assert Rest("somebody").refused("GET", TOPIC)[0] == 403
    assert events() == []


def test_the_audit_is_listed_page_by_page(db: None) -> None:
    for number in range(5):
        with trace.about(actor="a" if number % 2 else "b"):
            auditing.record("topic.create", f"topic://public/default/t{number}")
    first = Rest().json("/admin/v2/audit?limit=3")
    assert [each["target"][-2:] for each in first["events"]] == ["t4", "t3", "t2"]
    rest = Rest().json(f"/admin/v2/audit?limit=3&belowId={first['nextBelowId']}")
    assert ([each["target"][-2:] for each in rest["events"]], rest["nextBelowId"]) == (["t1", "t0"], None)
    assert len(Rest().json("/admin/v2/audit?actor=a")["events"]) == 2
    assert len(Rest().json("/admin/v2/audit?target=topic://public/default/t3")["events"]) == 1
    assert Rest().json("/admin/v2/audit?toMs=1")["events"] == []
    assert Rest("system").refused("GET", "/admin/v2/audit") == (403, "forbidden")


@pytest.mark.parametrize("sought", ["actor", "action", "target", "outcome"])
def test_the_audit_is_searched_for_what_can_be_in_it(db: None, sought: str) -> None:
    assert Rest().json(f"/admin/v2/audit?{sought}=%F0%9F%8D%8E%0A%25_'")["events"] == []
    for value in ("%00", "%ED%A0%80", "a" * 1025):
        assert Rest().refused("GET", f"/admin/v2/audit?{sought}={value}") == (400, "invalid_parameter")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE scalable_auditevent SET actor = 'nobody'",
        "DELETE FROM scalable_auditevent",
        "ALTER TABLE scalable_auditevent ENABLE TRIGGER audit_stays; TRUNCATE scalable_auditevent",
    ],
)
def test_the_database_keeps_events_as_they_are(db: None, statement: str) -> None:
    auditing.record("topic.create", NAME, actor="a")
    with (
        pytest.raises(DatabaseError, match="neither changed nor deleted"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert len(events()) == 1


def test_old_events_are_forgotten_and_young_ones_never(db: None) -> None:
    for _ in range(3):
        auditing.record("topic.create", NAME, actor="a")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scalable_auditevent DISABLE TRIGGER audit_rows_stay")
        for days, event in zip((29, 31, 400), events(), strict=True):
            cursor.execute(
                "UPDATE scalable_auditevent SET at = at - %s::interval WHERE id = %s",
                [f"{days} days", event.event_id],
            )
        cursor.execute("ALTER TABLE scalable_auditevent ENABLE TRIGGER audit_rows_stay")
    assert auditing.forget_old() == 1
    with override_settings(SCALABLE_AUDIT_RETENTION_DAYS=0):
        assert auditing.forget_old() == 1
        assert auditing.forget_old() == 0
    assert len(events()) == 1


# Read-only mode


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_nothing_is_changed_on_a_read_only_server(db: None, method: str, path: str) -> None:
    role = "system" if path.startswith("/admin/v2/segments") else "admin"
    with override_settings(SCALABLE_READ_ONLY=True):
        assert Rest(role).refused(method, path) == (403, "read_only")


def test_reads_and_previews_work_on_a_read_only_server(db: None) -> None:
    Rest().call("PUT", TOPIC)
    Rest().call("PUT", f"{TOPIC}/subscriptions/s")
    with override_settings(SCALABLE_READ_ONLY=True):
        assert Rest().json(TOPIC)["epoch"] == 0
        preview = Rest().call("POST", f"{TOPIC}/subscriptions/s/skip-all?preview=true")
        assert preview.status_code == 200
        assert Rest().call("POST", f"{TOPIC}/decisions/preview", {"maxSegments": 2}).status_code == 200
        assert Rest().refused("POST", f"{TOPIC}/subscriptions/s/skip-all?preview=false") == (403, "read_only")
        tiles = Rest("system").call("POST", "/admin/v2/scalable-load/tiles", {"tiles": []})
        assert tiles.status_code in {200, 204}
