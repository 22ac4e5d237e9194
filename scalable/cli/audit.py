"""The audit: who did or tried what, to what, when (superusers only)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import click
from rich.console import Console

from scalable.cli.files import private_file
from scalable.cli.moments import as_text
from scalable.cli.paging import PAGE
from scalable.cli.session import Session, with_admin
from scalable.cli.values import MOMENT
from scalable.client import Admin

COLUMNS = ("at", "actor", "action", "target", "outcome")
Command = TypeVar("Command", bound=Callable[..., Any])


def filter_options(command: Command) -> Command:
    """Add the options that say which events are wanted."""
    options = (
        click.option("--actor", default="", help="Whoever did it: a role, or user:NAME."),
        click.option("--action", default="", help="What was done (topic.create)."),
        click.option("--target", default="", help="To what, or to what lies below it."),
        click.option("--outcome", default="", help="done, or the code of an error."),
        click.option("--from", "from_ms", type=MOMENT, help="Not before: a span ago (1d), or ISO 8601."),
        click.option("--to", "to_ms", type=MOMENT, help="Before."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def audit() -> None:
    """Who did or tried what, to what, when: list, export."""


@audit.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, PAGE), default=50, show_default=True)
@with_admin
def list_events(session: Session, admin: Admin, /, limit: int, **wanted: Any) -> None:
    """List events, the newest first."""
    rows = [{**each, "at": as_text(each["atMs"])} for each in admin.audit(limit=limit, **wanted)]
    session.output.rows(rows, COLUMNS, empty="no events")


@audit.command()
@filter_options
@click.option("-f", "--file", "path", help="New file, mode 0600; without it, the standard output.")
@with_admin
def export(session: Session, admin: Admin, /, path: str | None, **wanted: Any) -> None:
    """Write all events as lines of JSON, the newest first."""
    ask = partial(admin.audit, limit=PAGE, **wanted)
    console = Console(stderr=True, quiet=session.output.as_json)
    count = 0
    with (
        private_file(path) if path else nullcontext(sys.stdout) as out,
        console.status("exporting") as status,
    ):
        for page in _pages(ask):
            out.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in page)
            count += len(page)
            status.update(f"exporting: {count:,} events")
    session.output.note(f"{count} events")


def _pages(ask: Callable[..., list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Read page after page; what happens meanwhile comes into none of them twice."""
    below: int | None = None
    while page := ask(below_id=below):
        yield page
        if len(page) < PAGE:
            return
        below = page[-1]["eventId"]


COMMANDS = (audit,)
