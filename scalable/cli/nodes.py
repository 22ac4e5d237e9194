"""The nodes of the installation (superusers only)."""

from __future__ import annotations

import click

from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.client import Admin

NODE_COLUMNS = ("nodeId", "url", "alive", "heartbeatAgeMs", "topicsLed")
LED_COLUMNS = ("topic", "term")


@click.group()
def nodes() -> None:
    """Nodes: list, the topics that one leads, the figures of the one that answers."""


@nodes.command("list")
@limit_option
@with_admin
def list_nodes(session: Session, admin: Admin, limit: int | None) -> None:
    """List the web nodes, the oldest first."""
    rows = gather(lambda size, offset: admin.nodes(limit=size, offset=offset), limit)
    session.output.rows(rows, NODE_COLUMNS, empty="no nodes")


@nodes.command()
@click.argument("node_id")
@limit_option
@with_admin
def topics(session: Session, admin: Admin, node_id: str, limit: int | None) -> None:
    """List the topics that a node leads."""
    rows = gather(lambda size, offset: admin.topics_led(node_id, limit=size, offset=offset), limit)
    session.output.rows(rows, LED_COLUMNS, empty="it leads no topics")


@nodes.command()
@with_admin
def metrics(session: Session, admin: Admin) -> None:
    """Print a node's figures as Prometheus reads them."""
    click.echo(admin.metrics(), nl=False)


COMMANDS = (nodes,)
