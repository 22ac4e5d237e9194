"""Web nodes as anybody may see them: who is alive, and who leads which topics since when."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from scalable.domain.errors import NodeNotFound
from scalable.store import leases, nodes
from scalable.store.leases import LedTopic
from scalable.store.nodes import NodeView


@dataclass(frozen=True, slots=True)
class NodePage:
    """A page of the nodes, the oldest first; those whose heartbeat is younger than the time-out are alive."""

    nodes: tuple[NodeView, ...]
    total: int
    timeout_seconds: float

    def is_alive(self, node: NodeView) -> bool:
        """Tell whether a node of the page is alive."""
        return node.heartbeat_age_seconds <= self.timeout_seconds


def list_nodes(*, limit: int, offset: int) -> NodePage:
    """Give a page of the nodes; one that died stays in sight for ten time-outs."""
    found, total = nodes.page(limit=limit, offset=offset)
    return NodePage(tuple(found), total, settings.SCALABLE_NODE_TIMEOUT_SECONDS)


def list_led_topics(*, node_id: str, limit: int, offset: int) -> list[LedTopic]:
    """Give a page of the topics that a node leads, the longest led first; raises NodeNotFound."""
    try:
        key = uuid.UUID(node_id)
    except ValueError:
        raise NodeNotFound(node_id=node_id[:100]) from None
    if not nodes.exists(key):
        raise NodeNotFound(node_id=node_id)
    return leases.led_by(key, limit=limit, offset=offset)


def lost_leaderships(*, node_id: uuid.UUID, terms: Mapping[int, int]) -> dict[int, int]:
    """Of the topics that a node believes to lead, by term, give those that it lost, with their term now.

    A deleted topic is nobody's and left out.
    """
    held = leases.holders(terms.keys())
    return {
        incarnation: term
        for incarnation, (holder, term) in held.items()
        if (holder, term) != (node_id, terms[incarnation])
    }
