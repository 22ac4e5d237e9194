"""Rows of the autoscaler: what decisions are made from, and the journal."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.db.models import Count

from scalable.domain.autoscale import Decision
from scalable.domain.names import TopicName
from scalable.models import Decision as DecisionRow
from scalable.models import Operation, Subscription
from scalable.store.clock import milliseconds, moment

SYSTEM_TENANT = "system"
AUTOSCALER = "autoscaler"
"""The actor of operations that the autoscaler asked for."""
KEPT_DECISIONS = 1_000
"""So many decisions of a topic are kept; older ones go, action or not."""

_TRIM = """
DELETE FROM scalable_decision AS old
 USING unnest(%s::bigint[]) AS written(topic_id)
 WHERE old.topic_id = written.topic_id
   AND (old.at, old.id) <= (
        SELECT at, id FROM scalable_decision AS kept
         WHERE kept.topic_id = written.topic_id ORDER BY at DESC, id DESC OFFSET %s LIMIT 1
   )
"""


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision of the autoscaler: action None means that it left the topic alone."""

    decision_id: int
    at_ms: int
    action: str | None
    rule: str
    segment_ids: tuple[int, ...]
    explanation: Mapping[str, Any]
    operation_id: str | None

    def to_json(self) -> dict[str, Any]:
        """Give the decision as REST and frames show it."""
        return {
            "id": self.decision_id,
            "atMs": self.at_ms,
            "action": self.action,
            "rule": self.rule,
            "segmentIds": list(self.segment_ids),
            "explanation": dict(self.explanation),
            "operationId": self.operation_id,
        }


@dataclass(frozen=True, slots=True)
class Consumers:
    """Registered consumers by subscription: of all that are assigned segments, of those that share keys."""

    assigned: dict[str, int] = field(default_factory=dict)
    sharing: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision for the journal, with the operations that came of it and what was refused."""

    incarnation: int
    decision: Decision
    operation_ids: tuple[str, ...] = ()
    refused: tuple[Mapping[str, Any], ...] = ()
    flaps: int = 0


def consumers(incarnations: Collection[int]) -> dict[int, Consumers]:
    """Count the registered consumers of STREAM and CHECKPOINT subscriptions, those in grace too, by topic.

    Those of a QUEUE subscription share segments: they count by their traffic only (PIP-483).
    """
    rows = Subscription.objects.filter(topic_id__in=incarnations).exclude(type="QUEUE")
    found: dict[int, Consumers] = {}
    counted = rows.annotate(count=Count("consumers"))
    for topic_id, name, shares, count in counted.values_list("topic_id", "name", "key_shared", "count"):
        of_topic = found.setdefault(topic_id, Consumers())
        of_topic.assigned[name] = count
        if shares:
            of_topic.sharing[name] = count
    return found


def operations_in_flight(incarnations: Collection[int]) -> dict[int, int]:
    """Count the unfinished operations of the topics that have any."""
    rows = Operation.objects.filter(topic_id__in=incarnations, outcome=None)
    return dict(rows.values_list("topic_id").annotate(count=Count("pk")))


def newest(name: TopicName, *, limit: int, before: int | None = None) -> list[DecisionView]:
    """List a topic's decisions, newest first; ids rise with time, so that `before` is where a page ended."""
    rows = DecisionRow.objects.filter(
        topic__namespace__tenant=name.tenant, topic__namespace__name=name.namespace, topic__name=name.name
    )
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return [_view(row) for row in rows.order_by("-at", "-pk")[:limit]]


def last_of(incarnations: Collection[int]) -> dict[int, DecisionView]:
    """Give the newest decision of each of these topics that has one, by incarnation."""
    rows = DecisionRow.objects.filter(topic_id__in=incarnations).order_by("topic_id", "-at", "-pk")
    return {row.topic_id: _view(row) for row in rows.distinct("topic_id")}


def insert_many(entries: Sequence[Entry]) -> None:
    """Add decisions to the journal and drop what has become too old; the caller holds the topics' locks."""
    DecisionRow.objects.bulk_create([_row(entry) for entry in entries])
    with connection.cursor() as cursor:
        cursor.execute(_TRIM, [[entry.incarnation for entry in entries], KEPT_DECISIONS])


def _row(entry: Entry) -> DecisionRow:
    decision = entry.decision
    more = {
        "operationIds": list(entry.operation_ids),
        "refused": [dict(each) for each in entry.refused],
        "flaps": entry.flaps,
    }
    return DecisionRow(
        topic_id=entry.incarnation,
        at=moment(decision.at_ms),
        action=decision.kind,
        rule=decision.rule,
        segment_ids=list(decision.segment_ids),
        explanation={**decision.explanation, **more},
        operation_id=entry.operation_ids[0] if entry.operation_ids else None,
    )


def _view(row: DecisionRow) -> DecisionView:
    return DecisionView(
        decision_id=row.pk,
        at_ms=milliseconds(row.at),
        action=row.action,
        rule=row.rule,
        segment_ids=tuple(row.segment_ids),
        explanation=row.explanation,
        operation_id=None if row.operation_id is None else str(row.operation_id),
    )
