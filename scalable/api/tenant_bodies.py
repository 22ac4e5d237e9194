"""What REST reads and answers about tenants and namespaces (names as in Pulsar's TenantInfo)."""

from typing import Annotated, Any

from msgspec import Meta

from scalable.api.serializers import MAX_NAMES_PAGE, Body, Identifier, Query
from scalable.domain.errors import ClusterNotFound
from scalable.store.tenants import TenantView

CLUSTER = "standalone"
"""The one cluster there is, by the name that Pulsar gives to a single one."""
Role = Annotated[str, Meta(min_length=1, max_length=255)]


class NamesQuery(Query):
    """A page of names."""

    limit: Annotated[int, Meta(ge=1, le=MAX_NAMES_PAGE)] = 1_000
    offset: Identifier = 0


class TenantInfoBody(Body):
    """The roles that administer a tenant, and its clusters, of which there is one."""

    admin_roles: Annotated[list[Role], Meta(max_length=1_000)] = []
    allowed_clusters: Annotated[list[str], Meta(max_length=100)] = []


class NamespaceBody(Body):
    """What a namespace sets for its topics; what is null, they take from the defaults."""

    scalable_topic_auto_scale_policy: dict[str, Any] | None
    retention_seconds: int | None
    session_grace_seconds: float | None
    deleted: bool
    created_at_ms: int


def admin_roles_of(body: TenantInfoBody) -> list[str]:
    """The admin roles that a body names; raises ClusterNotFound for a cluster that is not there."""
    for cluster in body.allowed_clusters:
        if cluster != CLUSTER:
            raise ClusterNotFound(cluster=cluster[:255], known=CLUSTER)
    return body.admin_roles


def tenant_info(view: TenantView) -> dict[str, Any]:
    """Write a tenant."""
    return {"adminRoles": list(view.admin_roles), "allowedClusters": [CLUSTER]}
