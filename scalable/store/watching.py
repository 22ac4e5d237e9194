"""What a watcher of a topic sees, read in one snapshot of the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from scalable.domain.names import TopicName
from scalable.domain.segment import Segment
from scalable.models import Segment as SegmentRow
from scalable.models import Topic as TopicRow
from scalable.store import leases
from scalable.store.topics import segment_value


@dataclass(frozen=True, slots=True)
class TopicHead:
    """The versions of a topic, who leads it, and the policy overrides that rule it."""

    incarnation: int
    name: TopicName
    epoch: int
    revision: int
    next_segment_id: int
    term: int
    controller_url: str | None
    topic_policy: dict[str, object] | None
    namespace_policy: dict[str, object] | None


@contextmanager
def one_snapshot() -> Iterator[None]:
    """Read several things as of one moment; must be the outermost transaction."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def incarnation_of(name: TopicName) -> int | None:
    """The present life of a topic's name, or None."""
    rows = TopicRow.objects.filter(
        namespace__tenant=name.tenant, namespace__name=name.namespace, name=name.name
    )
    return rows.values_list("pk", flat=True).first()


def read_head(incarnation: int, *, node_timeout_seconds: float) -> TopicHead | None:
    """Versions, leader and policies of a topic, or None once it is deleted."""
    row = TopicRow.objects.select_related("namespace").filter(pk=incarnation).first()
    if row is None:
        return None
    lease = leases.read(incarnation, timeout_seconds=node_timeout_seconds)
    return TopicHead(
        incarnation=incarnation,
        name=TopicName(row.namespace.tenant, row.namespace.name, row.name),
        epoch=row.epoch,
        revision=row.revision,
        next_segment_id=row.next_segment_id,
        term=lease.term,
        controller_url=lease.url if lease.alive else None,
        topic_policy=row.auto_scale_policy,
        namespace_policy=row.namespace.auto_scale_policy,
    )


def read_segments(incarnation: int) -> list[Segment]:
    """The DAG of a topic by segment id."""
    rows = SegmentRow.objects.filter(topic_id=incarnation).order_by("segment_id")
    return [segment_value(row) for row in rows]
