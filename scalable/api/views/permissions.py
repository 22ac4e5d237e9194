"""What roles may do in a tenant, a namespace or a topic (Pulsar's permissions)."""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.access_bodies import Actions, Permissions
from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.views.base import DoorView, body_of
from scalable.domain.access import Level, Right, Scope
from scalable.domain.errors import (
    AccessFull,
    NamespaceDeleting,
    NamespaceNotFound,
    ScalableError,
    TenantFixed,
    TenantNotFound,
)
from scalable.domain.names import validate_part
from scalable.services import grants

_MISSING: Mapping[Level, tuple[type[ScalableError], ...]] = {
    Level.TENANT: (TenantNotFound,),
    Level.NAMESPACE: (TenantNotFound, NamespaceNotFound),
    Level.TOPIC: (TenantNotFound, NamespaceNotFound),
}


def _list_door(level: Level) -> dict[str, Door]:
    where = "on a topic, with those of its namespace and tenant" if level is Level.TOPIC else f"on a {level}"
    return {
        "GET": Door(
            summary=f"List what each role may do {where}",
            right=Right.ADMIN,
            level=level,
            answers={200: Permissions},
            errors=_MISSING[level],
        )
    }


def _role_doors(level: Level) -> dict[str, Door]:
    return {
        "POST": Door(
            summary=f"Let a role do these actions on a {level}, in place of what it could there",
            right=Right.ADMIN,
            level=level,
            body=Actions,
            answers={204: None},
            errors=(*_MISSING[level], NamespaceDeleting, TenantFixed, AccessFull),
        ),
        "DELETE": Door(
            summary=f"Take away what a role was granted on a {level}",
            right=Right.ADMIN,
            level=level,
            answers={204: None},
            errors=_MISSING[level],
        ),
    }


class PermissionsView(DoorView):
    """All grants of a scope."""

    tag = "Access"

    def get(self, request: Request, **path: str) -> Response:
        scope = _scope_of(path)
        granted = grants.effective_grants(scope=scope) if scope.topic else grants.list_grants(scope=scope)
        return Response({role: sorted(actions) for role, actions in granted.items()})


class RolePermissionsView(DoorView):
    """The grant of a role in a scope."""

    tag = "Access"

    def post(self, request: Request, **path: str) -> Response:
        actions: list[Any] = body_of(request, Actions)
        grants.grant(scope=_scope_of(path), role=path["role"], actions=actions, actor=actor_of(request))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        grants.revoke(scope=_scope_of(path), role=path["role"], actor=actor_of(request))
        return Response(status=204)


class TenantPermissionsView(PermissionsView):
    """All grants of a tenant."""

    doors = _list_door(Level.TENANT)


class TenantRolePermissionsView(RolePermissionsView):
    """The grant of a role in a tenant."""

    doors = _role_doors(Level.TENANT)


class NamespacePermissionsView(PermissionsView):
    """All grants of a namespace."""

    doors = _list_door(Level.NAMESPACE)


class NamespaceRolePermissionsView(RolePermissionsView):
    """The grant of a role in a namespace."""

    doors = _role_doors(Level.NAMESPACE)


class TopicPermissionsView(PermissionsView):
    """All grants that hold for a topic."""

    doors = _list_door(Level.TOPIC)


class TopicRolePermissionsView(RolePermissionsView):
    """The grant of a role on a topic."""

    doors = _role_doors(Level.TOPIC)


def _scope_of(path: Mapping[str, str]) -> Scope:
    for part in ("tenant", "namespace", "topic", "role"):
        if part in path:
            validate_part(path[part], part)
    return Scope.of_path(path)
