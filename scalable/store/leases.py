"""Rows of topic leaderships: bound to a living node, with a term that only rises."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import BooleanField, Case, Value, When

from scalable.domain.errors import TermSuperseded
from scalable.domain.names import TopicName
from scalable.models import ControllerLease
from scalable.store.clock import ClockTimestamp, optional_milliseconds
from scalable.store.nodes import oldest_living_heartbeat


@dataclass(frozen=True, slots=True)
class ControllerLeaseView:
    """Who leads a topic; without a living node nobody does, and the next one may take over."""

    term: int
    node_id: uuid.UUID | None
    url: str | None
    alive: bool


@dataclass(frozen=True, slots=True)
class LedTopic:
    """A topic and the term under which a node leads it, since when."""

    name: TopicName
    term: int
    since_ms: int | None


NO_LEASE = ControllerLeaseView(term=0, node_id=None, url=None, alive=False)


def read(incarnation: int, *, timeout_seconds: float) -> ControllerLeaseView:
    """The leadership of a topic as of now."""
    row = (
        ControllerLease.objects.filter(topic_id=incarnation)
        .annotate(alive=_alive(timeout_seconds))
        .values_list("term", "node_id", "node__url", "alive")
        .first()
    )
    return NO_LEASE if row is None else ControllerLeaseView(*row)


def lock(incarnation: int, *, timeout_seconds: float) -> ControllerLeaseView:
    """Lock the leadership's row, made if need be, and read it; the caller holds the topic's lock."""
    ControllerLease.objects.bulk_create([ControllerLease(topic_id=incarnation)], ignore_conflicts=True)
    ControllerLease.objects.select_for_update(no_key=True).get(topic_id=incarnation)
    return read(incarnation, timeout_seconds=timeout_seconds)


def take(incarnation: int, *, node_id: uuid.UUID, term: int) -> None:
    """Make a node the leader under a new term; the caller holds the row's lock."""
    ControllerLease.objects.filter(topic_id=incarnation).update(
        node_id=node_id, term=term, acquired_at=ClockTimestamp()
    )


def require(incarnation: int, *, node_id: uuid.UUID, term: int, topic: str) -> None:
    """Hold the leadership until the transaction ends, so that no other can begin; raises TermSuperseded."""
    rows = ControllerLease.objects.select_for_update(no_key=True)
    if not rows.filter(topic_id=incarnation, node_id=node_id, term=term).exists():
        current = ControllerLease.objects.filter(topic_id=incarnation).values_list("term", flat=True).first()
        raise TermSuperseded(topic=topic, term=term, current_term=current or 0)


def orphaned(*, timeout_seconds: float, limit: int) -> list[int]:
    """Topics whose leader is dead while consumers are registered; their grace periods want a leader."""
    rows = ControllerLease.objects.filter(topic__subscriptions__consumers__isnull=False)
    rows = rows.annotate(alive=_alive(timeout_seconds)).filter(alive=False)
    return list(rows.order_by("topic_id").values_list("topic_id", flat=True).distinct()[:limit])


def led_by(node_id: uuid.UUID, *, limit: int, offset: int) -> list[LedTopic]:
    """A page of the topics that a node leads, the longest led first."""
    rows = ControllerLease.objects.filter(node_id=node_id).select_related("topic__namespace")
    return [
        LedTopic(
            TopicName(row.topic.namespace.tenant, row.topic.namespace.name, row.topic.name),
            row.term,
            optional_milliseconds(row.acquired_at),
        )
        for row in rows.order_by("acquired_at", "topic_id")[offset : offset + limit]
    ]


def holders(incarnations: Collection[int]) -> dict[int, tuple[uuid.UUID | None, int]]:
    """Who holds the leadership of each topic, dead or alive, and the term; deleted topics are left out."""
    rows = ControllerLease.objects.filter(topic_id__in=incarnations)
    return {key: (node_id, term) for key, node_id, term in rows.values_list("topic_id", "node_id", "term")}


def _alive(timeout_seconds: float) -> Case:
    living = When(node__heartbeat_at__gte=oldest_living_heartbeat(timeout_seconds), then=Value(True))
    return Case(living, default=Value(False), output_field=BooleanField())
