"""Tenants: listed, made, handed to their admin roles, deleted."""

from __future__ import annotations

import click

from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.client import Admin

tenant_argument = click.argument("tenant")
roles_option = click.option(
    "-r", "--admin-role", "roles", multiple=True, help="A role that administers it; may be repeated."
)


@click.group()
def tenants() -> None:
    """Tenants: list, get, create, update, delete."""


@tenants.command("list")
@limit_option
@with_admin
def list_tenants(session: Session, admin: Admin, limit: int | None) -> None:
    """Name the tenants in which you may do anything."""
    session.output.names(gather(lambda size, offset: admin.tenants(limit=size, offset=offset), limit))


@tenants.command()
@tenant_argument
@with_admin
def get(session: Session, admin: Admin, tenant: str) -> None:
    """Show a tenant's admin roles."""
    session.output.document(admin.tenant(tenant))


@tenants.command()
@tenant_argument
@roles_option
@with_admin
def create(session: Session, admin: Admin, tenant: str, roles: tuple[str, ...]) -> None:
    """Create a tenant."""
    admin.create_tenant(tenant, admin_roles=roles)
    session.output.done(f"created {tenant}", tenant=tenant)


@tenants.command()
@tenant_argument
@roles_option
@click.option("--no-admin-roles", "none", is_flag=True, help="Take the admin roles away.")
@with_admin
def update(session: Session, admin: Admin, tenant: str, roles: tuple[str, ...], none: bool) -> None:
    """Replace a tenant's admin roles."""
    if bool(roles) == none:
        raise click.UsageError("give either --admin-role or --no-admin-roles")
    admin.update_tenant(tenant, admin_roles=roles)
    session.output.done(f"updated {tenant}", tenant=tenant)


@tenants.command()
@tenant_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_admin
def delete(session: Session, admin: Admin, tenant: str, yes: bool) -> None:
    """Delete a tenant without namespaces."""
    if not yes:
        click.confirm(f"Delete {tenant}?", abort=True, err=True)
    admin.delete_tenant(tenant)
    session.output.done(f"deleted {tenant}", tenant=tenant)


COMMANDS = (tenants,)
