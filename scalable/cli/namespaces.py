"""Namespaces, and how long their messages and sessions are kept."""

from __future__ import annotations

import click

from scalable.cli.session import Session, with_admin
from scalable.cli.values import NAMESPACE, SPAN
from scalable.client import Admin

namespace_argument = click.argument("namespace", type=NAMESPACE)


@click.group()
def namespaces() -> None:
    """Namespaces: create, delete, lifetimes."""


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


@namespaces.command("set-lifetimes")
@namespace_argument
@click.option("--retention", type=SPAN, help="How long drained segments are kept (7d); --forever for ever.")
@click.option("--forever", is_flag=True, help="Keep everything.")
@click.option("--session-grace", type=SPAN, help="How long a consumer that went away keeps its segments.")
@with_admin
def set_lifetimes(
    session: Session,
    admin: Admin,
    namespace: str,
    retention: float | None,
    forever: bool,
    session_grace: float | None,
) -> None:
    """Replace what the namespace sets for its topics; what is not named is inherited."""
    if forever and retention is not None:
        raise click.UsageError("give either --retention or --forever")
    kept = -1 if forever else None if retention is None else int(retention)
    admin.set_namespace_lifetimes(namespace, retention_seconds=kept, session_grace_seconds=session_grace)
    session.output.done(f"set the lifetimes of {namespace}", namespace=namespace)


COMMANDS = (namespaces,)
