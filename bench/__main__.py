"""`python -m bench [row ...]`: measure the given rows of the table, or all of them."""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import django
from django.core.management import call_command

from bench import report, rows
from bench.harness import ROWS, Bench, Row
from launch.sandbox import Sandbox

GROUPS = {"replay": [13, 14, 15]}
DOCS = Path(__file__).resolve().parent.parent / "docs"


def say(line: str) -> None:
    print(line, flush=True)


def load_rows() -> None:
    """Import every module of `bench.rows`; each registers its rows."""
    for module in pkgutil.iter_modules(rows.__path__, f"{rows.__name__}."):
        importlib.import_module(module.name)


def measure(row: Row, sandbox: Sandbox) -> None:
    """Run one row and write its results at once, so that a later failure loses nothing."""
    say(f"row {row.number}: {row.title} ({row.unit}; floor | ours)")
    bench = Bench(sandbox, report=say)
    try:
        comparisons = list(row.measure(bench))
    finally:
        bench.processes.stop()
    for comparison in comparisons:
        state = "reached" if row.reached(comparison) else "not reached"
        say(f"  {comparison.label}: ratio {comparison.ratio:.3g}, goal {row.goal_of(comparison)}: {state}")
    report.save([report.record(row, comparison) for comparison in comparisons], folder=DOCS)


def main(argv: Sequence[str]) -> int:
    """Run the rows in embedded services of their own; exit status 2 for an unknown row."""
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help="numbers of rows, or `replay`; none: all")
    named = parser.parse_args(argv).rows
    try:
        chosen = [number for name in named for number in GROUPS.get(name) or [int(name)]]
    except ValueError:
        parser.error(f"no such row: {named}")
    sandbox = Sandbox(durable=True)
    try:
        os.environ.update(sandbox.environment(), DJANGO_SETTINGS_MODULE="scalable.settings")
        sandbox.start()
        django.setup()
        call_command("migrate", verbosity=0)
        load_rows()
        if unknown := set(chosen) - set(ROWS):
            parser.error(f"no such row: {sorted(unknown)}; there are {sorted(ROWS)}")
        for number in chosen or sorted(ROWS):
            measure(ROWS[number], sandbox)
    finally:
        sandbox.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
