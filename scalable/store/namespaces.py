"""Rows of namespaces as they come and go."""

from dataclasses import dataclass
from typing import Any

from scalable.domain.errors import NamespaceNotFound
from scalable.domain.names import TopicName
from scalable.models import Namespace, Topic
from scalable.store import evaluations
from scalable.store.clock import ClockTimestamp, milliseconds


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace; while it is `deleting` no topic is made in it."""

    namespace_id: int
    tenant: str
    name: str
    deleting: bool

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True)
class NamespaceSettingsView:
    """What a namespace sets for its topics, None where it sets nothing."""

    auto_scale_policy: dict[str, Any] | None
    retention_seconds: int | None
    session_grace_seconds: float | None
    deleting: bool
    created_at_ms: int


def settings_of(tenant: str, name: str) -> NamespaceSettingsView:
    """Read what a namespace sets; raises NamespaceNotFound."""
    row = Namespace.objects.filter(tenant=tenant, name=name).first()
    if row is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{name}")
    return NamespaceSettingsView(
        row.auto_scale_policy,
        row.retention_seconds,
        row.session_grace_seconds,
        row.deleting,
        milliseconds(row.created_at),
    )


def write_auto_scale_policy(namespace_id: int, override: dict[str, Any] | None) -> None:
    """Replace the policy of a namespace, and have its topics evaluated; the caller holds its lock."""
    Namespace.objects.filter(pk=namespace_id).update(auto_scale_policy=override)
    evaluations.mark_namespace(namespace_id)


def insert(tenant: str, name: str) -> tuple[NamespaceView, bool]:
    """Add a namespace, or give the one that exists; and whether it is new."""
    row, is_new = Namespace.objects.get_or_create(
        tenant=tenant, name=name, defaults={"created_at": ClockTimestamp()}
    )
    return _view(row), is_new


def lock(tenant: str, name: str) -> NamespaceView:
    """Lock a namespace until the transaction ends: no topic is made in it meanwhile.

    Raises NamespaceNotFound.
    """
    row = Namespace.objects.select_for_update(no_key=True).filter(tenant=tenant, name=name).first()
    if row is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{name}")
    return _view(row)


def read(tenant: str, name: str) -> NamespaceView:
    """Read a namespace; raises NamespaceNotFound."""
    row = Namespace.objects.filter(tenant=tenant, name=name).first()
    if row is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{name}")
    return _view(row)


def deleting(*, limit: int) -> list[NamespaceView]:
    """Namespaces whose deletion has begun, oldest first."""
    return [_view(row) for row in Namespace.objects.filter(deleting=True).order_by("pk")[:limit]]


def begin_deleting(namespace_id: int) -> None:
    """Refuse new topics from now on; the caller holds the namespace's lock."""
    Namespace.objects.filter(pk=namespace_id).update(deleting=True)


def count_topics(namespace_id: int) -> int:
    """Count the topics of a namespace."""
    return Topic.objects.filter(namespace_id=namespace_id).count()


def some_topics(namespace: NamespaceView, *, limit: int) -> list[tuple[TopicName, int]]:
    """Give some topics of a namespace with their incarnations, in the order of their making."""
    rows = Topic.objects.filter(namespace_id=namespace.namespace_id).order_by("pk")
    return [
        (TopicName(namespace.tenant, namespace.name, name), incarnation)
        for name, incarnation in rows.values_list("name", "pk")[:limit]
    ]


def delete(namespace_id: int) -> None:
    """Delete a namespace without topics; the caller holds its lock."""
    Namespace.objects.filter(pk=namespace_id).delete()


def _view(row: Namespace) -> NamespaceView:
    return NamespaceView(row.pk, row.tenant, row.name, row.deleting)
