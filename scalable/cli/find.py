"""Topics of a namespace with their figures, searched and sorted by the server."""

from __future__ import annotations

from typing import Any, get_args

import click

from scalable.cli.session import Session, with_admin
from scalable.cli.topics import property_option
from scalable.cli.values import NAMESPACE, properties_of
from scalable.client import Admin
from scalable.client.tenant_admin import Sort, TopicState

COLUMNS = ("name", "epoch", "activeSegments", "sealedSegments", "state", "msgRateIn")


@click.command()
@click.argument("namespace", type=NAMESPACE)
@click.option("--search", default="", help="Part of the name.")
@property_option
@click.option("--state", type=click.Choice(get_args(TopicState), case_sensitive=False))
@click.option("--sort", type=click.Choice(get_args(Sort)), default="name", show_default=True)
@click.option("--descending", is_flag=True)
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--offset", type=click.IntRange(0), default=0)
@with_admin
def find(
    session: Session,
    admin: Admin,
    namespace: str,
    search: str,
    properties: tuple[tuple[str, str], ...],
    state: TopicState | None,
    sort: Sort,
    descending: bool,
    limit: int,
    offset: int,
) -> None:
    """Show a page of the topics of a namespace with segments, state and rate."""
    page: dict[str, Any] = admin.topics_page(
        namespace,
        search=search,
        properties=properties_of(properties),
        state=state,
        sort=sort,
        descending=descending,
        limit=limit,
        offset=offset,
    )
    if session.output.as_json:
        session.output.document(page)
        return
    session.output.rows(page["topics"], COLUMNS, empty="no topics")
    session.output.note(f"{len(page['topics'])} of {page['total']}")


COMMANDS = (find,)
