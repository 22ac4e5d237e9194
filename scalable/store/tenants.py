"""Rows of tenants."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q

from scalable.access_models import Grant, Tenant
from scalable.domain.errors import TenantNotFound
from scalable.models import Namespace
from scalable.store.clock import ClockTimestamp, milliseconds


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant with the roles that administer it."""

    name: str
    admin_roles: tuple[str, ...]
    created_at_ms: int


def insert(name: str, admin_roles: Sequence[str]) -> bool:
    """Add a tenant; False when it exists, which then stays as it is."""
    _, made = Tenant.objects.get_or_create(
        name=name, defaults={"admin_roles": list(admin_roles), "created_at": ClockTimestamp()}
    )
    return made


def read(name: str) -> TenantView:
    """Read a tenant; raises TenantNotFound."""
    row = Tenant.objects.filter(name=name).first()
    if row is None:
        raise TenantNotFound(tenant=name)
    return _view(row)


def lock(name: str) -> TenantView:
    """Lock a tenant until the transaction ends: no namespace or grant is made in it meanwhile.

    Raises TenantNotFound.
    """
    row = Tenant.objects.select_for_update().filter(name=name).first()
    if row is None:
        raise TenantNotFound(tenant=name)
    return _view(row)


def lock_of_roles(roles: Collection[str]) -> list[TenantView]:
    """Lock the tenants that any of these roles administers or was granted anything in, by name."""
    granted = Grant.objects.filter(role__in=list(roles)).values("tenant")
    concerned = Q(admin_roles__overlap=list(roles)) | Q(name__in=granted)
    return [_view(row) for row in Tenant.objects.select_for_update().filter(concerned).order_by("name")]


def hold(*names: str) -> None:
    """Keep tenants from being deleted until the transaction ends; raises TenantNotFound."""
    rows = Tenant.objects.select_for_update(no_key=True).filter(name__in=names).order_by("name")
    found = set(rows.values_list("name", flat=True))
    for name in names:
        if name not in found:
            raise TenantNotFound(tenant=name)


def set_admin_roles(name: str, admin_roles: Sequence[str]) -> None:
    """Replace the roles that administer a tenant."""
    Tenant.objects.filter(name=name).update(admin_roles=list(admin_roles))


def delete(name: str) -> None:
    """Delete a tenant that has neither namespaces nor grants; the caller holds its lock."""
    Tenant.objects.filter(name=name).delete()


def count_namespaces(name: str) -> int:
    """Count the namespaces of a tenant."""
    return Namespace.objects.filter(tenant=name).count()


def page(*, only: Collection[str] | None, limit: int, offset: int) -> tuple[list[TenantView], int]:
    """A page of the tenants by name (of these alone, if given), and how many there are."""
    rows = Tenant.objects.order_by("name")
    if only is not None:
        rows = rows.filter(name__in=list(only))
    return [_view(row) for row in rows[offset : offset + limit]], rows.count()


def namespaces(name: str, *, only: Collection[str] | None, limit: int, offset: int) -> tuple[list[str], int]:
    """A page of the names of a tenant's namespaces (of these alone, if given), and how many there are."""
    rows = Namespace.objects.filter(tenant=name).order_by("name")
    if only is not None:
        rows = rows.filter(name__in=list(only))
    return list(rows.values_list("name", flat=True)[offset : offset + limit]), rows.count()


def _view(row: Tenant) -> TenantView:
    return TenantView(row.name, tuple(row.admin_roles), milliseconds(row.created_at))
