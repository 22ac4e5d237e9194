"""Subscriptions: made, moved, looked into, deleted."""

from __future__ import annotations

import base64
from typing import Any

import click

from scalable.cli.session import Session, with_admin
from scalable.cli.topics import topic_argument
from scalable.cli.values import MOMENT, START
from scalable.client import Admin
from scalable.domain.names import TopicName

KINDS = click.Choice(["STREAM", "QUEUE", "CHECKPOINT"], case_sensitive=False)
subscription_option = click.option("-s", "--subscription", required=True)
preview_option = click.option("--preview", is_flag=True, help="Only show what would move.")


@click.group()
def subscriptions() -> None:
    """Subscriptions: list, get, create, delete, skip, peek, assignments."""


@subscriptions.command("list")
@topic_argument
@with_admin
def list_subscriptions(session: Session, admin: Admin, topic: TopicName) -> None:
    """List a topic's subscriptions."""
    rows = admin.subscriptions(topic)
    session.output.rows(rows, ("name", "type", "keyShared", "holdsPruning"), empty="no subscriptions")


@subscriptions.command()
@topic_argument
@subscription_option
@with_admin
def get(session: Session, admin: Admin, topic: TopicName, subscription: str) -> None:
    """Show the backlog by segment, what waits for what, and the consumers."""
    session.output.document(admin.subscription(topic, subscription))


@subscriptions.command()
@topic_argument
@subscription_option
@click.option("--type", "kind", type=KINDS, default="STREAM", show_default=True)
@click.option("--from", "start", type=START, default="earliest", show_default=True)
@click.option("--key-shared", is_flag=True, help="Consumers share the keys of a segment (STREAM).")
@click.option("--holds-pruning/--lets-pruning", default=True, help="Whether what it has not read is kept.")
@with_admin
def create(
    session: Session,
    admin: Admin,
    topic: TopicName,
    subscription: str,
    kind: Any,
    start: Any,
    key_shared: bool,
    holds_pruning: bool,
) -> None:
    """Create a subscription, unless it exists."""
    admin.create_subscription(
        topic, subscription, kind=kind, start=start, key_shared=key_shared, holds_pruning=holds_pruning
    )
    session.output.done(f"{subscription} is there", topic=str(topic), subscription=subscription)


@subscriptions.command()
@topic_argument
@subscription_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_admin
def delete(session: Session, admin: Admin, topic: TopicName, subscription: str, yes: bool) -> None:
    """Delete a subscription, which ends its consumers."""
    if not yes:
        click.confirm(f"Delete {subscription} of {topic}?", abort=True, err=True)
    admin.delete_subscription(topic, subscription)
    session.output.done(f"deleted {subscription}", topic=str(topic), subscription=subscription)


@subscriptions.command()
@topic_argument
@subscription_option
@with_admin
def assignments(session: Session, admin: Admin, topic: TopicName, subscription: str) -> None:
    """Show the consumers, with what each owns under which generation."""
    session.output.document(admin.assignments(topic, subscription))


@subscriptions.command()
@topic_argument
@subscription_option
@click.option("-n", "--count", type=click.IntRange(1, 100), default=10, show_default=True)
@with_admin
def peek(session: Session, admin: Admin, topic: TopicName, subscription: str, count: int) -> None:
    """Show the next messages; nothing is moved."""
    rows = [{**each, "value": _readable(each)} for each in admin.peek(topic, subscription, count=count)]
    session.output.rows(rows, ("segmentId", "offset", "key", "value"), empty="nothing is waiting")


def _readable(message: dict[str, Any]) -> Any:
    """Give the value as text where it is some, else as it came (base64)."""
    try:
        return base64.b64decode(message["value"]).decode()
    except (KeyError, ValueError):
        return message.get("value")


@subscriptions.command()
@topic_argument
@subscription_option
@click.option("-n", "--count", type=click.IntRange(1), required=True)
@preview_option
@with_admin
def skip(
    session: Session, admin: Admin, topic: TopicName, subscription: str, count: int, preview: bool
) -> None:
    """Skip the next messages, those of ancestors first."""
    _moved(
        session,
        f"skipped the next {count}, or what there was",
        admin.skip(topic, subscription, count, preview=preview),
    )


@click.command()
@topic_argument
@subscription_option
@click.option("-t", "--time", "moment", type=MOMENT, help="A span ago (1h), or a time by ISO 8601.")
@click.option("--checkpoint", type=START, help="Text of a checkpoint instead of a time.")
@preview_option
@with_admin
def seek(
    session: Session,
    admin: Admin,
    topic: TopicName,
    subscription: str,
    moment: int | None,
    checkpoint: Any,
    preview: bool,
) -> None:
    """Go on from a time or a checkpoint, in all segments or in none."""
    if (moment is None) == (checkpoint is None):
        raise click.UsageError("give either --time or --checkpoint")
    start = checkpoint if moment is None else moment
    if isinstance(start, str):
        raise click.UsageError("--checkpoint wants the text of a checkpoint")
    _moved(session, f"moved {subscription}", admin.seek(topic, subscription, start, preview=preview))


@click.command("clear-backlog")
@topic_argument
@subscription_option
@preview_option
@with_admin
def clear_backlog(session: Session, admin: Admin, topic: TopicName, subscription: str, preview: bool) -> None:
    """Skip all messages that there are."""
    _moved(
        session,
        f"cleared the backlog of {subscription}",
        admin.clear_backlog(topic, subscription, preview=preview),
    )


def _moved(session: Session, sentence: str, preview: dict[str, Any] | None) -> None:
    if preview is None:
        session.output.done(sentence)
    else:
        session.output.document(preview)


COMMANDS = (subscriptions, seek, clear_backlog)
