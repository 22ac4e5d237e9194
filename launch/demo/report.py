"""The demo's result: one line of JSON or a table, and what is not as it must be."""

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from launch.demo.journey import Journey
from launch.demo.plan import MERGES_WANTED, SPLITS_WANTED
from launch.demo.streams import Stream


def result_of(journey: Journey) -> dict[str, Any]:
    """Return the figures by the names of the JSON line."""
    audit, sight, topology = journey.audit, journey.observer.sight, journey.observer.topology
    return {
        "produced": audit.produced,
        "consumed": audit.consumed,
        "lost": max(0, journey.sent - audit.distinct),  # what was not sent before an untimely end is not lost
        "duplicated": audit.duplicated,
        "out_of_order": audit.out_of_order,
        "splits": sight.splits,
        "merges": sight.merges,
        "epoch": topology.epoch if topology else 0,
        "active_segments": len(topology.active) if topology else 0,
        "load_reports": len(sight.load_reports),
        "seconds": round(journey.seconds, 1),
    }


def problems_of(journey: Journey, result: dict[str, Any]) -> Iterator[str]:
    """Name each figure that is not as it must be."""
    wanted = journey.plan.events
    for name in ("produced", "consumed"):
        if result[name] != wanted:
            yield f"{name} is {result[name]}, not {wanted}"
    for name in ("lost", "duplicated", "out_of_order"):
        if result[name]:
            yield f"{name} is {result[name]}, not 0"
    minima = {"load_reports": 1}
    if journey.plan.wants_scaling:
        minima |= {"splits": SPLITS_WANTED, "merges": MERGES_WANTED}
    for name, least in minima.items():
        if result[name] < least:
            yield f"{name} is {result[name]}, not at least {least}"
    yield from journey.audit.failures[:5]


def print_json(result: dict[str, Any]) -> None:
    """Print the one line that scripts read."""
    print(json.dumps(result), flush=True)


def print_table(console: Console, stream: Stream, result: dict[str, Any], *, url: str) -> None:
    """Print the summary for people."""
    table = Table(title=stream.title, show_header=False, title_justify="left")
    for name, value in result.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    console.print(table)
    console.print(f"See {url}/topics/{stream.topic.path}", soft_wrap=True, highlight=False)
