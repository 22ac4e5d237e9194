"""Tenants: made, listed, handed to their admin roles, deleted."""

from collections.abc import Sequence

from django.db import transaction

from scalable.domain.access import SYSTEM_TENANT, Scope, Subject, validate_role
from scalable.domain.errors import TenantExists, TenantFixed, TenantNotEmpty
from scalable.domain.names import validate_part
from scalable.services import access, auditing, grants, rules
from scalable.store import tenants as store
from scalable.store.tenants import TenantView


def create_tenant(*, tenant: str, admin_roles: Sequence[str] = (), actor: str) -> None:
    """Make a tenant; raises InvalidName, TenantExists."""
    roles = _roles(admin_roles)
    with transaction.atomic():
        if not store.insert(validate_part(tenant, "tenant"), roles):
            raise TenantExists(tenant=tenant)
        auditing.record("tenant.create", tenant, actor=actor, after={"adminRoles": list(roles)})
        rules.changed()


def update_tenant(*, tenant: str, admin_roles: Sequence[str], actor: str) -> None:
    """Replace the roles that administer a tenant; raises InvalidName, TenantNotFound, TenantFixed."""
    with transaction.atomic():
        before = store.lock(tenant).admin_roles
        roles = _roles(admin_roles, known=before)
        if tenant == SYSTEM_TENANT:
            raise TenantFixed(tenant=tenant)
        store.set_admin_roles(tenant, roles)
        auditing.record(  # last: it takes the row of a key, for which a rename waits that has the stamp
            "tenant.update",
            tenant,
            actor=actor,
            before={"adminRoles": list(before)},
            after={"adminRoles": list(roles)},
        )
        rules.changed()


def delete_tenant(*, tenant: str, actor: str) -> None:
    """Delete a tenant without namespaces; raises TenantNotFound, TenantFixed, TenantNotEmpty."""
    with transaction.atomic():
        before = store.lock(tenant).admin_roles
        if tenant == SYSTEM_TENANT:
            raise TenantFixed(tenant=tenant)
        namespaces = store.count_namespaces(tenant)
        if namespaces:
            raise TenantNotEmpty(tenant=tenant, namespaces=namespaces)
        grants.forget(scope=Scope(tenant))
        store.delete(tenant)
        auditing.record("tenant.delete", tenant, actor=actor, before={"adminRoles": list(before)})
        rules.changed()


def get_tenant(*, tenant: str) -> TenantView:
    """Read a tenant; raises TenantNotFound."""
    return store.read(tenant)


def list_tenants(*, subject: Subject, limit: int, offset: int = 0) -> tuple[list[TenantView], int]:
    """A page of the tenants in which the subject may see anything, by name, and how many those are."""
    scopes = access.visible_scopes(subject=subject)
    only = None if scopes is None else {scope.tenant for scope in scopes}
    return store.page(only=only, limit=limit, offset=offset)


def list_namespaces(*, tenant: str, subject: Subject, limit: int, offset: int = 0) -> tuple[list[str], int]:
    """A page of the names of a tenant's namespaces in which the subject may see anything, and how many.

    Raises TenantNotFound only to whom sees the tenant; to others the list is empty.
    """
    scopes = access.visible_scopes(subject=subject)
    inside = None if scopes is None else {scope for scope in scopes if scope.tenant == tenant}
    if inside is not None and not inside:
        return [], 0
    store.read(tenant)
    everything = inside is None or any(not scope.namespace for scope in inside)
    only = None if everything else {scope.namespace for scope in inside or ()}
    return store.namespaces(tenant, only=only, limit=limit, offset=offset)


def _roles(roles: Sequence[str], *, known: Sequence[str] = ()) -> list[str]:
    """Give roles in order; those that were there already may stay as they are."""
    return sorted({role if role in known else validate_role(role) for role in roles})
