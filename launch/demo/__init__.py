"""The demo: real events make a topic split by itself, then merge; a group of two reads it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from launch.data_directory import RunningServices
from launch.demo.display import show
from launch.demo.journey import PREPARING, Journey
from launch.demo.plan import plan_for
from launch.demo.report import print_json, print_table, problems_of, result_of
from launch.demo.streams import STREAMS
from launch.process import LaunchError
from scalable.client import ConnectionLost
from scalable.domain.errors import ScalableError

DEFAULT_EVENTS = 60_000
USAGE = (
    "./run demo [--stream S] [--events N] [--json] [--data-dir D] [--port N] [--verbose]"
    " [--tls-cert F --tls-key F [--tls-client-ca F]]"
)
ENCRYPTION = (
    "--tls-cert, --tls-key and --tls-client-ca encrypt the instance that is started (docs/access.md)."
)


def main(argv: Sequence[str], services: RunningServices) -> int:
    """Run the demo in a running instance; 1 when any figure is not as it must be."""
    options = parse(argv)
    # In JSON mode stdout carries the one line alone.
    console = Console(stderr=options.json)
    journey = Journey(plan_for(options.events, STREAMS[options.stream]), services)
    stopped_by = None
    try:
        asyncio.run(_run(journey, console))
    except (LaunchError, ScalableError, ConnectionLost) as error:
        stopped_by = "; ".join(filter(None, (str(error), getattr(error, "hint", ""))))
    result = result_of(journey)
    # After an untimely end the figures are wrong for that reason alone.
    problems = [stopped_by] if stopped_by else list(problems_of(journey, result))
    if options.json:
        print_json(result)
    elif journey.phase != PREPARING:  # else there is nothing to show
        print_table(console, journey.plan.stream, result, url=services.shown[0])
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def parse(argv: Sequence[str]) -> Any:
    """Read the options; argparse's exit for help and for what cannot be read."""
    parser = argparse.ArgumentParser(
        prog="./run demo", usage=USAGE, description=__doc__, epilog=ENCRYPTION, allow_abbrev=False
    )
    parser.add_argument(
        "--stream", choices=STREAMS, default="flights", help="what is sent; default: flights, by aircraft"
    )
    parser.add_argument(
        "--events", type=_count, metavar="N", help=f"default: {DEFAULT_EVENTS:,}, or as many as there are"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    parser.add_argument(
        "--data-dir", metavar="D", help="the instance's folder; one is started where none runs"
    )
    parser.add_argument("--port", metavar="N", help="port of the web node if one is started")
    parser.add_argument(
        "--verbose", action="store_true", help="show the processes' logs too if one is started"
    )
    options = parser.parse_args(argv)
    total = STREAMS[options.stream].total
    if options.events is None:
        options.events = min(DEFAULT_EVENTS, total)
    if options.events > total:
        parser.error(f"argument --events: {options.events} is not a number of events from 1 to {total}")
    return options


def _count(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of events from 1 on")
    return count


async def _run(journey: Journey, console: Console) -> None:
    display = asyncio.create_task(show(journey, console))
    try:
        await journey.run()
    finally:
        display.cancel()
        await asyncio.gather(display, return_exceptions=True)
