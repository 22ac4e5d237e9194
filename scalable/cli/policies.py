"""The autoscaler: policies of topics and namespaces, and the resolved one."""

from __future__ import annotations

import sys
from typing import Any

import click

from scalable.cli.places import Place, named, place_argument
from scalable.cli.session import Session, with_admin
from scalable.cli.topics import epoch_option
from scalable.cli.values import PAIR, properties_of, read_json
from scalable.client import Admin
from scalable.domain.json_names import RepeatedName
from scalable.domain.json_text import NestedTooDeep
from scalable.domain.names import TopicName


@click.group()
def policies() -> None:
    """Auto-scale policies of topics and namespaces: get, set, remove, effective."""


@policies.command("get")
@place_argument
@with_admin
def get_policy(session: Session, admin: Admin, place: Place) -> None:
    """Show the own policy of a topic or a namespace."""
    policy = _own_policy(admin, place)
    if policy is None:
        session.output.note(f"{place} has no policy of its own")
        policy = {}
    session.output.document(policy)


def _own_policy(admin: Admin, place: Place) -> dict[str, Any] | None:
    if isinstance(place, TopicName):
        return admin.get_policy(place)
    return admin.get_namespace_policy(str(place))


@policies.command("set")
@place_argument
@click.argument("fields", type=PAIR, nargs=-1)
@click.option("--json", "text", help="The whole policy as a JSON object, or - for stdin.")
@click.option("--merge", is_flag=True, help="Keep the fields that are set and not named here.")
@epoch_option
@with_admin
def set_policy(
    session: Session,
    admin: Admin,
    place: Place,
    fields: tuple[tuple[str, str], ...],
    text: str | None,
    merge: bool,
    expected_epoch: int | None,
) -> None:
    """Replace the own policy of a topic or a namespace by FIELD=VALUE ..., such as maxSegments=8."""
    override = {**(_read_object(text) if text else {}), **_typed(properties_of(fields))}
    if not override:
        raise click.UsageError("name at least one field; `policies remove` takes the whole policy away")
    _check_epoch(place, expected_epoch)
    if merge:
        override = {**(_own_policy(admin, place) or {}), **override}
    if isinstance(place, TopicName):
        admin.set_policy(place, override, expected_epoch=expected_epoch)
    else:
        admin.set_namespace_policy(str(place), override)
    session.output.done(f"set the policy of {place}", **named(place), policy=override)


def _check_epoch(place: Place, expected_epoch: int | None) -> None:
    if expected_epoch is not None and not isinstance(place, TopicName):
        raise click.UsageError("--expected-epoch is of a topic; a namespace has no layout")


@policies.command("remove")
@place_argument
@epoch_option
@with_admin
def remove_policy(session: Session, admin: Admin, place: Place, expected_epoch: int | None) -> None:
    """Take the own policy of a topic or a namespace away, so that the inherited one holds."""
    _check_epoch(place, expected_epoch)
    if isinstance(place, TopicName):
        admin.remove_policy(place, expected_epoch=expected_epoch)
    else:
        admin.remove_namespace_policy(str(place))
    session.output.done(f"removed the policy of {place}", **named(place))


@policies.command("effective")
@place_argument
@with_admin
def effective_policy(session: Session, admin: Admin, place: Place) -> None:
    """Show the resolved policy of a topic or a namespace, with where each field comes from."""
    if isinstance(place, TopicName):
        body = admin.effective_policy(place)
    else:
        body = admin.effective_namespace_policy(str(place))
    if session.output.as_json:
        session.output.document(body)
        return
    sources = body["sources"]
    rows = [
        {"field": field, "value": value, "from": sources.get(field)}
        for field, value in body["policy"].items()
    ]
    session.output.rows(rows, ("field", "value", "from"), empty="no fields")
    if body.get("violations"):
        session.output.document({"violations": body["violations"]})


def typed_fields(fields: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Read FIELD=VALUE ... as a policy."""
    return _typed(properties_of(fields))


def _typed(fields: dict[str, str]) -> dict[str, Any]:
    """Read each value as JSON where it is some (numbers, true, null), else as text."""
    return {key: _value(value) for key, value in fields.items()}


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except (RepeatedName, NestedTooDeep) as error:
        raise click.UsageError(str(error)) from error
    except ValueError:
        return text


def _read_object(text: str) -> dict[str, Any]:
    raw = sys.stdin.read() if text == "-" else text
    try:
        body = read_json(raw)
    except RepeatedName as error:
        raise click.UsageError(f"--json: {error}") from error
    except ValueError as error:
        raise click.UsageError(f"--json is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise click.UsageError("--json must be an object")
    return body


COMMANDS = (policies,)
