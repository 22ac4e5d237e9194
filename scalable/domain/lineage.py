"""Walks over the DAG of segments, from the parent and child ids of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    found: set[int] = set()
    open_ids = list(neighbours(nodes[segment_id]))
    while open_ids:
        current = open_ids.pop()
        if current not in found and current in nodes:
            found.add(current)
            open_ids.extend(neighbours(nodes[current]))
    return frozenset(found)


def merge_depth(nodes: Mapping[int, Node], segment_id: int) -> int:
    """Count the merges in a segment's lineage, itself included; splits add none (PIP-483, Anti-flip-flop)."""
    lineage = ancestors(nodes, segment_id) | {segment_id}
    return sum(len(nodes[member].parent_ids) >= 2 for member in lineage)
