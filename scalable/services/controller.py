"""A topic's controller: leadership, consumer sessions, and who reads which segment (PIP-468)."""

import uuid

from scalable.store import nodes


def heartbeat_node(*, node_id: uuid.UUID, url: str) -> None:
    """Note that this web process is alive."""
    nodes.write_heartbeat(node_id, url)


def remove_node(*, node_id: uuid.UUID) -> None:
    """Note that this web process ended; its leaderships are free at once."""
    nodes.delete(node_id)
