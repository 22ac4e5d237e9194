"""The autoscaler around the decision: which topics are due, acting on what is decided, and the journal.

A topic is looked at when something that its decision is made from changed, or at the next instant at which a
guard lets go by the clock alone: what a tick costs follows what changed, not what exists.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.autoscale import Decision, Merge, Rebucket, Split, decide
from scalable.domain.decision import Action, GuardCode
from scalable.domain.errors import ScalableError, SegmentsFixed, TopicNotFound
from scalable.domain.flaps import recent, undoes
from scalable.domain.names import TopicName
from scalable.domain.policy import (
    AutoScalePolicy,
    EffectivePolicy,
    bounded_seconds,
    parse_override,
    validate,
)
from scalable.services.evaluation_inputs import Inputs, inputs_under, read_inputs
from scalable.services.policies import resolve, settings_key
from scalable.services.scaling import OperationView, request_merge, request_rebucket, request_split
from scalable.store import decisions as store
from scalable.store import evaluations, history, loads, topics
from scalable.store.clock import database_now, milliseconds, moment
from scalable.store.decisions import DecisionView
from scalable.store.evaluations import Begun, Settled
from scalable.store.topics import TopicView

logger = logging.getLogger(__name__)

ACTOR = store.AUTOSCALER
TOPICS_PER_BATCH = 50
BATCHES_PER_TICK = 20
TURNED_PER_TICK = 1_000
MIN_INTERVAL_SECONDS = 0.1
SLEEP_MS = 3_600_000
"""A topic of which nothing changes is looked at so often none the less, in case that something was missed."""


@dataclass(slots=True)
class Judged:
    """A topic with the decision about it, and the operations that came of it."""

    inputs: Inputs
    begun: Begun
    decision: Decision
    operations: list[OperationView] = field(default_factory=list)
    refused: list[ScalableError] = field(default_factory=list)
    flaps: int = 0

    @property
    def topic(self) -> TopicView:
        return self.inputs.topic

    @property
    def is_new(self) -> bool:
        """Tell whether the journal should have it: it acts, or says something else than the last one."""
        return bool(self.decision.actions) or self.decision.key != self.begun.decision_key


def evaluate_due_topics() -> list[int]:
    """Evaluate the topics whose time has come and give their incarnations; one's failure stops no other."""
    _wake_where_load_turned()
    evaluations.mark_where_settings_differ(settings_key(), limit=TURNED_PER_TICK)
    evaluated: list[int] = []
    tried: set[int] = set()
    for _ in range(BATCHES_PER_TICK):
        due = evaluations.due(limit=TOPICS_PER_BATCH, besides=tried)
        evaluated += _evaluate_batch(due)
        tried.update(due)  # one that is locked, or fails, must not be found again in place of another
        if len(due) < TOPICS_PER_BATCH:
            break
    return evaluated


def evaluate_if_due(*, incarnation: int) -> bool:
    """Evaluate a topic if something changed since the last time, and tell; a locked one is left to the tick.

    Of many changes at once, the first has it evaluated, and those that come meanwhile once more.
    """
    return evaluations.due_now(incarnation) and bool(_evaluate_batch([incarnation]))


def evaluate_topic(*, incarnation: int) -> Decision | None:
    """Decide about a topic now, act, and keep the decision when it says something new.

    Nothing is decided about topics of the system itself, whose segments are fixed: the answer is None.
    Raises TopicNotFound.
    """
    found = evaluate_topics(incarnations=[incarnation])
    if found:
        return found[0]
    name = topics.find_name(incarnation)
    if name is None:
        raise TopicNotFound(topic=f"#{incarnation}")
    return None


def evaluate_topics(*, incarnations: Collection[int]) -> list[Decision]:
    """Decide about these topics now as `evaluate_topic` does; those that are gone or fixed are left out."""
    return [judged.decision for judged in _evaluate(incarnations, skip_locked=False)]


def preview_decision(*, name: TopicName, override: object = None) -> tuple[Decision, EffectivePolicy]:
    """Tell what would be decided about a topic now, under another policy of its own if one is given.

    Nothing is changed. Raises TopicNotFound, SegmentsFixed; UnknownField, PolicyUnreadable and PolicyInvalid
    as the setting of that policy.
    """
    parsed = None if override is None else parse_override(override)
    topic = topics.read(name)
    if name.tenant == store.SYSTEM_TENANT:
        raise SegmentsFixed(topic=str(name))
    own = topic.auto_scale_policy if parsed is None else parsed
    effective = resolve(topic=own, namespace=topic.namespace_policy)
    if parsed is not None:
        validate(effective.policy)
    now_ms = milliseconds(database_now())
    return decide(inputs_under(topic, effective.policy, now_ms=now_ms).snapshot, now_ms), effective


def list_decisions(*, name: TopicName, limit: int, before: int | None = None) -> list[DecisionView]:
    """List what was decided about a topic, the newest first, behind the one with the id `before`.

    Raises TopicNotFound.
    """
    found = store.newest(name, limit=limit, before=before)
    if not found:
        topics.read(name)
    return found


def _wake_where_load_turned() -> None:
    watermark_ms = loads.newest_watermark_ms()
    age_seconds = (
        float("inf") if watermark_ms is None else (milliseconds(database_now()) - watermark_ms) / 1000
    )
    evaluations.mark_where_load_turned(age_seconds, limit=TURNED_PER_TICK)


def _evaluate_batch(due: Collection[int]) -> list[int]:
    try:
        return [judged.topic.incarnation for judged in _evaluate(due, skip_locked=True)] if due else []
    except Exception:
        logger.exception("The evaluation of %s topics failed: they are evaluated one by one", len(due))
    return [incarnation for incarnation in due if _evaluate_alone(incarnation)]


def _evaluate_alone(incarnation: int) -> bool:
    try:
        return bool(_evaluate([incarnation], skip_locked=True))
    except Exception:
        logger.exception("The evaluation of topic %s failed", incarnation)
        evaluations.postpone(incarnation)
        return False


@transaction.atomic
def _evaluate(incarnations: Collection[int], *, skip_locked: bool) -> list[Judged]:
    """Evaluate topics in one transaction.

    The topics' locks make evaluations of one topic follow one another, and the layout that is judged the one
    that is acted on. The marks are read before all that the decision is made from, of which the policy of
    the namespace comes with the locks; what the last decision said, under them.
    """
    marks = evaluations.read_marks(incarnations)
    views = topics.lock_many(incarnations, skip_locked=skip_locked)
    begun = evaluations.begin(marks)
    now = database_now()
    now_ms = milliseconds(now)
    scaled = [view for view in views if view.incarnation in begun]
    inputs = read_inputs(scaled, now_ms=now_ms, complain=_postpone)
    judged = [_judge(each, begun[each.topic.incarnation], now_ms) for each in inputs]
    for each in judged:
        _act(each)
    _keep([each for each in judged if each.is_new])
    evaluations.settle(_settled(each, now) for each in judged)
    return judged


def _postpone(topic: TopicView, error: Exception) -> None:
    logger.error("Topic %s cannot be evaluated: %s", topic.name, error)
    evaluations.postpone(topic.incarnation)


def _judge(inputs: Inputs, begun: Begun, now_ms: int) -> Judged:
    return Judged(inputs, begun, decide(inputs.snapshot, now_ms))


def _act(judged: Judged) -> None:
    """Ask for what was decided; an action that is refused stops no other, and is told in the journal."""
    for action, fired in zip(judged.decision.actions, judged.decision.fired_by, strict=True):
        try:
            with transaction.atomic():
                operations = _request(judged.topic, action, fired.rule)
        except ScalableError as error:
            logger.warning("Topic %s: %s was refused: %s", judged.topic.name, action, error)
            judged.refused.append(error)
        else:
            judged.operations += operations
            judged.flaps += _is_flap(judged, action)


def _is_flap(judged: Judged, action: Action) -> bool:
    layout, now_ms = judged.topic.layout, judged.decision.at_ms
    window_ms = round(settings.SCALABLE_FLAP_WINDOW_SECONDS * 1000)
    young = recent(layout, action, now_ms=now_ms, window_ms=window_ms)
    if not young:  # the most usual case by far, and it asks nothing of the database
        return False
    parents = history.all_parents(judged.topic.incarnation, young)
    return undoes(layout, action, parents, now_ms=now_ms, window_ms=window_ms)


def _request(topic: TopicView, action: Action, reason: str) -> list[OperationView]:
    match action:
        case Split(segment_id, cuts):
            return [
                request_split(
                    name=topic.name,
                    segment_id=segment_id,
                    boundaries=cuts or None,
                    actor=ACTOR,
                    reason=reason,
                )
            ]
        case Merge(segment_ids):
            return [request_merge(name=topic.name, segment_ids=segment_ids, actor=ACTOR, reason=reason)]
        case Rebucket(segment_ids, bucket_count):
            return [
                request_rebucket(
                    name=topic.name, segment_id=key, bucket_count=bucket_count, actor=ACTOR, reason=reason
                )
                for key in segment_ids
            ]


def _keep(judged: Collection[Judged]) -> None:
    """Write decisions into the journal and tell those who watch the topics."""
    if not judged:
        return
    store.insert_many([_entry(each) for each in judged])
    revisions = topics.raise_revisions([each.topic.incarnation for each in judged])
    for each in judged:
        key = each.topic.incarnation
        announce.publish(announce.TopicChanged(key, str(each.topic.name), revisions[key]))


def _entry(judged: Judged) -> store.Entry:
    return store.Entry(
        incarnation=judged.topic.incarnation,
        decision=judged.decision,
        operation_ids=tuple(operation.operation_id for operation in judged.operations),
        refused=tuple(error.to_json() for error in judged.refused),
        flaps=judged.flaps,
    )


def _settled(judged: Judged, now: datetime) -> Settled:
    decision, policy = judged.decision, judged.inputs.snapshot.policy
    interval = _interval(policy)
    held_by = {guard.code for guard in decision.held_by}
    may_act = GuardCode.DISABLED not in held_by
    is_split_capped = may_act and GuardCode.MAX_SEGMENTS in held_by
    is_merge_capped = may_act and GuardCode.MAX_DAG_DEPTH in held_by
    settled = Settled(
        topic_id=judged.topic.incarnation,
        marks=judged.begun.marks,
        due_at=_next_look(decision),
        not_before=now + interval,
        decision_key=decision.key,
        load_known=judged.inputs.snapshot.load_known,
        stale_after_seconds=judged.inputs.stale_after_seconds,
        wants_tiles=judged.inputs.wants_tiles,
        settings_key=settings_key(),
        is_split_capped=is_split_capped,
        is_merge_capped=is_merge_capped,
        splits_capped=int(is_split_capped),
        merges_capped=int(is_merge_capped),
        flaps=judged.flaps,
        **_counted(judged.operations),
    )
    return replace(settled, due_at=min(settled.due_at, now + interval)) if judged.refused else settled


def _counted(operations: Collection[OperationView]) -> dict[str, int]:
    kinds = [operation.kind.value.lower() for operation in operations]
    return {f"auto_{kind}s": kinds.count(kind) for kind in set(kinds)}


def _interval(policy: AutoScalePolicy) -> timedelta:
    return timedelta(seconds=max(bounded_seconds(policy.auto_scale_interval_seconds), MIN_INTERVAL_SECONDS))


def _next_look(decision: Decision) -> datetime:
    """Give the next instant at which a guard lets go by the clock alone; whatever else changes is marked."""
    instants = (guard.next_eligible_at_ms for guard in decision.held_by)
    later = (at_ms for at_ms in instants if at_ms is not None and at_ms > decision.at_ms)
    return moment(min([*later, decision.at_ms + SLEEP_MS]))
