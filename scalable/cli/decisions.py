"""What the autoscaler decided about a topic and why, and what it would decide now."""

from __future__ import annotations

from typing import Any

import click

from scalable.cli.moments import as_text
from scalable.cli.policies import typed_fields
from scalable.cli.session import Session, with_admin
from scalable.cli.topics import topic_argument
from scalable.cli.values import PAIR
from scalable.client import Admin
from scalable.domain.names import TopicName

COLUMNS = ("at", "id", "rule", "action", "segmentIds", "heldBy")


@click.command("decisions")
@topic_argument
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--before", type=int, help="Only those before the decision with this id.")
@with_admin
def decisions(session: Session, admin: Admin, topic: TopicName, limit: int, before: int | None) -> None:
    """List what the autoscaler decided, and what held it back; the newest first."""
    found = admin.decisions(topic, limit=limit, before=before)
    rows = [{**each, "at": as_text(each["atMs"]), "heldBy": _guards(each["explanation"])} for each in found]
    session.output.rows(rows, COLUMNS, empty="no decisions")


@click.command("what-now")
@topic_argument
@click.argument("fields", type=PAIR, nargs=-1)
@with_admin
def what_now(session: Session, admin: Admin, topic: TopicName, fields: tuple[tuple[str, str], ...]) -> None:
    """Tell what the autoscaler would do now and why, changing nothing.

    With FIELD=VALUE ... (such as maxSegments=8) in place of the topic's own policy.
    """
    body = admin.preview_decision(topic, typed_fields(fields) if fields else None)
    if session.output.as_json:
        session.output.document(body)
        return
    session.output.document(_told(body["decision"]))


def _told(decision: dict[str, Any]) -> dict[str, Any]:
    actions = [
        f"{each['action'].lower()} of {', '.join(map(str, each['segmentIds']))} by {each['rule']}"
        for each in decision.get("actions", [])
    ]
    told: dict[str, Any] = {"would": actions or "leave it alone", "rule": decision["rule"]}
    if decision["heldBy"]:
        told["heldBy"] = [_guard(each) for each in decision["heldBy"]]
    if decision["nextEligibleAtMs"] is not None:
        told["nextPossible"] = as_text(decision["nextEligibleAtMs"])
    return told


def _guards(explanation: dict[str, Any]) -> str:
    return "; ".join(_guard(each) for each in explanation.get("heldBy", []))


def _guard(guard: dict[str, Any]) -> str:
    against = (
        ""
        if guard["current"] is None
        else f" {guard['current']:g}" + ("" if guard["threshold"] is None else f" of {guard['threshold']:g}")
    )
    detail = f" ({guard['detail']})" if guard.get("detail") else ""
    return f"{guard['rule']}: {guard['guard']}{against}{detail}"


COMMANDS = (decisions, what_now)
