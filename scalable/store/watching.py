"""What a watcher of a topic sees, as of one moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.expressions import RawSQL

from scalable.domain.names import TopicName
from scalable.domain.segment import Segment
from scalable.models import Segment as SegmentRow
from scalable.models import Topic as TopicRow
from scalable.store.segment_rows import read_segments as read_rows

BEFORE_ALL_EPOCHS = -1

_HEAD = """
SELECT namespace.tenant, namespace.name, topic.name, topic.epoch, topic.revision, topic.next_segment_id,
       coalesce(lease.term, 0), node.url,
       (SELECT count(*) FROM scalable_segment AS segment WHERE segment.topic_id = topic.id)
  FROM scalable_topic AS topic
  JOIN scalable_namespace AS namespace ON namespace.id = topic.namespace_id
  LEFT JOIN scalable_controllerlease AS lease ON lease.topic_id = topic.id
  LEFT JOIN scalable_node AS node
    ON node.id = lease.node_id AND node.heartbeat_at > clock_timestamp() - make_interval(secs => %s)
 WHERE topic.id = %s
"""

_LINE = """
WITH RECURSIVE line AS (
    SELECT segment_id, child_ids FROM scalable_segment
     WHERE topic_id = %s AND segment_id = %s
    UNION
    SELECT child.segment_id, child.child_ids
      FROM line JOIN scalable_segment AS child
        ON child.topic_id = %s AND child.segment_id = ANY(line.child_ids)
)
SELECT segment_id FROM line
"""


@dataclass(frozen=True, slots=True)
class TopicHead:
    """The versions of a topic, who leads it, and how many segments it keeps."""

    name: TopicName
    epoch: int
    revision: int
    next_segment_id: int
    term: int
    controller_url: str | None
    segment_count: int


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
    """Versions and leader of a topic by one statement, or None once it is deleted."""
    with connection.cursor() as cursor:
        cursor.execute(_HEAD, [node_timeout_seconds, incarnation])
        row: tuple[Any, ...] | None = cursor.fetchone()
    return None if row is None else TopicHead(TopicName(*row[:3]), *row[3:])


def read_segments(incarnation: int, *, since_epoch: int = BEFORE_ALL_EPOCHS) -> list[Segment]:
    """The segments of a topic that were made or sealed after an epoch, by id; without one, all."""
    later = Q(created_epoch__gt=since_epoch) | Q(sealed_epoch__gt=since_epoch)
    rows = SegmentRow.objects.filter(later, topic_id=incarnation).order_by("segment_id")
    return [segment for segment, _ in read_rows(rows)]


def read_line(incarnation: int, segment_id: int, *, limit: int) -> tuple[int, list[Segment]]:
    """A segment and what came of it, by id, with the epoch of the topic; all of one moment.

    Epoch 0 and nothing when it is not there.
    """
    line = RawSQL(_LINE, (incarnation, segment_id, incarnation))
    rows = SegmentRow.objects.filter(topic_id=incarnation, segment_id__in=line).order_by("segment_id")
    found = read_rows(rows[:limit], "topic__epoch")
    return found[0][1][0] if found else 0, [segment for segment, _ in found]


def read_policies(incarnation: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The policy overrides of a topic and of its namespace."""
    rows = TopicRow.objects.filter(pk=incarnation)
    return rows.values_list("auto_scale_policy", "namespace__auto_scale_policy").get()
