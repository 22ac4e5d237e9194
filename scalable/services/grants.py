"""What roles are granted in tenants, namespaces and topics."""

from collections.abc import Collection

from django.conf import settings
from django.db import transaction

from scalable.domain.access import GRANTABLE, Right, Scope, validate_role
from scalable.domain.errors import AccessFull, InvalidParameter, NamespaceDeleting, TenantFixed
from scalable.domain.names import validate_part
from scalable.services import auditing, rules
from scalable.store import access as store
from scalable.store import namespaces, tenants

ROLES_PER_SCOPE = 1_000


def list_grants(*, scope: Scope) -> dict[str, frozenset[Right]]:
    """What each role was granted in exactly this scope; raises TenantNotFound, NamespaceNotFound."""
    _check_exists(scope)
    return store.grants_at(scope)


def effective_grants(*, scope: Scope) -> dict[str, frozenset[Right]]:
    """What each role was granted in this scope or around it; raises TenantNotFound, NamespaceNotFound."""
    _check_exists(scope)
    united: dict[str, frozenset[Right]] = {}
    for each in scope.around:
        for role, actions in store.grants_at(each).items():
            united[role] = united.get(role, frozenset()) | actions
    return dict(sorted(united.items()))


def grant(*, scope: Scope, role: str, actions: Collection[str], actor: str) -> None:
    """Let a role do this, and no more, in a scope and all below it; a topic need not exist yet.

    Raises InvalidName, InvalidParameter, TenantNotFound, NamespaceNotFound, NamespaceDeleting, TenantFixed,
    AccessFull.
    """
    rights = _rights_of(actions)
    _check_names(scope, role)
    if scope.is_system:
        raise TenantFixed(tenant=scope.tenant)
    with transaction.atomic():
        _hold(scope)
        if not store.has_grant(scope, role):
            _check_room(scope)
        before = store.grants_at(scope).get(role)
        _put(scope, role, rights, before, actor)
        rules.changed()


def revoke(*, scope: Scope, role: str, actor: str) -> None:
    """Take away what a role was granted in exactly this scope, if anything.

    Raises TenantNotFound, NamespaceNotFound.
    """
    _check_exists(scope)
    with transaction.atomic():
        before = store.grants_at(scope).get(role)
        if store.delete_grant(scope, role):
            auditing.record("grant.remove", _named(scope, role), actor=actor, before=_actions(before))
            rules.changed()


def revoke_all(*, chosen: Collection[tuple[Scope, str]], actor: str) -> None:
    """Take away what these roles were granted in exactly these scopes, as far as it is still there."""
    with transaction.atomic():
        # Locked in everybody's order before one changes: else the stamp of the first waits for the next.
        for scope, role in store.lock_grants_of({role for _, role in chosen}):
            if (scope, role) in chosen:
                revoke(scope=scope, role=role, actor=actor)


def move(
    *, scope: Scope, role: str, to_scope: Scope, to_role: str, actions: Collection[str], actor: str
) -> None:
    """Take away what a role was granted in exactly this scope, and grant this instead; raises as `grant`."""
    with transaction.atomic():
        # Locked in everybody's order before one changes: else the stamp of the first waits for the next.
        _hold(scope, to_scope)
        store.lock_grants_of({role, to_role})
        revoke(scope=scope, role=role, actor=actor)
        grant(scope=to_scope, role=to_role, actions=actions, actor=actor)


def hand_on(*, scope: Scope, role: str, heir: str | None, actor: str) -> None:
    """Take away what a role was granted in exactly this scope; its heir, if any, has it from now on, too."""
    with transaction.atomic():
        before = store.grants_at(scope)
        if heir is None or heir in before:
            store.delete_grant(scope, role)
        else:
            store.rename_grant(scope, role, heir)
        auditing.record("grant.remove", _named(scope, role), actor=actor, before=_actions(before[role]))
        if heir is not None:
            _put(scope, heir, before[role] | before.get(heir, frozenset()), before.get(heir), actor)
        rules.changed()


def forget(*, scope: Scope) -> None:
    """Take away all grants in a scope that is deleted: who makes the name anew grants anew."""
    if store.delete_grants_within(scope):
        rules.changed()


def _put(
    scope: Scope, role: str, rights: frozenset[Right], before: frozenset[Right] | None, actor: str
) -> None:
    store.put_grant(scope, role, rights)
    auditing.record(
        "grant.set", _named(scope, role), actor=actor, before=_actions(before), after=_actions(rights)
    )


def _named(scope: Scope, role: str) -> str:
    parts = (scope.tenant, scope.namespace, scope.topic)
    return f"{'/'.join(part for part in parts if part)}/permissions/{role}"


def _actions(rights: Collection[Right] | None) -> dict[str, list[str]] | None:
    return None if rights is None else {"actions": sorted(right.value for right in rights)}


def _check_names(scope: Scope, role: str) -> None:
    validate_role(role)
    for field, value in (("tenant", scope.tenant), ("namespace", scope.namespace), ("topic", scope.topic)):
        if value:
            validate_part(value, field)


def _check_exists(scope: Scope) -> None:
    tenants.read(scope.tenant)
    if scope.namespace:
        namespaces.read(scope.tenant, scope.namespace)


def _hold(*scopes: Scope) -> None:
    """Keep tenants and namespaces until the transaction ends: who deletes them takes the grants away."""
    tenants.hold(*(scope.tenant for scope in scopes))
    for tenant, name in sorted({(scope.tenant, scope.namespace) for scope in scopes if scope.namespace}):
        namespace = namespaces.lock(tenant, name)
        if namespace.deleting:
            raise NamespaceDeleting(namespace=str(namespace))


def _check_room(scope: Scope) -> None:
    if store.count_grants_at(scope) >= ROLES_PER_SCOPE:
        raise AccessFull(kind="grants here", limit=ROLES_PER_SCOPE)
    if store.count_grants() >= settings.SCALABLE_MAX_GRANTS:
        raise AccessFull(kind="grants", limit=settings.SCALABLE_MAX_GRANTS)


def _rights_of(actions: Collection[str]) -> frozenset[Right]:
    known = {right.value for right in GRANTABLE}
    unknown = sorted(set(actions) - known)
    if unknown or not actions:
        problem = f"the actions are {', '.join(sorted(known))}" if unknown else "there must be one"
        raise InvalidParameter(parameter="actions", value=unknown, problem=problem)
    return frozenset(map(Right, actions))
