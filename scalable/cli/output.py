"""What the command prints: tables for people, JSON for scripts; errors on stderr in the same form."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from scalable.cli.statuses import NO_ACCESS, REFUSED, UNREACHABLE
from scalable.client import ConnectionLost
from scalable.domain.errors import Forbidden, ScalableError, Unauthenticated

PIPE_WIDTH = 240
"""Columns where the output is no terminal: nothing is cut that a script could want."""


class Output:
    """Prints what commands give; `as_json` makes each answer one JSON document, and each event one line."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)

    def document(self, body: Any) -> None:
        """Print one answer."""
        if self.as_json:
            click.echo(json.dumps(body, indent=2, ensure_ascii=False))
        elif isinstance(body, Mapping):
            self.picture(_fields(body))
        else:
            self.picture(Text(_cell(body)))

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, empty: str) -> None:
        """Print a list; people see the named columns, scripts everything."""
        if self.as_json:
            self.document(list(rows))
        elif rows:
            self.picture(_table(rows, columns))
        else:
            self.note(empty)

    def picture(self, drawn: RenderableType) -> None:
        """Print what rich draws; in a pipe without the blanks that fill its lines."""
        if self.console.is_terminal:
            self.console.print(drawn)
            return
        with self.console.capture() as capture:
            self.console.print(drawn)
        click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))

    def names(self, names: Iterable[str]) -> None:
        """Print names, one a line."""
        if self.as_json:
            self.document(list(names))
        else:
            for name in names:
                click.echo(name)

    def event(self, body: Mapping[str, Any], line: str) -> None:
        """Print one of a stream of things, at once."""
        click.echo(json.dumps(body, ensure_ascii=False) if self.as_json else line)
        sys.stdout.flush()

    def done(self, sentence: str, **fields: Any) -> None:
        """Say that a change is made."""
        if self.as_json:
            self.document({"done": True, **fields})
        else:
            self.note(sentence)

    def note(self, sentence: str) -> None:
        """Tell people something beside the answer."""
        if not self.as_json:
            click.echo(sentence, err=True)


def report(error: ScalableError | ConnectionLost, *, as_json: bool) -> int:
    """Print an error on stderr as REST gives it, and give the exit status."""
    body = error.to_json() if isinstance(error, ScalableError) else _unreachable(error)
    if as_json:
        _complain(body)
    else:
        click.echo(f"error: {body['reason']} [{body['code']}]", err=True)
        if body["hint"]:
            click.echo(f"hint: {body['hint']}", err=True)
    if isinstance(error, ConnectionLost):
        return UNREACHABLE
    return NO_ACCESS if isinstance(error, Unauthenticated | Forbidden) else REFUSED


def report_mistake(error: click.ClickException, *, as_json: bool) -> int:
    """Print on stderr what is wrong with the command line, or with this machine, and give the exit status."""
    if not as_json:
        error.show()
        return error.exit_code
    context = error.ctx if isinstance(error, click.UsageError) else None
    _complain(
        {
            "code": "usage" if isinstance(error, click.UsageError) else "failed",
            "reason": error.format_message(),
            "fields": {},
            "hint": f"{context.command_path} --help explains it." if context else "",
        }
    )
    return error.exit_code


def _complain(body: Mapping[str, Any]) -> None:
    click.echo(json.dumps(body, ensure_ascii=False), err=True)


def _unreachable(error: ConnectionLost) -> dict[str, Any]:
    return {
        "code": "unreachable",
        "reason": f"No node answers: {error}.",
        "fields": {},
        "hint": "Is the product running, and is --url (SCALABLE_URL) its address? "
        "By https it may want a certificate (SCALABLE_TLS_CERT, SCALABLE_TLS_KEY), or have its own from an "
        "authority that this machine does not know (SCALABLE_TLS_CA).",
    }


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    return table


def _fields(body: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in body.items():
        table.add_row(Text(str(key)), Text(_cell(value)))
    return table


def _cell(value: Any) -> str:
    """Write a value for people; what is nested goes line by line."""
    if isinstance(value, Mapping):
        nested = any(isinstance(each, Mapping) for each in value.values())
        return ("\n" if nested else ", ").join(f"{key}: {_cell(each)}" for key, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        nested = any(isinstance(each, Mapping) for each in value)
        return ("\n" if nested else ", ").join(map(_cell, value)) or "-"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)
