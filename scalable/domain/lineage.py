"""Walks over the DAG of segments, from the parent and child ids of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol


class Node(Protocol):
    """What a walk needs to know of a segment."""

    @property
    def parent_ids(self) -> tuple[int, ...]:
        """Name the segments that this one replaced."""

    @property
    def child_ids(self) -> tuple[int, ...]:
        """Name the segments that replaced this one."""


def ancestors(nodes: Mapping[int, Node], segment_id: int) -> frozenset[int]:
    """Collect all segments still in the DAG that came before this one."""
    return _reachable(nodes, segment_id, lambda node: node.parent_ids)


def descendants(nodes: Mapping[int, Node], segment_id: int) -> frozenset[int]:
    """Collect all segments still in the DAG that came after this one."""
    return _reachable(nodes, segment_id, lambda node: node.child_ids)


def _reachable(
    nodes: Mapping[int, Node], segment_id: int, neighbours: Callable[[Node], Iterable[int]]
) -> frozenset[int]:
    return frozenset(_walk(nodes, neighbours(nodes[segment_id]), neighbours))


def _walk(
    nodes: Mapping[int, Node], start: Iterable[int], neighbours: Callable[[Node], Iterable[int]]
) -> Iterator[int]:
    """Give each segment that can be reached once, those at the start included."""
    open_ids = [segment_id for segment_id in start if segment_id in nodes]
    seen = set(open_ids)
    while open_ids:
        segment_id = open_ids.pop()
        yield segment_id
        found = [each for each in neighbours(nodes[segment_id]) if each in nodes and each not in seen]
        seen.update(found)
        open_ids.extend(found)


def merge_depth(nodes: Mapping[int, Node], segment_id: int, limit: int | None = None) -> int:
    """Count the merges in a segment's lineage, itself included; splits add none (PIP-483, Anti-flip-flop).

    Counting stops at the limit: a lineage has few segments for each of its merges, so that the walk stays
    short.
    """
    lineage = _walk(nodes, [segment_id], lambda node: node.parent_ids)
    merges = (member for member in lineage if len(nodes[member].parent_ids) >= 2)
    return sum(1 for _ in islice(merges, limit))
