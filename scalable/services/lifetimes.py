"""How long messages and sessions are kept: settings of topics and namespaces, and which of them hold."""

from dataclasses import dataclass
from math import isfinite

from django.conf import settings
from django.db import transaction

from scalable.domain.errors import InvalidParameter
from scalable.domain.lifetimes import FOR_EVER_SECONDS, Resolved, resolve
from scalable.domain.names import TopicName
from scalable.services import auditing
from scalable.store import retention as store
from scalable.store import topics
from scalable.store.subscriptions import incarnation_of

LONGEST_SECONDS = 100 * 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """What a topic or a namespace sets itself, in seconds; None inherits.

    `retention_seconds`: 0 keeps messages until every subscription is done with them, -1 for ever, others as
    long after that. `session_grace_seconds`: how long a consumer that is away keeps its segments.
    """

    retention_seconds: int | None = None
    session_grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EffectiveLifetimes:
    """What a topic or namespace sets itself, what holds for it or its topics, and whose setting that is."""

    own: Lifetimes
    retention_seconds: Resolved[int]
    session_grace_seconds: Resolved[float]


def effective_lifetimes(*, name: TopicName) -> EffectiveLifetimes:
    """Give what holds for a topic; raises TopicNotFound."""
    own, inherited = (Lifetimes(*row) for row in store.read_lifetimes(incarnation_of(name)))
    return _effective(own, topic=own, namespace=inherited)


def effective_namespace_lifetimes(*, tenant: str, namespace: str) -> EffectiveLifetimes:
    """Give what holds for a namespace's topics that set nothing; raises NamespaceNotFound."""
    own = Lifetimes(*store.read_namespace_lifetimes(topics.namespace_id(tenant, namespace)))
    return _effective(own, topic=Lifetimes(), namespace=own)


def _effective(own: Lifetimes, *, topic: Lifetimes, namespace: Lifetimes) -> EffectiveLifetimes:
    return EffectiveLifetimes(
        own,
        resolve(topic.retention_seconds, namespace.retention_seconds, settings.SCALABLE_RETENTION_SECONDS),
        resolve(
            topic.session_grace_seconds,
            namespace.session_grace_seconds,
            settings.SCALABLE_SESSION_GRACE_SECONDS,
        ),
    )


def retention_of(*, incarnation: int) -> Resolved[int]:
    """Give the retention that holds for a topic; raises TopicNotFound."""
    (own, _), (inherited, _) = store.read_lifetimes(incarnation)
    return resolve(own, inherited, settings.SCALABLE_RETENTION_SECONDS)


def set_topic_lifetimes(*, name: TopicName, lifetimes: Lifetimes, actor: str) -> None:
    """Replace what a topic sets itself; raises TopicNotFound, InvalidParameter."""
    _check(lifetimes)
    with transaction.atomic():
        topic = topics.lock(name)
        before = _described(Lifetimes(*store.read_lifetimes(topic.incarnation)[0]))
        auditing.record("topic.lifetimes", name, actor=actor, before=before, after=_described(lifetimes))
        store.write_topic_lifetimes(
            topic.incarnation, lifetimes.retention_seconds, lifetimes.session_grace_seconds
        )


def set_namespace_lifetimes(*, tenant: str, namespace: str, lifetimes: Lifetimes, actor: str) -> None:
    """Replace what a namespace sets for its topics; raises NamespaceNotFound, InvalidParameter."""
    _check(lifetimes)
    with transaction.atomic():
        namespace_id = topics.namespace_id(tenant, namespace)
        before = _described(Lifetimes(*store.read_namespace_lifetimes(namespace_id)))
        auditing.record(
            "namespace.lifetimes",
            f"{tenant}/{namespace}",
            actor=actor,
            before=before,
            after=_described(lifetimes),
        )
        store.write_namespace_lifetimes(
            namespace_id, lifetimes.retention_seconds, lifetimes.session_grace_seconds
        )


def _described(lifetimes: Lifetimes) -> dict[str, float | None]:
    return {
        "retentionSeconds": lifetimes.retention_seconds,
        "sessionGraceSeconds": lifetimes.session_grace_seconds,
    }


def _check(lifetimes: Lifetimes) -> None:
    retention, grace = lifetimes.retention_seconds, lifetimes.session_grace_seconds
    if retention is not None and not FOR_EVER_SECONDS <= retention <= LONGEST_SECONDS:
        problem = f"it is -1 (for ever) or 0 to {LONGEST_SECONDS} seconds"
        raise InvalidParameter(parameter="retentionSeconds", value=retention, problem=problem)
    if grace is not None and not (isfinite(grace) and 0 <= grace <= LONGEST_SECONDS):
        problem = f"it is 0 to {LONGEST_SECONDS} seconds"
        raise InvalidParameter(parameter="sessionGraceSeconds", value=grace, problem=problem)
