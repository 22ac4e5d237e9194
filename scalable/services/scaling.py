"""Split, merge and rebucket: the requests, the questions, and the way back before the point of no return."""

from collections.abc import Callable, Sequence

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain import buckets
from scalable.domain.errors import (
    OperationNotAbortable,
    OperationNotRetriable,
    SegmentClaimed,
    SegmentsFixed,
)
from scalable.domain.layout import Layout, ReshapePlan
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind, Outcome, Phase, may_abort
from scalable.services import auditing
from scalable.services.stores import delete_stores
from scalable.store import operations as store
from scalable.store import topics
from scalable.store.decisions import SYSTEM_TENANT
from scalable.store.operations import OperationView
from scalable.store.topics import TopicView

__all__ = [
    "OperationView",
    "abort_operation",
    "get_operation",
    "list_operations",
    "request_merge",
    "request_rebucket",
    "request_split",
    "retry_operation",
]

MANUAL = "manual"
Planner = Callable[[Layout], ReshapePlan]
"""Plans a change on a layout, or raises why it cannot be."""


def request_split(
    *,
    name: TopicName,
    segment_id: int,
    boundaries: Sequence[int] | None = None,
    expected_epoch: int | None = None,
    actor: str,
    reason: str = MANUAL,
) -> OperationView:
    """Write down a split at the midpoint, or before each of the `boundaries`, or join the same one under way.

    Raises TopicNotFound, SegmentsFixed, EpochMoved, SegmentNotFound, SegmentNotActive, SegmentTooNarrow,
    TooManyParts, InvalidBoundaries, SegmentClaimed.
    """
    return _request(
        name=name,
        plan_on=planner_of_split(segment_id, boundaries),
        expected_epoch=expected_epoch,
        actor=actor,
        reason=reason,
    )


def request_merge(
    *,
    name: TopicName,
    segment_ids: Sequence[int],
    expected_epoch: int | None = None,
    actor: str,
    reason: str = MANUAL,
) -> OperationView:
    """Write down a merge of two or more neighbours, or join the same one under way.

    Raises TopicNotFound, SegmentsFixed, EpochMoved, SegmentNotFound, SegmentNotActive, SegmentsNotAdjacent,
    TooManyParts, SegmentClaimed.
    """
    return _request(
        name=name,
        plan_on=planner_of_merge(segment_ids),
        expected_epoch=expected_epoch,
        actor=actor,
        reason=reason,
    )


def request_rebucket(
    *,
    name: TopicName,
    segment_id: int,
    bucket_count: int,
    expected_epoch: int | None = None,
    actor: str,
    reason: str = MANUAL,
) -> OperationView:
    """Write down a rebucket, which replaces a segment by one of the same range, or join the same one.

    Raises TopicNotFound, SegmentsFixed, EpochMoved, InvalidBucketCount, SegmentNotFound, SegmentNotActive,
    BucketCountUnchanged, TooManyBuckets, SegmentClaimed.
    """
    return _request(
        name=name,
        plan_on=planner_of_rebucket(segment_id, bucket_count),
        expected_epoch=expected_epoch,
        actor=actor,
        reason=reason,
    )


def planner_of_split(segment_id: int, boundaries: Sequence[int] | None = None) -> Planner:
    """Give what plans a split on a layout."""
    return lambda layout: layout.plan_split(segment_id, boundaries)


def planner_of_merge(segment_ids: Sequence[int]) -> Planner:
    """Give what plans a merge on a layout, with this installation's limit of entry buckets."""
    limit = settings.SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT
    return lambda layout: layout.plan_merge(segment_ids, max_buckets=limit)


def planner_of_rebucket(segment_id: int, bucket_count: int) -> Planner:
    """Give what plans a rebucket on a layout, with this installation's limit of entry buckets."""
    limit = settings.SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT
    return lambda layout: layout.plan_rebucket(segment_id, bucket_count, max_buckets=limit)


def retry_operation(*, name: TopicName, operation_id: str, actor: str) -> OperationView:
    """Ask anew for what failed or was aborted, on the layout as it is; one that is under way is hurried on.

    Raises TopicNotFound, OperationNotFound, OperationNotRetriable for one that succeeded, and what the
    request itself raises now.
    """
    operation = store.of_topic(name, operation_id)
    if operation.outcome is Outcome.SUCCEEDED:
        raise OperationNotRetriable(operation_id=operation_id, problem="it succeeded")
    if operation.outcome is None:
        with transaction.atomic():
            store.make_due(operation_id)
            announce.publish(announce.OperationRequested(operation_id))
        return operation
    return _request(
        name=name,
        plan_on=_planner_of(operation.plan),
        expected_epoch=None,
        actor=actor,
        reason=f"retry of {operation_id}",
    )


def _planner_of(plan: ReshapePlan) -> Planner:
    if plan.kind is OperationKind.MERGE:
        return planner_of_merge(plan.parent_ids)
    (parent_id,) = plan.parent_ids
    if plan.kind is OperationKind.REBUCKET:
        return planner_of_rebucket(parent_id, buckets.bucket_count(plan.children[0].entry_bucket_splits))
    return planner_of_split(parent_id, [child.hash_range.start for child in plan.children[1:]])


def _request(
    *,
    name: TopicName,
    plan_on: Planner,
    expected_epoch: int | None,
    actor: str,
    reason: str,
) -> OperationView:
    with transaction.atomic():
        topic = topics.lock(name)
        if name.tenant == SYSTEM_TENANT:
            raise SegmentsFixed(topic=str(name))
        topic.check_epoch(expected_epoch)
        plan = plan_on(topic.layout)
        return _running(topic, plan) or _begin(topic, plan, actor=actor, reason=reason)


def _running(topic: TopicView, plan: ReshapePlan) -> OperationView | None:
    """Give the unfinished operation that does the same; raises SegmentClaimed for one that does not."""
    claiming = store.claiming(topic.incarnation, plan.parent_ids)
    for segment_id, operation in claiming.items():
        if not operation.plan.same_request_as(plan):
            raise SegmentClaimed(segment_id=segment_id, operation_id=operation.operation_id)
    return next(iter(claiming.values()), None)


def _begin(topic: TopicView, plan: ReshapePlan, *, actor: str, reason: str) -> OperationView:
    """Burn the children's ids for good: an abort leaves a gap, and no store is taken for another."""
    if plan.kind is OperationKind.REBUCKET:
        topic.layout.check_buckets(plan, _under_way(topic))
    revision = topics.reserve(topic, topic.layout.reserve(plan))
    operation = store.insert(
        incarnation=topic.incarnation, topic=topic.name, plan=plan, actor=actor, reason=reason
    )
    auditing.record(
        f"operation.{operation.kind.value.lower()}",
        topic.name,
        actor=actor,
        after={"operationId": operation.operation_id, "reason": reason, **plan.to_json()},
    )
    announce.publish(announce.OperationRequested(operation.operation_id))
    announce_step(operation, revision)
    return operation


def _under_way(topic: TopicView) -> list[ReshapePlan]:
    """Give what is to replace active segments of the topic and did not yet."""
    claiming = store.claiming(topic.incarnation, [segment.segment_id for segment in topic.layout.active])
    return list({operation.operation_id: operation.plan for operation in claiming.values()}.values())


def announce_step(operation: OperationView, revision: int) -> None:
    """Tell those who watch the topic and those who wait for the operation that it moved."""
    announce.publish(announce.OperationChanged(operation.operation_id, operation.incarnation))
    if operation.phase is Phase.COMMITTED:  # the one step that those who watch the layout alone can see
        announce.publish(announce.TopicChanged(operation.incarnation, str(operation.topic), revision))


def get_operation(*, name: TopicName, operation_id: str) -> OperationView:
    """Read an operation of a topic; raises OperationNotFound."""
    return store.of_topic(name, operation_id)


def list_operations(*, name: TopicName, limit: int, unfinished_only: bool = False) -> list[OperationView]:
    """List a topic's operations, newest first; raises TopicNotFound."""
    operations = store.newest(name, limit=limit, unfinished_only=unfinished_only)
    if not operations:
        topics.read(name)
    return operations


def abort_operation(*, name: TopicName, operation_id: str, actor: str) -> OperationView:
    """End an operation that has not terminated anything yet; one that was aborted stays so.

    Raises TopicNotFound, OperationNotFound, OperationNotAbortable.
    """
    with transaction.atomic():
        topic = topics.lock(name)
        operation = store.lock(operation_id, incarnation=topic.incarnation)
        if operation.outcome is not Outcome.ABORTED:
            if operation.outcome is not None or not may_abort(operation.phase):
                raise OperationNotAbortable(operation_id=operation_id, phase=operation.phase.value)
            store.abort(operation_id)
            auditing.record("operation.abort", name, actor=actor, after={"operationId": operation_id})
            announce_step(operation, topics.raise_revision(topic.incarnation))
    delete_children(operation)
    return store.read(operation_id)


def delete_children(operation: OperationView) -> None:
    """Remove the stores that an operation made for children that will never be.

    What a fenced-off driver makes after this, it makes in vain: the sweep of orphans finds it.
    """
    delete_stores(operation.incarnation, operation.plan.child_ids)
