"""Tenants, namespaces and what they set, and the nodes of the installation, by REST."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from scalable.client.rest import Json, RestClient, body_of, listed, quoted, topic_path
from scalable.domain.names import TopicName

TENANT_ROOT = "/admin/v2/tenants"
NAMESPACE_ROOT = "/admin/v2/namespaces"
NODE_ROOT = "/admin/v2/nodes"
COLLECTION_ROOT = "/admin/v2/scalable-topics"
Sort = Literal["name", "created", "segments", "rate"]
TopicState = Literal["STEADY", "RESHAPING"]


class TenantAdmin(RestClient):
    """What `Admin` does about tenants and namespaces; a namespace is `tenant/namespace`."""

    def tenants(self, *, limit: int = 1_000, offset: int = 0) -> list[str]:
        """Name the tenants in which the caller may do anything, a page of them."""
        names: list[str] = self._json("GET", TENANT_ROOT, params={"limit": limit, "offset": offset})
        return names

    def tenant(self, tenant: str) -> Json:
        """Give a tenant's `adminRoles`; raises TenantNotFound."""
        return self._object("GET", _tenant_path(tenant))

    def create_tenant(self, tenant: str, *, admin_roles: Collection[str] = ()) -> None:
        """Create a tenant; raises TenantExists."""
        self._call("PUT", _tenant_path(tenant), json={"adminRoles": list(admin_roles)})

    def update_tenant(self, tenant: str, *, admin_roles: Collection[str]) -> None:
        """Replace a tenant's admin roles; raises TenantNotFound, TenantFixed."""
        self._call("POST", _tenant_path(tenant), json={"adminRoles": list(admin_roles)})

    def delete_tenant(self, tenant: str) -> None:
        """Delete a tenant without namespaces; raises TenantNotFound, TenantFixed, TenantNotEmpty."""
        self._call("DELETE", _tenant_path(tenant))

    def namespaces(self, tenant: str, *, limit: int = 1_000, offset: int = 0) -> list[str]:
        """Name a tenant's namespaces in which the caller may do anything, as `tenant/namespace`."""
        path, params = f"{NAMESPACE_ROOT}/{quoted(tenant)}", {"limit": limit, "offset": offset}
        names: list[str] = self._json("GET", path, params=params)
        return names

    def namespace(self, namespace: str) -> Json:
        """Give all that a namespace sets for its topics; raises NamespaceNotFound."""
        return self._object("GET", _namespace_path(namespace))

    def namespace_lifetimes(self, namespace: str) -> Json:
        """Give how long a namespace lets messages and sessions be kept; raises NamespaceNotFound."""
        return self._object("GET", _namespace_path(namespace, "lifetimes"))

    def remove_namespace_lifetimes(self, namespace: str) -> None:
        """Let a namespace set nothing of that; raises NamespaceNotFound."""
        self._call("DELETE", _namespace_path(namespace, "lifetimes"))

    def remove_lifetimes(self, topic: TopicName | str) -> None:
        """Let a topic inherit how long messages and sessions are kept; raises TopicNotFound."""
        self._call("DELETE", topic_path(topic, "lifetimes"))

    def get_namespace_policy(self, namespace: str) -> Json | None:
        """Give what a namespace sets of the auto-scale policy, or None; raises NamespaceNotFound."""
        answer = self._call("GET", _policy_path(namespace))
        return None if answer.status_code == 204 else dict(body_of(answer))

    def set_namespace_policy(self, namespace: str, override: Mapping[str, Any]) -> None:
        """Replace it; raises NamespaceNotFound, PolicyUnreadable, PolicyInvalid, UnknownField."""
        self._call("POST", _policy_path(namespace), json=dict(override))

    def remove_namespace_policy(self, namespace: str) -> None:
        """Let a namespace set nothing of the auto-scale policy; raises NamespaceNotFound."""
        self._call("DELETE", _policy_path(namespace))

    def effective_namespace_policy(self, namespace: str) -> Json:
        """Give the policy of topics that set nothing themselves, with the source of each field."""
        return self._object("GET", f"{_policy_path(namespace)}/effective")

    def topics_page(
        self,
        namespace: str,
        *,
        search: str = "",
        properties: Mapping[str, str] | None = None,
        state: TopicState | None = None,
        sort: Sort = "name",
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> Json:
        """Give a page of topics with their figures (`topics`), and how many match (`total`).

        Raises NamespaceNotFound, InvalidFilter.
        """
        tenant, _, name = namespace.partition("/")
        params: Json = {
            "search": search,
            "property": [f"{key}={value}" for key, value in (properties or {}).items()],
            "sort": sort,
            "descending": str(descending).lower(),
            "limit": limit,
            "offset": offset,
        }
        if state is not None:
            params["state"] = state
        return self._object("GET", f"{COLLECTION_ROOT}/{quoted(tenant, name)}", params=params)

    def nodes(self, *, limit: int = 100, offset: int = 0) -> list[Json]:
        """List the web nodes, the oldest first."""
        return listed(self._json("GET", NODE_ROOT, params={"limit": limit, "offset": offset}), "nodes")

    def topics_led(self, node_id: str, *, limit: int = 100, offset: int = 0) -> list[Json]:
        """List the topics that a node leads; raises NodeNotFound."""
        path, params = f"{NODE_ROOT}/{quoted(node_id, 'topics')}", {"limit": limit, "offset": offset}
        return listed(self._json("GET", path, params=params), "topics")

    def metrics(self) -> str:
        """Give a node's figures in the text form of Prometheus."""
        return self._call("GET", "/metrics").text


def _tenant_path(tenant: str) -> str:
    return f"{TENANT_ROOT}/{quoted(tenant)}"


def _namespace_path(namespace: str, *more: str) -> str:
    tenant, _, name = namespace.partition("/")
    return f"{NAMESPACE_ROOT}/{quoted(tenant, name, *more)}"


def _policy_path(namespace: str) -> str:
    return _namespace_path(namespace, "scalableTopicAutoScalePolicy")
