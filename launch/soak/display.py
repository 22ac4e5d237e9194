"""Live progress of a soak: a table on a terminal, a line now and then elsewhere."""

import asyncio

from rich.console import Console
from rich.live import Live
from rich.table import Table

from launch.soak.plan import CONSUMERS, Role
from launch.soak.soak import Soak
from launch.soak.verdict import sent

FRAMES_PER_SECOND = 2
LINE_SECONDS = 10.0


async def show(soak: Soak, console: Console) -> None:
    """Show progress until cancelled."""
    if not console.is_terminal:
        while True:
            console.print(line(soak), highlight=False, soft_wrap=True)
            await asyncio.sleep(LINE_SECONDS)
    with Live(table(soak), console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(table(soak), refresh=True)
                await asyncio.sleep(1 / FRAMES_PER_SECOND)
        finally:
            live.update(table(soak), refresh=True)


def figures(soak: Soak) -> dict[str, str]:
    """Give what is worth showing, by name."""
    produced = len(sent(soak.crew.journals(Role.PRODUCER)))
    kills = ", ".join(f"{count} {kind}s" for kind, count in soak.killer.kills.items())
    cuts = ", ".join(f"{count} {kind}s" for kind, count in soak.interrupter.counts.items())
    return {
        "produced": f"{produced:,}",
        **{f"received by {role}": f"{len(soak.received(role)):,}" for role in CONSUMERS},
        "killed": kills,
        "interrupted": cuts,
        "splits, merges": f"{soak.reshaper.splits}, {soak.reshaper.merges}",
        "assignments checked": f"{soak.inspector.sightings:,}, {len(soak.inspector.violations)} wrong",
    }


def line(soak: Soak) -> str:
    """Return one line of progress."""
    told = "; ".join(f"{name}: {value}" for name, value in figures(soak).items())
    return f"\\[{soak.seconds:5.1f} s of {soak.plan.seconds:.0f}] {soak.phase}: {told}"


def table(soak: Soak) -> Table:
    """Return a table of progress."""
    shown = Table(
        title=f"{soak.phase}, {soak.seconds:.0f} s of {soak.plan.seconds:.0f}",
        show_header=False,
        title_justify="left",
    )
    for name, value in figures(soak).items():
        shown.add_row(name, value)
    return shown
