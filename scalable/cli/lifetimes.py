"""How long messages of drained segments and sessions of consumers are kept."""

from __future__ import annotations

import click

from scalable.cli.places import Place, named, place_argument
from scalable.cli.session import Session, with_admin
from scalable.cli.values import SPAN
from scalable.client import Admin
from scalable.domain.names import TopicName

FOR_EVER = -1


@click.group()
def lifetimes() -> None:
    """How long topics keep messages and sessions: get, set, remove; of a topic or a namespace."""


@lifetimes.command()
@place_argument
@with_admin
def get(session: Session, admin: Admin, place: Place) -> None:
    """Show what a topic or a namespace sets; of a topic also what holds, and whose setting it is."""
    if isinstance(place, TopicName):
        session.output.document(admin.lifetimes(place))
    else:
        session.output.document(admin.namespace_lifetimes(str(place)))


@lifetimes.command("set")
@place_argument
@click.option("--retention", type=SPAN, help="How long drained segments are kept (7d).")
@click.option("--forever", is_flag=True, help="Keep everything.")
@click.option("--session-grace", type=SPAN, help="How long a consumer that went away keeps its segments.")
@with_admin
def set_lifetimes(
    session: Session,
    admin: Admin,
    place: Place,
    retention: float | None,
    forever: bool,
    session_grace: float | None,
) -> None:
    """Replace what a topic or a namespace sets; what is not named is inherited."""
    if forever and retention is not None:
        raise click.UsageError("give either --retention or --forever")
    if not forever and retention is None and session_grace is None:
        raise click.UsageError("name something to set; `lifetimes remove` takes all away")
    kept = FOR_EVER if forever else None if retention is None else int(retention)
    if isinstance(place, TopicName):
        admin.set_lifetimes(place, retention_seconds=kept, session_grace_seconds=session_grace)
    else:
        admin.set_namespace_lifetimes(str(place), retention_seconds=kept, session_grace_seconds=session_grace)
    session.output.done(f"set the lifetimes of {place}", **named(place))


@lifetimes.command()
@place_argument
@with_admin
def remove(session: Session, admin: Admin, place: Place) -> None:
    """Let a topic or a namespace inherit them."""
    if isinstance(place, TopicName):
        admin.remove_lifetimes(place)
    else:
        admin.remove_namespace_lifetimes(str(place))
    session.output.done(f"removed the lifetimes of {place}", **named(place))


COMMANDS = (lifetimes,)
