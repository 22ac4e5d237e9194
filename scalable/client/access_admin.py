"""Grants and tokens by REST: who may do what, and what lets programs in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from scalable.client.rest import Json, RestClient, listed, quoted, topic_path
from scalable.domain.names import TopicName

Action = Literal["produce", "consume", "lookup", "admin"]
Permissions = dict[str, list[str]]

TENANT_ROOT = "/admin/v2/tenants"
NAMESPACE_ROOT = "/admin/v2/namespaces"
TOKEN_ROOT = "/admin/v2/tokens"
AUDIT_PATH = "/admin/v2/audit"


class AccessAdmin(RestClient):
    """What `Admin` does about grants and tokens; a role is the subject of a token, or `user:NAME`."""

    def tenant_permissions(self, tenant: str) -> Permissions:
        """Give the actions of each role in a tenant; raises TenantNotFound."""
        return self._object("GET", _tenant_path(tenant))

    def grant_on_tenant(self, tenant: str, role: str, actions: Collection[Action]) -> None:
        """Let a role do this and no more in a tenant; raises TenantNotFound, TenantFixed, AccessFull."""
        self._call("POST", _tenant_path(tenant, role), json=list(actions))

    def revoke_on_tenant(self, tenant: str, role: str) -> None:
        """Take away what a role was granted in a tenant; raises TenantNotFound."""
        self._call("DELETE", _tenant_path(tenant, role))

    def namespace_permissions(self, namespace: str) -> Permissions:
        """Give the actions of each role in `tenant/namespace`; raises NamespaceNotFound."""
        return self._object("GET", _namespace_path(namespace))

    def grant_on_namespace(self, namespace: str, role: str, actions: Collection[Action]) -> None:
        """Let a role do this, no more, in a namespace; raises NamespaceNotFound, TenantFixed, AccessFull."""
        self._call("POST", _namespace_path(namespace, role), json=list(actions))

    def revoke_on_namespace(self, namespace: str, role: str) -> None:
        """Take away what a role was granted in a namespace; raises NamespaceNotFound."""
        self._call("DELETE", _namespace_path(namespace, role))

    def topic_permissions(self, topic: TopicName | str) -> Permissions:
        """Give the actions of each role on a topic, with those of its namespace and tenant."""
        return self._object("GET", topic_path(topic, "permissions"))

    def grant_on_topic(self, topic: TopicName | str, role: str, actions: Collection[Action]) -> None:
        """Let a role do this and no more on a topic, which need not exist yet.

        Raises NamespaceNotFound, TenantFixed, AccessFull.
        """
        self._call("POST", topic_path(topic, "permissions", role), json=list(actions))

    def revoke_on_topic(self, topic: TopicName | str, role: str) -> None:
        """Take away what a role was granted on a topic itself; raises NamespaceNotFound."""
        self._call("DELETE", topic_path(topic, "permissions", role))

    def mint_token(self, role: str, *, ttl_seconds: float | None = None) -> Json:
        """Mint a token for a role, for ever or for a time: `id`, `token`, `expiresAtMs`."""
        return self._object("POST", TOKEN_ROOT, json={"role": role, "ttlSeconds": ttl_seconds})

    def tokens(self, *, limit: int = 100, offset: int = 0) -> list[Json]:
        """List the tokens that were minted, the newest first, without the tokens themselves."""
        return listed(self._json("GET", TOKEN_ROOT, params={"limit": limit, "offset": offset}), "tokens")

    def revoke_token(self, token_id: str, *, role: str | None = None) -> None:
        """Revoke a token for ever, which closes the sockets that it opened; raises TokenNotFound.

        One that was not minted here, but signed by somebody else, is revoked with its `role`.
        """
        params = {} if role is None else {"role": role}
        self._call("DELETE", f"{TOKEN_ROOT}/{quoted(token_id)}", params=params)

    def audit(
        self,
        *,
        actor: str = "",
        action: str = "",
        target: str = "",
        outcome: str = "",
        from_ms: int | None = None,
        to_ms: int | None = None,
        below_id: int | None = None,
        limit: int = 100,
    ) -> list[Json]:
        """List what was done or tried, the newest first; read on with the last `eventId` as `below_id`.

        `target` also finds what lies below it. Superusers only.
        """
        given = {
            "actor": actor,
            "action": action,
            "target": target,
            "outcome": outcome,
            "fromMs": from_ms,
            "toMs": to_ms,
            "belowId": below_id,
        }
        params: Json = {name: value for name, value in given.items() if value not in ("", None)}
        return listed(self._json("GET", AUDIT_PATH, params={**params, "limit": limit}), "events")


def _tenant_path(tenant: str, *role: str) -> str:
    return f"{TENANT_ROOT}/{quoted(tenant, 'permissions', *role)}"


def _namespace_path(namespace: str, *role: str) -> str:
    tenant, _, name = namespace.partition("/")
    return f"{NAMESPACE_ROOT}/{quoted(tenant, name, 'permissions', *role)}"
