"""A topic's DAG as a tree of text: pure, so that every layout can be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from scalable.client import Topology
from scalable.domain.keyspace import KEYSPACE_SIZE
from scalable.wire.frames import SegmentFrame

BAR_CELLS = 32
MAX_LINES = 200
"""Segments that are drawn; the rest is counted in one line."""

Loads = Mapping[str, Mapping[str, Any]]


def draw(topology: Topology, *, loads: Loads, active_only: bool) -> Tree:
    """Draw a topology: below each segment the children that came of it, each once."""
    tree = Tree(_title(topology))
    if active_only:
        _add_rows(tree, topology.active, loads)
    else:
        _add_descendants(tree, topology, loads)
    return tree


def _title(topology: Topology) -> Text:
    counts = f"{len(topology.active)} active of {len(topology.segments)} segments"
    where = f"   led by {topology.controller_url}" if topology.controller_url else ""
    return Text(f"epoch {topology.epoch}   {counts}{where}", style="bold")


def _add_rows(tree: Tree, segments: Sequence[SegmentFrame], loads: Loads) -> None:
    for segment in segments[:MAX_LINES]:
        tree.add(_line(segment, loads))
    _add_rest(tree, len(segments) - MAX_LINES)


def _add_descendants(tree: Tree, topology: Topology, loads: Loads) -> None:
    """Walk from the oldest kept segments down, without recursion: a history may be long."""
    known = topology.segments
    roots = [each for each in known.values() if not any(parent in known for parent in each.parentIds)]
    waiting = [(tree, each) for each in sorted(roots, key=_order, reverse=True)]
    drawn: set[int] = set()
    while waiting and len(drawn) < MAX_LINES:
        above, segment = waiting.pop()
        if segment.segmentId in drawn:
            continue
        drawn.add(segment.segmentId)
        node = above.add(_line(segment, loads))
        children = [known[child] for child in segment.childIds if child in known]
        waiting += [(node, child) for child in sorted(children, key=_order, reverse=True)]
    _add_rest(tree, len(known) - len(drawn))


def _order(segment: SegmentFrame) -> tuple[int, int]:
    return segment.start, segment.segmentId


def _add_rest(tree: Tree, count: int) -> None:
    if count > 0:
        tree.add(Text(f"... and {count} more", style="dim"))


def _line(segment: SegmentFrame, loads: Loads) -> Text:
    active = segment.state == "ACTIVE"
    line = Text(f"{segment.segmentId:>4} ", style="bold green" if active else "dim")
    line.append(f"{segment.start:04x}-{segment.end:04x} ")
    line.append(_bar(segment), style="green" if active else "dim")
    line.append(" active" if active else f" sealed at epoch {segment.sealedAtEpoch}")
    if len(segment.parentIds) > 1:
        line.append(f", merged from {', '.join(map(str, segment.parentIds))}", style="dim")
    load = loads.get(str(segment.segmentId))
    if load:
        line.append(f"   {_rates(load)}", style="cyan")
    return line


def _bar(segment: SegmentFrame) -> str:
    """Draw the range's place in the hash space; a narrow one still has a cell."""
    first = segment.start * BAR_CELLS // KEYSPACE_SIZE
    last = max(first + 1, -(-(segment.end + 1) * BAR_CELLS // KEYSPACE_SIZE))
    return "·" * first + "█" * (last - first) + "·" * (BAR_CELLS - last)


def _rates(load: Mapping[str, Any]) -> str:
    parts = [
        f"{load[name]:,.0f} {unit}"
        for name, unit in (("msgRateIn", "msg/s in"), ("msgRateOut", "msg/s out"))
        if load.get(name)
    ]
    return ", ".join(parts)
