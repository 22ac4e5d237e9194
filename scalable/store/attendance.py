"""Who attends a topic's subscriptions: consumers and what they own, read for a whole topic at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scalable.models import Assignment, ConsumerRegistration, ControllerLease
from scalable.store.clock import optional_milliseconds


class Unit(NamedTuple):
    """A segment, or an entry bucket of it, with its owner and who gets it next."""

    segment_id: int
    bucket: int
    owner: str | None
    next_owner: str | None
    generation: int
    drained: bool
    position: int | None


@dataclass(frozen=True, slots=True)
class Attendance:
    """The consumers of each subscription with the time since when, and the units; by subscription id."""

    consumers: Mapping[int, Mapping[str, int]]
    units: Mapping[int, tuple[Unit, ...]]


class LeaderView(NamedTuple):
    """Who leads a topic, under which term, and since when; without a node nobody does."""

    term: int
    node_id: str | None
    url: str | None
    since_ms: int | None


def attendance(incarnation: int) -> Attendance:
    """Read the consumers and units of all subscriptions of a topic, in two statements."""
    consumers: dict[int, dict[str, int]] = {}
    registered = ConsumerRegistration.objects.filter(subscription__topic_id=incarnation).order_by("name")
    for row in registered:
        since_ms = optional_milliseconds(row.created_at) or 0
        consumers.setdefault(row.subscription_id, {})[row.name] = since_ms
    units: dict[int, list[Unit]] = {}
    rows = Assignment.objects.filter(subscription__topic_id=incarnation)
    for subscription_id, *columns in rows.order_by("segment_id", "bucket").values_list(
        "subscription_id", *Unit._fields
    ):
        units.setdefault(subscription_id, []).append(Unit(*columns))
    return Attendance(consumers, {key: tuple(found) for key, found in units.items()})


def leader_of(incarnation: int) -> LeaderView:
    """Read who leads a topic."""
    lease = ControllerLease.objects.select_related("node").filter(topic_id=incarnation).first()
    if lease is None:
        return LeaderView(0, None, None, None)
    node = lease.node
    since_ms = optional_milliseconds(lease.acquired_at)
    return LeaderView(lease.term, str(node.id) if node else None, node.url if node else None, since_ms)
