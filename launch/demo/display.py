"""Live progress: a moving picture on a terminal, a line now and then elsewhere."""

import asyncio

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from launch.demo.journey import Journey

FRAMES_PER_SECOND = 4
LINE_SECONDS = 5.0
MAP_WIDTH = 64
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


async def show(journey: Journey, console: Console) -> None:
    """Show progress until cancelled."""
    if not console.is_terminal:
        await _print_lines(journey, console)
    with Live(picture(journey), console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(picture(journey), refresh=True)
                await asyncio.sleep(1 / FRAMES_PER_SECOND)
        finally:
            live.update(picture(journey), refresh=True)


async def _print_lines(journey: Journey, console: Console) -> None:
    while True:
        console.print(line(journey), highlight=False, soft_wrap=True)
        await asyncio.sleep(LINE_SECONDS)


def line(journey: Journey) -> str:
    """Return one line of progress."""
    audit, sight = journey.audit, journey.observer.sight
    return (
        f"\\[{journey.seconds:5.1f} s] {journey.phase}: {audit.produced:,} produced, "
        f"{audit.consumed:,} consumed; {counted(journey.observer.active_segments, 'segment')}, "
        f"{counted(sight.splits, 'split')}, {counted(sight.merges, 'merge')} by load"
    )


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, in the singular for one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def picture(journey: Journey) -> Group:
    """Return bars, the hash space cut into segments, and the last decision."""
    audit, sight = journey.audit, journey.observer.sight
    count = journey.observer.active_segments
    bars = Table.grid(padding=(0, 1))
    for name, value in (("produced", audit.produced), ("consumed", audit.consumed)):
        bar = ProgressBar(total=journey.plan.events, completed=value, width=40)
        bars.add_row(name, bar, f"{value:,} / {journey.plan.events:,}")
    return Group(
        Text(f"{journey.phase}, {journey.seconds:.0f} s", style="bold"),
        bars,
        segments(journey),
        Text(
            f"{counted(count, 'segment')}, {counted(sight.splits, 'split')} and "
            f"{counted(sight.merges, 'merge')} by load"
        ),
        Text(
            f"{counted(len(sight.load_reports), 'load report')}; "
            f"autoscaler: {sight.decision or 'nothing yet'}"
        ),
    )


def segments(journey: Journey) -> Text:
    """Return the hash space as a strip; each active segment has a colour."""
    strip, topology = Text(), journey.observer.topology
    for segment in topology.active if topology else ():
        start, end = segment.start * MAP_WIDTH // 65_536, (segment.end + 1) * MAP_WIDTH // 65_536
        name = str(segment.segmentId).center(end - start)[: end - start]
        strip.append(name, style=f"black on {COLOURS[segment.segmentId % len(COLOURS)]}")
    return strip
