"""The live tree of a topic's DAG in the terminal."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import click
from msgspec import to_builtins
from rich.console import Console
from rich.live import Live

from scalable.cli.session import Session
from scalable.cli.topics import topic_argument
from scalable.cli.tree import draw
from scalable.cli.values import SPAN
from scalable.client import Endpoint, Topology, TopologyWatch
from scalable.client.time_limit import time_limit
from scalable.domain.names import TopicName


@click.command()
@topic_argument
@click.option("--once", is_flag=True, help="Print the layout as it is, and end.")
@click.option("--active", "active_only", is_flag=True, help="Only the segments that take messages.")
@click.option("--for", "seconds", type=SPAN, help="End so long after the layout came (10m).")
@click.pass_obj
def watch(session: Session, topic: TopicName, once: bool, active_only: bool, seconds: float | None) -> None:
    """Draw a topic's segments and follow their splits and merges; Ctrl-C ends it."""
    follower = Follower(session, topic, active_only=active_only)
    asyncio.run(follower.show_once() if once else follower.follow(seconds))


class Follower:
    """Shows one topology after the other: a picture that changes, or a JSON line each."""

    def __init__(self, session: Session, topic: TopicName, *, active_only: bool) -> None:
        self._session, self._topic, self._active_only = session, topic, active_only
        self._watch = TopologyWatch(
            Endpoint(session.url, session.token), topic, client="scalable-topics", detail="full"
        )

    async def show_once(self) -> None:
        """Print the layout and end."""
        async with self._watch as watch:
            topology = await watch.wait_for(lambda _: True)
        if self._session.output.as_json:
            self._session.output.document(as_json(topology))
        else:
            self._session.output.picture(self._drawn(topology))

    async def follow(self, seconds: float | None) -> None:
        """Show every change until so long after the first layout, or until the topic is gone."""
        async with self._watch as watch:
            with suppress(TimeoutError):
                async with time_limit(seconds):
                    await (self._print_each(watch) if self._streams else self._draw_each(watch))

    @property
    def _streams(self) -> bool:
        return self._session.output.as_json or not self._session.output.console.is_terminal

    async def _print_each(self, watch: TopologyWatch) -> None:
        shown: Topology | None = None
        while True:
            shown = await _next(watch, shown)
            if self._session.output.as_json:
                self._session.output.event(as_json(shown), "")
            else:
                self._session.output.picture(self._drawn(shown))

    async def _draw_each(self, watch: TopologyWatch) -> None:
        shown: Topology | None = None
        console: Console = self._session.output.console
        with Live(console=console, refresh_per_second=4, vertical_overflow="ellipsis") as live:
            while True:
                shown = await _next(watch, shown)
                live.update(self._drawn(shown))

    def _drawn(self, topology: Topology) -> Any:
        loads = topology.detail.loads if topology.detail else {}
        return draw(topology, loads=loads, active_only=self._active_only)


async def _next(watch: TopologyWatch, shown: Topology | None) -> Topology:
    return await watch.wait_for(lambda topology: topology is not shown)


def as_json(topology: Topology) -> dict[str, Any]:
    """Give a topology as one JSON object."""
    return {
        "epoch": topology.epoch,
        "revision": topology.revision,
        "term": topology.term,
        "controllerUrl": topology.controller_url,
        "segments": [to_builtins(each) for each in topology.segments.values()],
        "loads": dict(topology.detail.loads) if topology.detail else {},
    }


COMMANDS = (watch,)
