"""Rows of nodes: web processes that are alive while their heartbeat is young on the database's clock."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import (
    Count,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    OuterRef,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce

from scalable.models import ControllerLease, Node
from scalable.store.clock import ClockTimestamp, milliseconds


@dataclass(frozen=True, slots=True)
class NodeView:
    """A web process by its row; `heartbeat_age_seconds` is on the database's clock."""

    node_id: uuid.UUID
    url: str
    started_at_ms: int
    heartbeat_age_seconds: float
    topics_led: int


def oldest_living_heartbeat(timeout_seconds: float) -> "ExpressionWrapper[Any]":
    """The heartbeat below which a node counts as dead."""
    oldest = ClockTimestamp() - Value(timedelta(seconds=timeout_seconds))
    return ExpressionWrapper(oldest, output_field=DateTimeField())


def write_heartbeat(node_id: uuid.UUID, url: str) -> None:
    """Add the node, or note that it is alive."""
    row = Node(id=node_id, url=url, started_at=ClockTimestamp(), heartbeat_at=ClockTimestamp())
    Node.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["id"], update_fields=["url", "heartbeat_at"]
    )


def delete(node_id: uuid.UUID) -> None:
    """Remove a node, which frees the leaderships that it held."""
    Node.objects.filter(pk=node_id).delete()


def exists(node_id: uuid.UUID) -> bool:
    """Tell whether the node has a row."""
    return Node.objects.filter(pk=node_id).exists()


def is_alive(node_id: uuid.UUID, *, timeout_seconds: float) -> bool:
    """Tell whether the node's heartbeat is young."""
    return Node.objects.filter(
        pk=node_id, heartbeat_at__gte=oldest_living_heartbeat(timeout_seconds)
    ).exists()


def page(*, limit: int, offset: int) -> tuple[list[NodeView], int]:
    """A page of all nodes, the oldest first, and how many there are."""
    age = ExpressionWrapper(ClockTimestamp() - F("heartbeat_at"), output_field=DurationField())
    # A join would group by the age too, which differs from row to row: a node would come once for each topic.
    leases = ControllerLease.objects.filter(node_id=OuterRef("pk")).order_by().values("node_id")
    led = Coalesce(Subquery(leases.values(number=Count("*"))), 0)
    rows = Node.objects.annotate(age=age, led=led).order_by("started_at", "pk")
    found = [
        NodeView(row.pk, row.url, milliseconds(row.started_at), row.age.total_seconds(), row.led)
        for row in rows[offset : offset + limit]
    ]
    return found, Node.objects.count()


def delete_at(url: str) -> None:
    """Remove the nodes of an address, which frees the leaderships that they held."""
    Node.objects.filter(url=url).delete()


def delete_dead(*, timeout_seconds: float, limit: int) -> int:
    """Remove nodes that have been dead for long, and give their number."""
    dead = Node.objects.filter(heartbeat_at__lt=oldest_living_heartbeat(timeout_seconds))
    _, by_model = Node.objects.filter(pk__in=list(dead.values_list("pk", flat=True)[:limit])).delete()
    return by_model.get("scalable.Node", 0)
