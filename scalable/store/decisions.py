"""Rows of the autoscaler: which topics are due, what a decision is made from, and the journal."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q

from scalable.domain.autoscale import Decision
from scalable.domain.names import TopicName
from scalable.models import Decision as DecisionRow
from scalable.models import Operation, Subscription
from scalable.models import Topic as TopicRow
from scalable.store.clock import ClockTimestamp, milliseconds, moment

SYSTEM_TENANT = "system"
KEPT_DECISIONS = 1_000
"""So many decisions of a topic are kept; older ones go, action or not."""


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision of the autoscaler: action None means that it left the topic alone."""

    at_ms: int
    action: str | None
    rule: str
    segment_ids: tuple[int, ...]
    explanation: Mapping[str, Any]
    operation_id: str | None

    def to_json(self) -> dict[str, Any]:
        """Give the decision as REST and frames show it."""
        return {
            "atMs": self.at_ms,
            "action": self.action,
            "rule": self.rule,
            "segmentIds": list(self.segment_ids),
            "explanation": dict(self.explanation),
            "operationId": self.operation_id,
        }


@dataclass(frozen=True, slots=True)
class DueTopic:
    """A topic whose evaluation may be due, with the policy overrides that give its interval."""

    incarnation: int
    scheduled: bool
    topic_policy: dict[str, Any] | None
    namespace_policy: dict[str, Any] | None


def lock_due(*, limit: int) -> list[DueTopic]:
    """Lock topics whose next evaluation has come, or that have none yet; locked ones are passed over."""
    due = Q(next_evaluation_at=None) | Q(next_evaluation_at__lte=ClockTimestamp())
    rows = (
        TopicRow.objects.filter(due)
        .exclude(namespace__tenant=SYSTEM_TENANT)
        .select_related("namespace")
        .select_for_update(no_key=True, skip_locked=True, of=("self",))
        .order_by(F("next_evaluation_at").asc(nulls_first=True))
    )
    return [
        DueTopic(
            row.pk, row.next_evaluation_at is not None, row.auto_scale_policy, row.namespace.auto_scale_policy
        )
        for row in rows[:limit]
    ]


def schedule(next_evaluations: Mapping[int, datetime]) -> None:
    """Set when locked topics are evaluated next."""
    rows = [TopicRow(pk=key, next_evaluation_at=at) for key, at in next_evaluations.items()]
    TopicRow.objects.bulk_update(rows, ["next_evaluation_at"])


def stream_consumers(incarnation: int) -> dict[str, int]:
    """Count the registered consumers of each STREAM subscription, those in their grace period too."""
    rows = Subscription.objects.filter(topic_id=incarnation, type="STREAM")
    return dict(rows.annotate(count=Count("consumers")).values_list("name", "count"))


def operations_in_flight(incarnation: int) -> int:
    """Count a topic's unfinished operations."""
    return Operation.objects.filter(topic_id=incarnation, outcome=None).count()


def newest(name: TopicName, *, limit: int) -> list[DecisionView]:
    """List a topic's decisions, newest first."""
    rows = DecisionRow.objects.filter(
        topic__namespace__tenant=name.tenant, topic__namespace__name=name.namespace, topic__name=name.name
    )
    return [_view(row) for row in rows.order_by("-at", "-pk")[:limit]]


def last_of(incarnations: Collection[int]) -> dict[int, DecisionView]:
    """Give the newest decision of each of these topics that has one, by incarnation."""
    rows = DecisionRow.objects.filter(topic_id__in=incarnations).order_by("topic_id", "-at", "-pk")
    return {row.topic_id: _view(row) for row in rows.distinct("topic_id")}


def last_key(incarnation: int) -> str | None:
    """Give what the newest decision of a topic amounts to, for comparison with the next one."""
    row = DecisionRow.objects.filter(topic_id=incarnation).order_by("-at", "-pk").first()
    return None if row is None else row.explanation.get("key")


def insert(incarnation: int, decision: Decision, *, operation_id: str | None) -> None:
    """Add a decision to the journal and drop what has become too old; the caller holds the topic's lock."""
    DecisionRow.objects.create(
        topic_id=incarnation,
        at=moment(decision.at_ms),
        action=decision.kind,
        rule=decision.rule,
        segment_ids=list(decision.segment_ids),
        explanation=decision.explanation,
        operation_id=operation_id,
    )
    old: Sequence[int] = list(
        DecisionRow.objects.filter(topic_id=incarnation)
        .order_by("-at", "-pk")
        .values_list("pk", flat=True)[KEPT_DECISIONS : KEPT_DECISIONS + 100]
    )
    if old:
        DecisionRow.objects.filter(pk__in=old).delete()


def _view(row: DecisionRow) -> DecisionView:
    return DecisionView(
        at_ms=milliseconds(row.at),
        action=row.action,
        rule=row.rule,
        segment_ids=tuple(row.segment_ids),
        explanation=row.explanation,
        operation_id=None if row.operation_id is None else str(row.operation_id),
    )
