"""What roles are granted in tenants, namespaces and topics."""

from collections.abc import Collection

from django.conf import settings
from django.db import transaction

from scalable.domain.access import GRANTABLE, Right, Scope
from scalable.domain.errors import AccessFull, InvalidParameter, TenantFixed
from scalable.domain.names import validate_part
from scalable.services import rules
from scalable.store import access as store
from scalable.store import tenants


def list_grants(*, scope: Scope) -> dict[str, frozenset[Right]]:
    """What each role was granted in exactly this scope; raises TenantNotFound."""
    tenants.read(scope.tenant)
    return store.grants_at(scope)


def grant(*, scope: Scope, role: str, actions: Collection[str], actor: str) -> None:
    """Let a role do this, and no more, in a scope and all below it; the scope need not exist but its tenant.

    Raises InvalidName, InvalidParameter, TenantNotFound, TenantFixed, AccessFull.
    """
    rights = _rights_of(actions)
    validate_part(role, "role")
    for field, value in (("tenant", scope.tenant), ("namespace", scope.namespace), ("topic", scope.topic)):
        if value:
            validate_part(value, field)
    if scope.is_system:
        raise TenantFixed(tenant=scope.tenant)
    with transaction.atomic():
        tenants.hold(scope.tenant)
        if not store.has_grant(scope, role) and store.count_grants() >= settings.SCALABLE_MAX_GRANTS:
            raise AccessFull(kind="grants", limit=settings.SCALABLE_MAX_GRANTS)
        store.put_grant(scope, role, rights)
        rules.changed()


def revoke(*, scope: Scope, role: str, actor: str) -> None:
    """Take away what a role was granted in exactly this scope, if anything; raises TenantNotFound."""
    with transaction.atomic():
        tenants.hold(scope.tenant)
        if store.delete_grant(scope, role):
            rules.changed()


def forget(*, scope: Scope) -> None:
    """Take away all grants in a scope that is deleted: who makes the name anew grants anew."""
    if store.delete_grants_within(scope):
        rules.changed()


def _rights_of(actions: Collection[str]) -> frozenset[Right]:
    known = {right.value for right in GRANTABLE}
    unknown = sorted(set(actions) - known)
    if unknown or not actions:
        problem = f"the actions are {', '.join(sorted(known))}" if unknown else "there must be one"
        raise InvalidParameter(parameter="actions", value=unknown, problem=problem)
    return frozenset(map(Right, actions))
