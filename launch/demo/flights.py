"""Flight departures from New York in 2013, keyed by the aircraft's tail number."""

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice

from launch.demo.events import Event, event, table_file

ARCHIVE = "flights.csv.zip"
TOTAL_FLIGHTS = 336_776
ORDER = ("year", "month", "day", "sched_dep_time", "carrier", "flight", "origin")


def read_flights(count: int) -> Iterator[Event]:
    """Give the first flights by scheduled departure, carrier, flight and origin, which is a total order.

    All are sorted before this returns; each event is made when its turn comes.
    """
    header, lines = _sorted_lines()
    rows = enumerate(csv.reader(islice(lines, count)))
    return (event(number, dict(zip(header, row, strict=True)), key="tailnum") for number, row in rows)


def _sorted_lines() -> tuple[list[str], Iterator[str]]:
    with zipfile.ZipFile(table_file(ARCHIVE)) as archive, archive.open(archive.namelist()[0]) as member:
        lines = io.TextIOWrapper(member, encoding="utf-8", newline="").read().splitlines()
    header = next(csv.reader(lines[:1]))
    places = [header.index(name) for name in ORDER]
    keyed = sorted((_order(row, places), at) for at, row in enumerate(csv.reader(lines[1:]), 1))
    return header, (lines[at] for _, at in keyed)


def _order(row: Sequence[str], places: Sequence[int]) -> str:
    """Numbers padded to one width compare as text: less memory than tuples of a third of a million rows."""
    return " ".join(row[place].zfill(5) for place in places)
