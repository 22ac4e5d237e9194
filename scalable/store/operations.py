"""Rows of operations: their plans, their claims on segments, and the lease of whoever drives them.

The fence of a driver is the lease's token, in the WHERE of every row that it writes. Expiry, read from the
database's clock, only permits a takeover.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Greatest

from scalable.domain.errors import LeaseLost, OperationNotFound
from scalable.domain.layout import ReshapePlan
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.domain.setbacks import REMEMBERED_SECONDS, Setback
from scalable.models import Operation as OperationRow
from scalable.models import OperationClaim
from scalable.store import evaluations
from scalable.store.clock import (
    ClockTimestamp,
    database_now,
    milliseconds,
    optional_milliseconds,
    seconds_from_now,
)


@dataclass(frozen=True, slots=True)
class OperationView:
    """A split or merge: what it will do, how far it got, who asked for it and why.

    `timings` are the milliseconds that each phase took; PLANNED is the time until somebody began to drive it.
    """

    operation_id: str
    kind: OperationKind
    topic: TopicName
    incarnation: int
    plan: ReshapePlan
    phase: Phase
    outcome: Outcome | None
    results: Mapping[str, Any]
    error: Mapping[str, Any] | None
    actor: str
    reason: str
    epoch: int | None
    attempts: int
    timings: Mapping[str, float]
    created_at_ms: int
    finished_at_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Give the operation as REST and frames show it."""
        return {
            "operationId": self.operation_id,
            "kind": self.kind.value,
            "topic": str(self.topic),
            "plan": self.plan.to_json(),
            "phase": self.phase.value,
            "outcome": None if self.outcome is None else self.outcome.value,
            "error": None if self.error is None else dict(self.error),
            "actor": self.actor,
            "reason": self.reason,
            "epoch": self.epoch,
            "attempts": self.attempts,
            "timings": {phase: self.timings[phase] for phase in Phase if phase in self.timings},
            "createdAtMs": self.created_at_ms,
            "finishedAtMs": self.finished_at_ms,
        }


@dataclass(frozen=True, slots=True)
class OperationLease:
    """The right to drive an operation, as long as nobody has taken a higher token."""

    operation_id: str
    token: int

    @property
    def lost(self) -> LeaseLost:
        """Give the error of a driver that was superseded."""
        return LeaseLost(resource=f"operation {self.operation_id}", token=self.token)


# One statement, since every operation waits for it. A locked row is being written by its present driver.
_TAKE_LEASE = """
UPDATE scalable_operation SET
    lease_holder = %(runner)s,
    lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    attempts = attempts + 1,
    timings = CASE WHEN attempts > 0 THEN timings ELSE jsonb_build_object(
        'PLANNED', round(extract(epoch FROM clock_timestamp() - created_at) * 1000, 3)) END
WHERE id = (
    SELECT id FROM scalable_operation
    WHERE id = %(key)s AND outcome IS NULL
      AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING lease_token
"""

_SETBACKS = """
SELECT operation.topic_id, operation.kind, parent.id::bigint,
       (array_agg(operation.outcome ORDER BY operation.finished_at DESC))[1],
       count(*), max(operation.finished_at)
  FROM scalable_operation AS operation
 CROSS JOIN LATERAL jsonb_array_elements_text(operation.plan -> 'parentIds') AS parent(id)
 WHERE operation.topic_id = ANY(%s) AND operation.actor = %s AND operation.outcome IN ('FAILED', 'ABORTED')
   AND operation.finished_at > clock_timestamp() - make_interval(secs => %s)
 GROUP BY operation.topic_id, operation.kind, parent.id
"""

# Reading.


def read(operation_id: str) -> OperationView:
    """Read an operation; raises OperationNotFound."""
    return _one(_rows().filter(pk=_key(operation_id)), operation_id)


def lock(operation_id: str, *, incarnation: int) -> OperationView:
    """Lock an operation of a topic whose lock the caller holds; raises OperationNotFound."""
    rows = _rows().filter(pk=_key(operation_id), topic_id=incarnation)
    return _one(rows.select_for_update(no_key=True, of=("self",)), operation_id)


def of_topic(name: TopicName, operation_id: str) -> OperationView:
    """Read an operation of a topic; raises OperationNotFound."""
    return _one(_of_topic(name).filter(pk=_key(operation_id)), operation_id)


def newest(name: TopicName, *, limit: int, unfinished_only: bool) -> list[OperationView]:
    """List a topic's operations, newest first."""
    rows = _of_topic(name)
    if unfinished_only:
        rows = rows.filter(outcome=None)
    return [_view(row) for row in rows.order_by("-created_at", "-pk")[:limit]]


def unfinished(incarnations: Collection[int]) -> list[OperationView]:
    """List the unfinished operations of these topics."""
    return [
        _view(row) for row in _rows().filter(topic_id__in=incarnations, outcome=None).order_by("created_at")
    ]


def claiming(incarnation: int, segment_ids: Collection[int]) -> dict[int, OperationView]:
    """Give the unfinished operation of each of these segments that has one."""
    claims = OperationClaim.objects.filter(topic_id=incarnation, segment_id__in=segment_ids)
    keys = dict(claims.values_list("segment_id", "operation_id"))
    operations = {row.pk: _view(row) for row in _rows().filter(pk__in=set(keys.values()))}
    return {segment_id: operations[key] for segment_id, key in sorted(keys.items())}


def setbacks(incarnations: Collection[int], *, actor: str) -> dict[int, dict[tuple[str, int], Setback]]:
    """Give what an actor asked for in vain of late, by topic, by kind and segment."""
    found: dict[int, dict[tuple[str, int], Setback]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_SETBACKS, [list(incarnations), actor, REMEMBERED_SECONDS])
        for topic_id, kind, segment_id, outcome, count, at in cursor.fetchall():
            setback = Setback(Outcome(outcome), count, milliseconds(at))
            found.setdefault(topic_id, {})[kind, segment_id] = setback
    return found


def waiting_for_a_runner(*, idle_seconds: float, limit: int) -> list[str]:
    """List unfinished operations whose lease ran out, or that nobody leased for a while, oldest first."""
    leasable = Q(lease_expires_at__lte=ClockTimestamp()) | Q(
        lease_expires_at=None, created_at__lte=seconds_from_now(-idle_seconds)
    )
    rows = OperationRow.objects.filter(leasable, outcome=None).order_by("created_at")
    return [str(key) for key in rows.values_list("pk", flat=True)[:limit]]


# Writing.


def insert(
    *, incarnation: int, topic: TopicName, plan: ReshapePlan, actor: str, reason: str
) -> OperationView:
    """Write down a plan and claim its parents; the caller holds the topic's lock."""
    row = OperationRow.objects.create(
        id=uuid4(),
        topic_id=incarnation,
        kind=plan.kind.value,
        plan=plan.to_json(),
        phase=Phase.PLANNED.value,
        actor=actor,
        reason=reason,
        created_at=database_now(),
    )
    OperationClaim.objects.bulk_create(
        OperationClaim(operation=row, topic_id=incarnation, segment_id=segment_id)
        for segment_id in plan.parent_ids
    )
    return _view(row, topic)


def take_lease(operation_id: str, *, runner: str, seconds: float) -> OperationLease | None:
    """Take the lease with a higher token; None when the operation is finished, held, or not due."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_LEASE, {"key": _key(operation_id), "runner": runner, "seconds": seconds})
        row: tuple[int] | None = cursor.fetchone()
    return None if row is None else OperationLease(operation_id, row[0])


def renew(lease: OperationLease, *, seconds: float) -> None:
    """Put off the expiry of a lease that is still ours; raises LeaseLost."""
    _write(lease, lease_expires_at=seconds_from_now(seconds))


def advance(lease: OperationLease, operation: OperationView, *, seconds: float) -> None:
    """Record the operation's present phase and what it found out, and renew the lease; raises LeaseLost."""
    _write(
        lease,
        phase=operation.phase.value,
        results=dict(operation.results),
        timings=dict(operation.timings),
        epoch=operation.epoch,
        error=None,
        lease_expires_at=seconds_from_now(seconds),
    )


def succeed(lease: OperationLease, operation: OperationView) -> None:
    """Record the last phase and the success, and give up the claims; raises LeaseLost."""
    _write(
        lease,
        phase=operation.phase.value,
        timings=dict(operation.timings),
        **_ending(Outcome.SUCCEEDED, None),
    )
    _give_up_claims(lease.operation_id, succeeded=True)


def fail(lease: OperationLease, error: Mapping[str, Any]) -> None:
    """Record that a driven operation failed, and give up its claims; raises LeaseLost."""
    _write(lease, **_ending(Outcome.FAILED, error))
    _give_up_claims(lease.operation_id, succeeded=False)


def abort(operation_id: str) -> None:
    """End a locked operation as aborted, give up its claims, and fence off whoever drives it."""
    row = OperationRow.objects.filter(pk=operation_id)
    token = row.values_list("lease_token", flat=True).get()
    row.update(lease_token=token + 1, **_ending(Outcome.ABORTED, None))
    _give_up_claims(operation_id, succeeded=False)


def _give_up_claims(operation_id: str, *, succeeded: bool) -> None:
    """Free an ended operation's segments; what the autoscaler held back for it, it looks at again."""
    OperationClaim.objects.filter(operation_id=operation_id).delete()
    evaluations.mark_of_operation(operation_id, succeeded=succeeded)


def postpone(lease: OperationLease, *, error: Mapping[str, Any], seconds: float) -> None:
    """Give the lease back with the error that stopped us, not to be taken for a while; raises LeaseLost."""
    _write(lease, error=dict(error), lease_holder=None, lease_expires_at=seconds_from_now(seconds))


def make_due(operation_id: str) -> None:
    """Let an unfinished operation that nobody drives be taken at once."""
    rows = OperationRow.objects.filter(pk=_key(operation_id), outcome=None, lease_holder=None)
    rows.update(lease_expires_at=None)


def _ending(outcome: Outcome, error: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "outcome": outcome.value,
        "error": None if error is None else dict(error),
        "finished_at": Greatest(ClockTimestamp(), "created_at"),
        "lease_holder": None,
        "lease_expires_at": None,
    }


def _write(lease: OperationLease, **columns: Any) -> None:
    held = OperationRow.objects.filter(pk=lease.operation_id, lease_token=lease.token, outcome=None)
    if not held.update(**columns):
        raise lease.lost


# Rows and values.


def _key(operation_id: str) -> UUID:
    try:
        return UUID(operation_id)
    except ValueError as error:
        raise OperationNotFound(operation_id=operation_id) from error


def _rows() -> QuerySet[OperationRow]:
    return OperationRow.objects.select_related("topic__namespace")


def _of_topic(name: TopicName) -> QuerySet[OperationRow]:
    return _rows().filter(
        topic__namespace__tenant=name.tenant, topic__namespace__name=name.namespace, topic__name=name.name
    )


def _one(rows: QuerySet[OperationRow], operation_id: str) -> OperationView:
    row = rows.first()
    if row is None:
        raise OperationNotFound(operation_id=operation_id)
    return _view(row)


def _view(row: OperationRow, topic: TopicName | None = None) -> OperationView:
    if topic is None:
        topic = TopicName(row.topic.namespace.tenant, row.topic.namespace.name, row.topic.name)
    return OperationView(
        operation_id=str(row.pk),
        kind=OperationKind(row.kind),
        topic=topic,
        incarnation=row.topic_id,
        plan=ReshapePlan.from_json(row.plan),
        phase=Phase(row.phase),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        results=row.results,
        error=row.error,
        actor=row.actor,
        reason=row.reason,
        epoch=row.epoch,
        attempts=row.attempts,
        timings=row.timings,
        created_at_ms=milliseconds(row.created_at),
        finished_at_ms=optional_milliseconds(row.finished_at),
    )
