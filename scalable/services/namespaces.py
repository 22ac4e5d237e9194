"""Namespaces: made, and deleted topic by topic, by whoever comes after a process that died over it."""

import logging
from contextlib import suppress
from time import monotonic

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.access import Scope
from scalable.domain.errors import (
    NamespaceDeleting,
    NamespaceFixed,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TopicDeleted,
    TopicNotFound,
    TopicsSwitchedOff,
)
from scalable.domain.names import validate_part
from scalable.services import auditing, grants
from scalable.services.topics import delete_topic
from scalable.store import namespaces as store
from scalable.store import tenants
from scalable.store.decisions import SYSTEM_TENANT
from scalable.store.namespaces import NamespaceView

logger = logging.getLogger(__name__)

SWEEPER = "namespace deletion"
TOPICS_PER_CALL = 1_000
TOPICS_PER_PAGE = 100
SECONDS_PER_CALL = 15.0
"""Less than clients wait for an answer; topics of a busy database take long."""
NAMESPACES_PER_SWEEP = 10


def create_namespace(*, tenant: str, namespace: str, actor: str) -> None:
    """Make a namespace; one that exists stays as it is.

    Raises InvalidName, NamespaceFixed, TenantNotFound, NamespaceDeleting.
    """
    validate_part(tenant, "tenant")
    validate_part(namespace, "namespace")
    if tenant == SYSTEM_TENANT:
        raise NamespaceFixed(namespace=f"{tenant}/{namespace}")
    with transaction.atomic():
        tenants.hold(tenant)
        found, is_new = store.insert(tenant, namespace)
        if is_new:
            auditing.record("namespace.create", found, actor=actor)
    if found.deleting:
        raise NamespaceDeleting(namespace=str(found))


def delete_namespace(*, tenant: str, namespace: str, force: bool = False, actor: str) -> bool:
    """Delete a namespace, with its topics if forced, and tell whether that is finished.

    No topic is made in it from now on. A call deletes a bounded number of topics; the next one, or the
    sweep, goes on. Raises NamespaceNotFound, NamespaceFixed, NamespaceNotEmpty, and TopicsSwitchedOff for
    topics while they are.
    """
    with transaction.atomic():
        found = store.lock(tenant, namespace)
        if found.tenant == SYSTEM_TENANT:
            raise NamespaceFixed(namespace=str(found))
        topics = store.count_topics(found.namespace_id)
        if topics and not settings.SCALABLE_TOPICS_ENABLED:
            raise TopicsSwitchedOff(namespace=str(found), topics=topics)
        if topics and not force and not found.deleting:
            raise NamespaceNotEmpty(namespace=str(found), topics=topics)
        if not found.deleting:
            store.begin_deleting(found.namespace_id)
            auditing.record("namespace.delete", found, actor=actor, before={"topics": topics})
    return _delete_topics(found, actor)


def finish_deletions() -> list[str]:
    """Go on with the deletions of namespaces that somebody began, and name those that are finished."""
    finished = []
    for namespace in store.deleting(limit=NAMESPACES_PER_SWEEP):
        try:
            if _delete_topics(namespace, SWEEPER):
                finished.append(str(namespace))
        except Exception:
            logger.exception("The deletion of %s stopped", namespace)
    return finished


def _delete_topics(namespace: NamespaceView, actor: str) -> bool:
    """Delete as many topics as there is time for, one at least; True when the namespace is gone, too."""
    ends_at = monotonic() + SECONDS_PER_CALL
    for _ in range(TOPICS_PER_CALL // TOPICS_PER_PAGE):
        found = store.some_topics(namespace, limit=TOPICS_PER_PAGE)
        if not found:
            return _delete_row(namespace)
        for name, incarnation in found:
            with suppress(TopicNotFound, TopicDeleted):  # another deletes as well, and its name may be anew
                delete_topic(name=name, incarnation=incarnation, force=True, actor=actor)
            if monotonic() >= ends_at:
                return False
    return False


def _delete_row(namespace: NamespaceView) -> bool:
    with transaction.atomic():
        try:
            found = store.lock(namespace.tenant, namespace.name)
        except NamespaceNotFound:
            return True
        if found.namespace_id == namespace.namespace_id:
            store.delete(found.namespace_id)
            grants.forget(scope=Scope(namespace.tenant, namespace.name))
            announce.publish(announce.NamespaceChanged(namespace.tenant, namespace.name))
        return True
