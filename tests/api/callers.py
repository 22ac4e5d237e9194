"""Every kind of caller that a door may meet, and which of them each right lets in."""

import uuid
from collections.abc import Mapping

from scalable.domain.access import Level, Right, Scope
from scalable.services import access, grants, tenants, tokens

NAMESPACE = Scope("public", "default")
GRANTED = {"producer": "produce", "consumer": "consume", "looker": "lookup", "namespace admin": "admin"}
VALID = frozenset({*GRANTED, "tenant admin", "other tenant", "stranger", "superuser", "system"})
INVALID = ("nobody", "forger", "expired", "revoked")

_ADMINS = {"namespace admin", "tenant admin", "superuser"}
MAY_ENTER: Mapping[Right, frozenset[str]] = {
    Right.PRODUCE: frozenset({"producer", *_ADMINS}),
    Right.CONSUME: frozenset({"consumer", *_ADMINS}),
    Right.LOOKUP: frozenset({"producer", "consumer", "looker", *_ADMINS, "system"}),
    Right.ADMIN: frozenset(_ADMINS),
    Right.SUPERUSER: frozenset({"superuser"}),
    Right.SYSTEM: frozenset({"system"}),
    Right.OBSERVE: frozenset({"superuser", "system"}),
    Right.KNOWN: VALID,
}
"""Who may enter by which right a door of `public/default` or below."""


def may_enter(right: Right, level: Level) -> frozenset[str]:
    """Who may enter a door of the tenant `public`, when the right must hold at this level."""
    return MAY_ENTER[right] - ({"namespace admin"} if level is Level.TENANT else set())


def make_callers() -> dict[str, str]:
    """Grant each kind of caller what its name says, and give their tokens; nobody has none."""
    for role, action in GRANTED.items():
        grants.grant(scope=NAMESPACE, role=role, actions=[action], actor="test")
    tenants.update_tenant(tenant="public", admin_roles=["tenant admin"], actor="test")
    tenants.create_tenant(tenant="elsewhere", admin_roles=["other tenant"], actor="test")
    revoked = tokens.issue_token(role="admin", actor="test")
    tokens.revoke_token(token_id=revoked.token_id, actor="test")
    given = {
        role: token_of(role) for role in (*GRANTED, "tenant admin", "other tenant", "stranger", "system")
    }
    return {
        **given,
        "superuser": token_of("admin"),
        "forger": "forged",
        "expired": access.mint_token(role="admin", ttl_seconds=-1),
        "revoked": revoked.token,
        "nobody": "",
    }


def token_of(role: str) -> str:
    """A token with an id, as those that are given out have."""
    return access.mint_token(role=role, token_id=str(uuid.uuid4()))
