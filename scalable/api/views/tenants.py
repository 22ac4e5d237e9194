"""Tenants, and which namespaces they have, by the paths and names of Pulsar."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of, subject_of
from scalable.api.doors import Door
from scalable.api.tenant_bodies import NamesQuery, TenantInfoBody, admin_roles_of, tenant_info
from scalable.api.views.base import DoorView, body_of
from scalable.api.views.topics import TOTAL_HEADER
from scalable.domain.access import Level, Right
from scalable.domain.errors import (
    ClusterNotFound,
    TenantExists,
    TenantFixed,
    TenantNotEmpty,
    TenantNotFound,
)
from scalable.domain.names import validate_part
from scalable.services import tenants

TOTAL = {TOTAL_HEADER: "how many there are, of which a page is answered"}


class TenantsView(DoorView):
    """All tenants."""

    tag = "Tenants and namespaces"
    doors = {
        "GET": Door(
            summary="List the tenants in which the caller may do anything",
            right=Right.KNOWN,
            query=NamesQuery,
            answers={200: list[str]},
            headers=TOTAL,
        ),
    }

    def get(self, request: Request) -> Response:
        query = self.query(NamesQuery)
        found, total = tenants.list_tenants(
            subject=subject_of(request), limit=query.limit, offset=query.offset
        )
        return Response([each.name for each in found], headers={TOTAL_HEADER: str(total)})


class TenantView(DoorView):
    """One tenant."""

    tag = "Tenants and namespaces"
    doors = {
        "GET": Door(
            summary="Get a tenant's admin roles",
            right=Right.ADMIN,
            level=Level.TENANT,
            answers={200: TenantInfoBody},
            errors=(TenantNotFound,),
        ),
        "PUT": Door(
            summary="Create a tenant",
            right=Right.SUPERUSER,
            body=TenantInfoBody,
            body_required=False,
            answers={204: None},
            errors=(TenantExists, ClusterNotFound),
        ),
        "POST": Door(
            summary="Replace a tenant's admin roles",
            right=Right.SUPERUSER,
            body=TenantInfoBody,
            answers={204: None},
            errors=(TenantNotFound, TenantFixed, ClusterNotFound),
        ),
        "DELETE": Door(
            summary="Delete a tenant without namespaces",
            right=Right.SUPERUSER,
            answers={204: None},
            errors=(TenantNotFound, TenantFixed, TenantNotEmpty),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(tenant_info(tenants.get_tenant(tenant=_tenant(path))))

    def put(self, request: Request, **path: str) -> Response:
        roles = admin_roles_of(body_of(request, TenantInfoBody, default=TenantInfoBody()))
        tenants.create_tenant(tenant=_tenant(path), admin_roles=roles, actor=actor_of(request))
        return Response(status=204)

    def post(self, request: Request, **path: str) -> Response:
        roles = admin_roles_of(body_of(request, TenantInfoBody))
        tenants.update_tenant(tenant=_tenant(path), admin_roles=roles, actor=actor_of(request))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        tenants.delete_tenant(tenant=_tenant(path), actor=actor_of(request))
        return Response(status=204)


class TenantNamespacesView(DoorView):
    """The namespaces of a tenant."""

    tag = "Tenants and namespaces"
    doors = {
        "GET": Door(
            summary="List a tenant's namespaces in which the caller may do anything",
            right=Right.KNOWN,
            query=NamesQuery,
            answers={200: list[str]},
            errors=(TenantNotFound,),
            headers=TOTAL,
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query, tenant = self.query(NamesQuery), _tenant(path)
        found, total = tenants.list_namespaces(
            tenant=tenant, subject=subject_of(request), limit=query.limit, offset=query.offset
        )
        return Response([f"{tenant}/{name}" for name in found], headers={TOTAL_HEADER: str(total)})


def _tenant(path: dict[str, str]) -> str:
    return validate_part(path["tenant"], "tenant")
