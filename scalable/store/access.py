"""Rows of access: grants by scope, tenants' admin roles, revoked tokens, and the stamp of their changes."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q, QuerySet

from scalable.access_models import AccessStamp, Grant, ServiceToken, Tenant
from scalable.domain.access import Grants, Right, Scope
from scalable.store.clock import ClockTimestamp


@dataclass(frozen=True, slots=True)
class Rules:
    """All that decides who may do what, as it stood at a stamp."""

    stamp: UUID | None = None
    grants: dict[str, Grants] = field(default_factory=dict)
    """By role; an admin role of a tenant administers its scope."""
    revoked: frozenset[str] = frozenset()
    """The ids of revoked tokens that have not expired."""


def read_stamp() -> UUID | None:
    """The stamp of the last change of access that was committed."""
    return AccessStamp.objects.values_list("stamp", flat=True).first()


def read_rules() -> Rules:
    """Read everything; what is committed meanwhile comes under a later stamp."""
    stamp = read_stamp()
    granted: defaultdict[str, dict[Scope, frozenset[Right]]] = defaultdict(dict)
    for tenant, namespace, topic, role, actions in Grant.objects.values_list(
        "tenant", "namespace", "topic", "role", "actions"
    ).iterator():
        granted[role][Scope(tenant, namespace, topic)] = frozenset(map(Right, actions))
    for tenant, roles in Tenant.objects.exclude(admin_roles=[]).values_list("name", "admin_roles"):
        for role in roles:
            scopes = granted[role]
            scopes[Scope(tenant)] = scopes.get(Scope(tenant), frozenset()) | {Right.ADMIN}
    return Rules(stamp, dict(granted), _revoked())


def _revoked() -> frozenset[str]:
    alive = Q(expires_at=None) | Q(expires_at__gt=ClockTimestamp())
    tokens = ServiceToken.objects.filter(alive, revoked_at__isnull=False)
    return frozenset(tokens.values_list("token_id", flat=True))


def grants_at(scope: Scope) -> dict[str, frozenset[Right]]:
    """What each role was granted in exactly this scope."""
    rows = _at(scope).order_by("role").values_list("role", "actions")
    return {role: frozenset(map(Right, actions)) for role, actions in rows}


def count_grants() -> int:
    """Count all grants."""
    return Grant.objects.count()


def count_grants_at(scope: Scope) -> int:
    """Count the roles that were granted anything in exactly this scope."""
    return _at(scope).count()


def has_grant(scope: Scope, role: str) -> bool:
    """True when the role was granted anything in exactly this scope."""
    return _at(scope).filter(role=role).exists()


def put_grant(scope: Scope, role: str, actions: Iterable[Right]) -> None:
    """Write what a role may do in a scope, in place of what it could."""
    listed = sorted(action.value for action in actions)
    if not _at(scope).filter(role=role).update(actions=listed):
        Grant.objects.create(
            tenant=scope.tenant,
            namespace=scope.namespace,
            topic=scope.topic,
            role=role,
            actions=listed,
            created_at=ClockTimestamp(),
        )


def delete_grant(scope: Scope, role: str) -> bool:
    """Take away what a role was granted in exactly this scope; False when that was nothing."""
    return bool(_at(scope).filter(role=role).delete()[0])


def rename_grant(scope: Scope, role: str, heir: str) -> None:
    """Give what a role was granted in exactly this scope to another one, which was granted nothing there.

    The row stays the same one: whoever deletes the scope at this moment deletes it, too.
    """
    _at(scope).filter(role=role).update(role=heir)


def lock_grants_of(roles: Collection[str]) -> list[tuple[Scope, str]]:
    """Lock all that these roles were granted until the transaction ends: in which scope, and to whom."""
    rows = Grant.objects.select_for_update().filter(role__in=list(roles)).order_by("pk")
    return [(Scope(row.tenant, row.namespace, row.topic), row.role) for row in rows]


def delete_grants_within(scope: Scope) -> bool:
    """Take away all grants in a scope and below it; False when there were none."""
    below = Q(tenant=scope.tenant)
    if scope.namespace:
        below &= Q(namespace=scope.namespace)
    if scope.topic:
        below &= Q(topic=scope.topic)
    # Locked in the order of all who take several: a statement that deletes takes them as they lie.
    rows = Grant.objects.filter(below)
    return bool(list(rows.select_for_update().order_by("pk").values_list("pk"))) and bool(rows.delete()[0])


def _at(scope: Scope) -> QuerySet[Grant]:
    return Grant.objects.filter(tenant=scope.tenant, namespace=scope.namespace, topic=scope.topic)
