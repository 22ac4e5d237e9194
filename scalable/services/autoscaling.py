"""The autoscaler around the decision: which topics are due, what is known of them, and acting on it."""

import logging
from datetime import timedelta

from django.db import transaction

from scalable import announce
from scalable.domain.autoscale import Decision, Merge, Snapshot, Split, decide
from scalable.domain.errors import TopicNotFound
from scalable.domain.policy import AutoScalePolicy, resolve
from scalable.services.loads import loads_for_decision
from scalable.services.scaling import OperationView, request_merge, request_split
from scalable.store import decisions as store
from scalable.store import topics
from scalable.store.clock import database_now, milliseconds
from scalable.store.decisions import DueTopic
from scalable.store.topics import TopicView

logger = logging.getLogger(__name__)

ACTOR = "autoscaler"
MAX_TOPICS_PER_TICK = 200
MIN_INTERVAL_SECONDS = 0.1


def evaluate_due_topics() -> list[int]:
    """Evaluate the topics whose time has come and give their incarnations; one's failure stops no other.

    The next time is committed before the evaluation, so that a topic on which it fails waits like every other
    and does not hold up the rest.
    """
    evaluated = _schedule_due()
    for incarnation in evaluated:
        try:
            evaluate_topic(incarnation=incarnation)
        except TopicNotFound:
            logger.info("Topic %s was deleted before its evaluation", incarnation)
        except Exception:
            logger.exception("The evaluation of topic %s failed", incarnation)
    return evaluated


def _schedule_due() -> list[int]:
    """Set the next evaluation of due topics; one that had none yet is first evaluated an interval later."""
    with transaction.atomic():
        due = store.lock_due(limit=MAX_TOPICS_PER_TICK)
        now = database_now()
        store.schedule({topic.incarnation: now + _interval(topic) for topic in due})
    return [topic.incarnation for topic in due if topic.scheduled]


def _interval(topic: DueTopic) -> timedelta:
    """Give a topic's own interval; a stored policy that cannot be read must not hold up the other topics."""
    try:
        policy = resolve(topic=topic.topic_policy, namespace=topic.namespace_policy).policy
        return timedelta(seconds=max(policy.auto_scale_interval_seconds, MIN_INTERVAL_SECONDS))
    except (TypeError, ValueError, ArithmeticError):
        logger.exception("The policy of topic %s cannot be read", topic.incarnation)
        return timedelta(seconds=AutoScalePolicy().auto_scale_interval_seconds)


@transaction.atomic
def evaluate_topic(*, incarnation: int) -> Decision | None:
    """Decide about a topic now, act, and keep the decision when it says something new.

    Nothing is decided about topics of the system itself, whose segments are fixed: the answer is None.
    The topic's lock makes evaluations of one topic follow one another, and the layout that is judged the one
    that is acted on. Raises TopicNotFound.
    """
    topic = topics.lock_incarnation(incarnation)
    if topic.name.tenant == store.SYSTEM_TENANT:
        return None
    now_ms = milliseconds(database_now())
    decision = decide(_snapshot(topic, now_ms), now_ms)
    operation = _act(topic, decision)
    if operation is not None or decision.key != store.last_key(incarnation):
        _keep(topic, decision, operation)
    return decision


def _snapshot(topic: TopicView, now_ms: int) -> Snapshot:
    policy: AutoScalePolicy = resolve(topic=topic.auto_scale_policy, namespace=topic.namespace_policy).policy
    loads = loads_for_decision(
        incarnation=topic.incarnation, rate_window_seconds=policy.rate_window_seconds, now_ms=now_ms
    )
    return Snapshot(
        layout=topic.layout,
        policy=policy,
        loads=loads.loads,
        load_known=loads.known,
        stream_consumers=store.stream_consumers(topic.incarnation),
        last_split_at_ms=topic.last_split_at_ms,
        last_merge_at_ms=topic.last_merge_at_ms,
        operations_in_flight=store.operations_in_flight(topic.incarnation),
    )


def _act(topic: TopicView, decision: Decision) -> OperationView | None:
    match decision.action:
        case Split(segment_id):
            return request_split(name=topic.name, segment_id=segment_id, actor=ACTOR, reason=decision.rule)
        case Merge(segment_ids):
            return request_merge(name=topic.name, segment_ids=segment_ids, actor=ACTOR, reason=decision.rule)
        case _:
            return None


def _keep(topic: TopicView, decision: Decision, operation: OperationView | None) -> None:
    store.insert(topic.incarnation, decision, operation_id=operation.operation_id if operation else None)
    revision = topics.raise_revision(topic.incarnation)
    announce.publish(announce.TopicChanged(topic.incarnation, str(topic.name), revision))
