"""The command line about who may do what, and about what was done."""

from __future__ import annotations

import json
import stat
from copy import copy
from pathlib import Path

from django.utils import timezone

from scalable.audit_models import AuditEvent
from scalable.services import access
from tests.cli.conftest import Command


def _audited(command: Command, *filters: str) -> list[tuple[str, str]]:
    listed = command("-o", "json", "audit", "list", "--limit", "1000", *filters)
    assert listed.status == 0, listed
    return [(each["action"], each["target"]) for each in listed.body]


def test_a_token_is_issued_lets_in_and_is_revoked(command: Command) -> None:
    issued = command("-o", "json", "tokens", "issue", "worker", "--ttl", "1h").body
    assert command("permissions", "grant", "public/default", "worker", "lookup").status == 0
    assert command("--token", issued["token"], "list", "public/default").status == 0
    listed = command("-o", "json", "tokens", "list")
    row = next(each for each in listed.body if each["id"] == issued["id"])
    assert (row["role"], row["expiresAtMs"], row["revokedAtMs"]) == ("worker", issued["expiresAtMs"], None)
    assert issued["token"] not in listed.out
    assert command("tokens", "revoke", issued["id"]).status == 0
    refused = command("--token", issued["token"], "-o", "json", "list", "public/default")
    assert (refused.status, refused.error["code"]) == (4, "unauthenticated")
    absent = command("-o", "json", "tokens", "revoke", "no-such-token")
    assert (absent.status, absent.error["code"]) == (1, "token_not_found")
    assert _audited(command, "--target", f"tokens/{issued['id']}") == [
        ("token.revoke", f"tokens/{issued['id']}"),
        ("token.issue", f"tokens/{issued['id']}"),
    ]


def test_a_token_of_others_is_revoked_by_its_id_and_role(command: Command) -> None:
    signed = access.sign({"sub": "admin", "jti": "of-others"})
    assert command("--token", signed, "tokens", "list").status == 0
    assert command("tokens", "revoke", "of-others").status == 1
    assert command("tokens", "revoke", "of-others", "--role", "admin").status == 0
    refused = command("--token", signed, "-o", "json", "tokens", "list")
    assert (refused.status, refused.error["code"]) == (4, "unauthenticated")


def test_a_token_is_printed_alone_or_into_a_file_of_its_own(command: Command, tmp_path: Path) -> None:
    printed = command("tokens", "issue", "worker")
    assert printed.out.count(".") == 2
    assert printed.out.strip() not in printed.err
    path = tmp_path / "token"
    written = command("-o", "json", "tokens", "issue", "worker", "--file", str(path))
    assert "token" not in written.body
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert command("tokens", "issue", "worker", "--file", str(path)).status == 2
    assert command("permissions", "grant", "public", "worker", "lookup").status == 0
    assert command("--token", path.read_text().strip(), "list", "public/default").status == 0


def test_a_file_is_given_another_token(command: Command, tmp_path: Path) -> None:
    """Also the file of whoever asks."""
    path = tmp_path / "admin-token"
    assert command("tokens", "issue", "admin", "--file", str(path)).status == 0
    former = path.read_text().strip()
    rotated = command("--token", former, "-o", "json", "tokens", "rotate", str(path))
    assert (rotated.status, rotated.body["role"], "token" in rotated.body) == (0, "admin", False)
    assert command("--token", former, "tokens", "list").status == 4
    assert command("--token", path.read_text().strip(), "tokens", "list").status == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_without_a_token_is_left_alone(command: Command, tmp_path: Path) -> None:
    for content in ("", "no token", "a.b.c", "a.bnVsbA.c"):
        path = tmp_path / "notes"
        path.write_text(content)
        assert command("tokens", "rotate", str(path)).status == 2
        assert path.read_text() == content


def test_no_file_stays_of_a_token_that_was_refused(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert command("tokens", "issue", "no/role", "--file", str(path)).status == 1
    assert not path.exists()


def test_permissions_are_granted_and_taken_away_in_each_scope(command: Command) -> None:
    for scope in ("public", "public/default", "public/default/orders"):
        assert command("permissions", "grant", scope, "worker", "consume", "lookup").status == 0
        listed = command("-o", "json", "permissions", "list", scope)
        assert sorted(listed.body["worker"]) == ["consume", "lookup"]
        assert "worker" in command("permissions", "list", scope).out
        assert command("permissions", "revoke", scope, "worker").status == 0
        assert command("-o", "json", "permissions", "list", scope).body == {}
    absent = command("-o", "json", "permissions", "grant", "nowhere/default", "worker", "consume")
    assert (absent.status, absent.error["code"]) == (1, "tenant_not_found")


def test_tenants_come_and_go(command: Command) -> None:
    assert command("tenants", "create", "acme", "-r", "boss").status == 0
    assert command("tenants", "list").out.splitlines() == ["acme", "public", "system"]
    assert command("-o", "json", "tenants", "get", "acme").body["adminRoles"] == ["boss"]
    assert command("tenants", "update", "acme", "-r", "chief", "-r", "boss").status == 0
    assert command("-o", "json", "tenants", "get", "acme").body["adminRoles"] == ["boss", "chief"]
    assert command("tenants", "update", "acme", "--no-admin-roles").status == 0
    assert command("namespaces", "create", "acme/n").status == 0
    assert command("namespaces", "list", "acme").out == "acme/n\n"
    full = command("-o", "json", "tenants", "delete", "acme", "--yes")
    assert (full.status, full.error["code"]) == (1, "tenant_not_empty")
    assert command("namespaces", "delete", "acme/n", "--yes").status == 0
    assert command("tenants", "delete", "acme", "--yes").status == 0
    assert "acme" not in command("tenants", "list").out


def test_the_audit_is_listed_by_what_is_wanted(command: Command) -> None:
    command("create", "public/default/audited")
    command("create", "public/default/audited")
    topic = "topic://public/default/audited"
    assert ("topic.create", topic) in _audited(command, "--from", "1h", "--outcome", "done")
    assert ("topic.create", topic) not in _audited(command, "--to", "1h")
    assert _audited(command, "--outcome", "topic_exists")
    assert _audited(command, "--actor", "nobody at all") == []
    assert topic in command("audit", "list", "--action", "topic.create").out


def test_the_whole_audit_is_exported_page_by_page(command: Command, tmp_path: Path) -> None:
    events = 1_005
    grants = [("permissions", "grant", "public", f"role-{n % 3}", "consume") for n in range(3)]
    for arguments in grants:
        assert command(*arguments).status == 0
    now = timezone.now()
    more = AuditEvent(at=now, actor="test", action="test.event", target="x", outcome="done")
    AuditEvent.objects.bulk_create(copy(more) for _ in range(events))
    path = tmp_path / "audit.jsonl"
    written = command("audit", "export", "--file", str(path))
    assert written.status == 0, written
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["eventId"] for each in lines] == sorted({each["eventId"] for each in lines}, reverse=True)
    assert len(lines) == events + len(grants)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    printed = command("audit", "export", "--action", "grant.set")
    assert [json.loads(line)["action"] for line in printed.out.splitlines()] == ["grant.set"] * len(grants)
    assert f"{len(grants)} events" in printed.err
    assert command("audit", "export", "--file", str(path)).status == 2


def test_who_is_no_superuser_reads_neither_audit_nor_tokens(command: Command) -> None:
    token = command("-o", "json", "tokens", "issue", "worker").body["token"]
    for arguments in (("audit", "list"), ("audit", "export"), ("tokens", "list"), ("nodes", "list")):
        refused = command("--token", token, "-o", "json", *arguments)
        assert (refused.status, refused.error["code"], refused.out) == (4, "forbidden", "")
