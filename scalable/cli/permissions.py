"""Grants: which role may do what in a tenant, a namespace, or on a topic."""

from __future__ import annotations

from typing import get_args

import click

from scalable.cli.session import Session, with_admin
from scalable.cli.values import SCOPE
from scalable.client import Admin
from scalable.client.access_admin import Action, Permissions
from scalable.domain.names import NamespaceName, TopicName

Scope = TopicName | NamespaceName | str
ACTIONS: tuple[Action, ...] = get_args(Action)
scope_argument = click.argument("scope", type=SCOPE)


@click.group()
def permissions() -> None:
    """What roles may do: list, grant, revoke. A scope is tenant, tenant/namespace, or tenant/namespace/topic.

    The role is the subject of a token, or user:NAME.
    """


@permissions.command("list")
@scope_argument
@with_admin
def list_permissions(session: Session, admin: Admin, scope: Scope) -> None:
    """List what each role was granted; of a topic with what its namespace and tenant grant."""
    granted = _granted(admin, scope)
    if session.output.as_json:
        session.output.document(granted)
        return
    rows = [{"role": role, "actions": actions} for role, actions in granted.items()]
    session.output.rows(rows, ("role", "actions"), empty="no permissions")


def _granted(admin: Admin, scope: Scope) -> Permissions:
    if isinstance(scope, TopicName):
        return admin.topic_permissions(scope)
    if isinstance(scope, NamespaceName):
        return admin.namespace_permissions(str(scope))
    return admin.tenant_permissions(scope)


@permissions.command()
@scope_argument
@click.argument("role")
@click.argument("actions", type=click.Choice(ACTIONS), nargs=-1, required=True)
@with_admin
def grant(session: Session, admin: Admin, scope: Scope, role: str, actions: tuple[Action, ...]) -> None:
    """Let a role do these ACTIONS, and no others, in a scope and below it."""
    if isinstance(scope, TopicName):
        admin.grant_on_topic(scope, role, actions)
    elif isinstance(scope, NamespaceName):
        admin.grant_on_namespace(str(scope), role, actions)
    else:
        admin.grant_on_tenant(scope, role, actions)
    what = f"{role} may {', '.join(actions)} in {scope}"
    session.output.done(what, scope=str(scope), role=role, actions=list(actions))


@permissions.command()
@scope_argument
@click.argument("role")
@with_admin
def revoke(session: Session, admin: Admin, scope: Scope, role: str) -> None:
    """Take away what a role was granted in exactly this scope."""
    if isinstance(scope, TopicName):
        admin.revoke_on_topic(scope, role)
    elif isinstance(scope, NamespaceName):
        admin.revoke_on_namespace(str(scope), role)
    else:
        admin.revoke_on_tenant(scope, role)
    session.output.done(f"took away what {role} was granted in {scope}", scope=str(scope), role=role)


COMMANDS = (permissions,)
