"""What REST reads and answers about nodes."""

from typing import Any

from scalable.api.serializers import Body, Identifier, PageSize, Query
from scalable.services.nodes import NodePage
from scalable.store.leases import LedTopic
from scalable.store.nodes import NodeView


class PageQuery(Query):
    """A page of the list."""

    limit: PageSize = 100
    offset: Identifier = 0


class NodeBody(Body):
    """A web node; `alive` while its heartbeat is younger than `timeoutMs`."""

    node_id: str
    url: str
    started_at_ms: int
    heartbeat_age_ms: int
    alive: bool
    topics_led: int


class NodesBody(Body):
    """A page of the nodes, the oldest first, and how many there are."""

    nodes: list[NodeBody]
    total: int
    timeout_ms: int


class LedTopicBody(Body):
    """A topic, the term under which the node leads it, and since when."""

    topic: str
    term: int
    since_ms: int | None


class LedTopicsBody(Body):
    """A page of the topics that a node leads, the longest led first."""

    topics: list[LedTopicBody]


def nodes_body(page: NodePage) -> dict[str, Any]:
    """Write a page of nodes."""
    return {
        "nodes": [_node_body(node, alive=page.is_alive(node)) for node in page.nodes],
        "total": page.total,
        "timeoutMs": round(page.timeout_seconds * 1000),
    }


def _node_body(node: NodeView, *, alive: bool) -> dict[str, Any]:
    return {
        "nodeId": str(node.node_id),
        "url": node.url,
        "startedAtMs": node.started_at_ms,
        "heartbeatAgeMs": max(0, round(node.heartbeat_age_seconds * 1000)),
        "alive": alive,
        "topicsLed": node.topics_led,
    }


def led_topic_body(led: LedTopic) -> dict[str, Any]:
    """Write a topic that a node leads."""
    return {"topic": str(led.name), "term": led.term, "sinceMs": led.since_ms}
