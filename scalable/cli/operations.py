"""Operations: what splits, merges and rebuckets there were, and how far they are."""

from __future__ import annotations

import click

from scalable.cli.reshape import wait_option
from scalable.cli.session import Session, with_admin
from scalable.cli.topics import topic_argument
from scalable.client import Admin
from scalable.domain.names import TopicName

COLUMNS = ("operationId", "kind", "phase", "outcome", "actor", "reason")


@click.group()
def operations() -> None:
    """Splits, merges and rebuckets: list, look at, abort, retry."""


@operations.command("list")
@topic_argument
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--unfinished", is_flag=True, help="Only those that go on.")
@with_admin
def list_operations(session: Session, admin: Admin, topic: TopicName, limit: int, unfinished: bool) -> None:
    """List operations, the newest first."""
    rows = admin.operations(topic, limit=limit, unfinished=unfinished)
    session.output.rows(rows, COLUMNS, empty="no operations")


@operations.command()
@topic_argument
@click.argument("operation_id")
@with_admin
def get(session: Session, admin: Admin, topic: TopicName, operation_id: str) -> None:
    """Show one operation: phase, outcome, actor, reason, timings."""
    session.output.document(admin.operation(topic, operation_id))


@operations.command()
@topic_argument
@click.argument("operation_id")
@with_admin
def abort(session: Session, admin: Admin, topic: TopicName, operation_id: str) -> None:
    """Abort an operation that has not begun to seal segments."""
    session.output.document(admin.abort_operation(topic, operation_id))


@operations.command()
@topic_argument
@click.argument("operation_id")
@wait_option
@with_admin
def retry(session: Session, admin: Admin, topic: TopicName, operation_id: str, wait: bool) -> None:
    """Ask anew for what failed or was aborted."""
    started = admin.retry_operation(topic, operation_id, wait=wait)
    if started is not None:
        session.output.document(started)
    else:
        session.output.done(f"done again: {operation_id}", topic=str(topic), operationId=operation_id)


COMMANDS = (operations,)
