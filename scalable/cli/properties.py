"""Properties of topics, by which watches and consumers of a namespace choose."""

from __future__ import annotations

import click

from scalable.cli.session import Session, with_admin
from scalable.cli.topics import epoch_option, topic_argument
from scalable.cli.values import PAIR, properties_of
from scalable.client import Admin
from scalable.domain.names import TopicName


@click.group()
def properties() -> None:
    """Properties of a topic: get, set."""


@properties.command()
@topic_argument
@with_admin
def get(session: Session, admin: Admin, topic: TopicName) -> None:
    """Show a topic's properties."""
    session.output.document(admin.properties(topic))


@properties.command("set")
@topic_argument
@click.argument("pairs", type=PAIR, nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--clear", is_flag=True, help="Take all away.")
@epoch_option
@with_admin
def set_properties(
    session: Session,
    admin: Admin,
    topic: TopicName,
    pairs: tuple[tuple[str, str], ...],
    clear: bool,
    expected_epoch: int | None,
) -> None:
    """Replace all properties of a topic."""
    if bool(pairs) == clear:
        raise click.UsageError("give either KEY=VALUE or --clear")
    wanted = properties_of(pairs)
    admin.set_properties(topic, wanted, expected_epoch=expected_epoch)
    session.output.done(f"set the properties of {topic}", topic=str(topic), properties=wanted)


COMMANDS = (properties,)
