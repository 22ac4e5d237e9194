"""The topics of a namespace as they come and go."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click

from scalable.cli.session import Session
from scalable.cli.topics import property_option
from scalable.cli.values import NAMESPACE, SPAN, properties_of
from scalable.client import Endpoint, NamespaceWatch, TopicsChange


@click.command("watch-topics")
@click.argument("namespace", type=NAMESPACE)
@property_option
@click.option("--for", "seconds", type=SPAN, help="End so long after the list came (10m).")
@click.pass_obj
def watch_topics(
    session: Session, namespace: str, properties: tuple[tuple[str, str], ...], seconds: float | None
) -> None:
    """Print the topics of a namespace, + before each, and what comes and goes (-), until Ctrl-C."""
    asyncio.run(_follow(session, namespace, properties_of(properties), seconds))


async def _follow(
    session: Session, namespace: str, properties: dict[str, str], seconds: float | None
) -> None:
    watch = NamespaceWatch(
        Endpoint(session.url, session.token),
        namespace,
        properties=properties,
        client="scalable-topics",
        on_change=lambda change: _print(session, change),
    )
    async with watch:
        with suppress(TimeoutError):
            await watch.wait_for(lambda _: False, seconds)


def _print(session: Session, change: TopicsChange) -> None:
    """Print a change: one object for scripts, a line for each topic for people; what goes stands first."""
    removed, added = (sorted(map(str, names)) for names in (change.removed, change.added))
    lines = [*(f"- {name}" for name in removed), *(f"+ {name}" for name in added)]
    if lines or session.output.as_json:
        session.output.event({"removed": removed, "added": added}, "\n".join(lines))


COMMANDS = (watch_topics,)
