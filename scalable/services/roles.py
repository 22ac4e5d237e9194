"""What a role has when its user goes or gets another name: grants, tenants, tokens, idempotency keys."""

from collections.abc import Collection, Mapping

from django.db import transaction

from scalable.domain.names import validate_part
from scalable.services import grants, tenants, tokens
from scalable.store import access as granted
from scalable.store import idempotency as keys
from scalable.store import tenants as administered
from scalable.store import tokens as shown


def forget(*, roles: Collection[str], actor: str) -> None:
    """Take away all that these roles have: whoever comes to such a name later begins with nothing."""
    _leave(dict.fromkeys(roles), actor)


def rename(*, role: str, to: str, actor: str) -> None:
    """Hand on what a role has, to what its new name has already; raises InvalidName.

    Tokens name the former role for ever: they are revoked.
    """
    _leave({role: validate_part(to, "role")}, actor)


def _leave(heirs: Mapping[str, str | None], actor: str) -> None:
    with transaction.atomic():
        # All rows are locked before one changes: everybody's change waits for the stamp of the one before.
        held = administered.lock_of_roles(heirs)
        rows = granted.lock_grants_of({*heirs, *filter(None, heirs.values())})
        token_ids = shown.lock_of_roles(heirs)
        for tenant in held:
            if not heirs.keys().isdisjoint(tenant.admin_roles):
                left = [heir for role in tenant.admin_roles if (heir := heirs.get(role, role))]
                tenants.update_tenant(tenant=tenant.name, admin_roles=left, actor=actor)
        for scope, role in rows:
            if role in heirs:
                grants.hand_on(scope=scope, role=role, heir=heirs[role], actor=actor)
        for token_id in token_ids:
            tokens.revoke_token(token_id=token_id, actor=actor)
        # The rows that requests mark when all else is done come last here, too.
        for role, heir in sorted(heirs.items()):
            keys.hand_on(role, heir=heir)
