"""Namespaces: listed, made, looked at, deleted."""

from __future__ import annotations

import click

from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.cli.values import NAMESPACE
from scalable.client import Admin

namespace_argument = click.argument("namespace", type=NAMESPACE)


@click.group()
def namespaces() -> None:
    """Namespaces: list, get, create, delete. See also `policies` and `lifetimes`."""


@namespaces.command("list")
@click.argument("tenant")
@limit_option
@with_admin
def list_namespaces(session: Session, admin: Admin, tenant: str, limit: int | None) -> None:
    """Name a tenant's namespaces in which you may do anything."""
    session.output.names(gather(lambda n, behind: admin.namespaces(tenant, limit=n, offset=behind), limit))


@namespaces.command()
@namespace_argument
@with_admin
def get(session: Session, admin: Admin, namespace: str) -> None:
    """Show all that a namespace sets for its topics."""
    session.output.document(admin.namespace(namespace))


@namespaces.command()
@namespace_argument
@with_admin
def create(session: Session, admin: Admin, namespace: str) -> None:
    """Create a namespace, unless it exists."""
    admin.create_namespace(namespace)
    session.output.done(f"{namespace} is there", namespace=namespace)


@namespaces.command()
@namespace_argument
@click.option("-f", "--force", is_flag=True, help="With all its topics.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_admin
def delete(session: Session, admin: Admin, namespace: str, force: bool, yes: bool) -> None:
    """Delete a namespace; --force deletes its topics too."""
    if not yes:
        click.confirm(f"Delete {namespace}?", abort=True, err=True)
    finished = admin.delete_namespace(namespace, force=force)
    sentence = f"deleted {namespace}" if finished else f"{namespace} is being deleted"
    session.output.done(sentence, namespace=namespace, finished=finished)


COMMANDS = (namespaces,)
