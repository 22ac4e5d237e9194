"""The soak: producers and consumers work while their topic is reshaped and everything is killed at random.

It starts an instance of its own. In the end every message that was acknowledged to its producer must have
reached each subscription, in the order of its key, and not again once its consumer was done with it.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from launch.embedded import remove_postgres
from launch.instance import Instance
from launch.ports import free_port
from launch.soak.display import show
from launch.soak.plan import NODES, SETTINGS, WORKERS, SoakPlan
from launch.soak.soak import Soak
from launch.supervisor import Report

MAX_MINUTES = 24 * 60.0
MUST_BE_ZERO = ("lost", "reordered", "duplicated_beyond_window", "assignment_violations")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the options; argparse's exit for help and for what cannot be read."""
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=_minutes, metavar="N", default=5.0, help="default: 5")
    parser.add_argument("--seed", type=int, metavar="N", help="who dies when; default: another each time")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    parser.add_argument("--keep", action="store_true", help="keep logs and journals even when all is well")
    return parser.parse_args(argv)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= MAX_MINUTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes up to {MAX_MINUTES:.0f}")
    return minutes


def run(options: argparse.Namespace, report: Report) -> int:
    """Soak in an instance of its own; 1 when any figure is not as it must be."""
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    plan = SoakPlan(seconds=options.minutes * 60, seed=seed)
    console = Console(stderr=options.json)
    folder = Path(tempfile.mkdtemp(prefix="scalable-soak-"))
    folder.chmod(0o755)  # PostgreSQL may run as another account
    report(f"seed {seed}; logs and journals in {folder}")
    problems = ["it was interrupted"]
    try:
        with Instance(
            folder / "data",
            port=free_port(),
            report=report,
            nodes=NODES,
            workers=WORKERS,
            with_spark=False,
            settings=SETTINGS,
        ) as instance:
            soak = Soak(plan, instance, folder)
            asyncio.run(_run(soak, console))
        problems = problems_of(soak)
        _print_result(soak, console, as_json=options.json)
    finally:
        _clean(folder, keep=options.keep or bool(problems), report=report)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


async def _run(soak: Soak, console: Console) -> None:
    display = asyncio.create_task(show(soak, console))
    try:
        await soak.run()
    finally:
        display.cancel()
        await asyncio.gather(display, return_exceptions=True)


def problems_of(soak: Soak) -> list[str]:
    """Name each figure that is not as it must be, and what is behind it."""
    result = soak.result()
    return [f"{name} is {result[name]}, not 0" for name in MUST_BE_ZERO if result[name]] + soak.problems()


def _print_result(soak: Soak, console: Console, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(soak.result()), flush=True)
        return
    table = Table(
        title=f"Soak of {soak.plan.seconds / 60:g} minutes", show_header=False, title_justify="left"
    )
    for name, value in soak.result().items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    console.print(table)


def _clean(folder: Path, *, keep: bool, report: Report) -> None:
    """Remove the cluster in any case, and the rest unless somebody wants to look into it."""
    remove_postgres(directory=folder / "data" / "postgres")
    if keep:
        report(f"logs and journals are kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
