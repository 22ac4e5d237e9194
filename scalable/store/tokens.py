"""Rows of tokens that were given out; the tokens themselves are kept nowhere."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from scalable.access_models import ServiceToken
from scalable.domain.errors import TokenNotFound
from scalable.store.clock import ClockTimestamp, milliseconds, optional_milliseconds


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token by its id, the `jti` of its claims."""

    token_id: str
    role: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None


def insert(token_id: str, *, role: str, created_by: str, expires_at: datetime | None) -> None:
    """Note that a token is given out."""
    ServiceToken.objects.create(
        token_id=token_id,
        role=role,
        created_by=created_by,
        created_at=ClockTimestamp(),
        expires_at=expires_at,
    )


def note_foreign(token_id: str, *, role: str, noted_by: str) -> None:
    """Note a token that somebody else signed, unless it is noted."""
    row = ServiceToken(token_id=token_id, role=role, created_by=noted_by, created_at=ClockTimestamp())
    ServiceToken.objects.bulk_create([row], ignore_conflicts=True)


def knows(token_id: str) -> bool:
    """Tell whether a token of this id was given out."""
    return ServiceToken.objects.filter(token_id=token_id).exists()


def count() -> int:
    """Count all tokens that are remembered."""
    return ServiceToken.objects.count()


def page(*, limit: int, offset: int) -> list[TokenView]:
    """A page of the tokens, the newest first."""
    return [_view(row) for row in ServiceToken.objects.order_by("-pk")[offset : offset + limit]]


def revoke(token_id: str) -> tuple[TokenView, bool]:
    """Revoke a token for ever, and tell whether that is new; raises TokenNotFound."""
    revoked = ServiceToken.objects.filter(token_id=token_id, revoked_at=None).update(
        revoked_at=ClockTimestamp()
    )
    row = ServiceToken.objects.filter(token_id=token_id).first()
    if row is None:
        raise TokenNotFound(token_id=token_id)
    return _view(row), bool(revoked)


def lock_of_roles(roles: Collection[str]) -> list[str]:
    """Lock the tokens of these roles that were not revoked until the transaction ends, and give their ids."""
    rows = ServiceToken.objects.select_for_update().filter(role__in=list(roles), revoked_at=None)
    return list(rows.order_by("pk").values_list("token_id", flat=True))


def forget_expired(*, before: datetime) -> int:
    """Drop tokens that expired before a time, which nobody can use; in a transaction."""
    rows = ServiceToken.objects.filter(expires_at__lt=before)
    list(rows.select_for_update().order_by("pk").values_list("pk"))  # locked in the order of all
    return rows.delete()[0]


def _view(row: ServiceToken) -> TokenView:
    return TokenView(
        row.token_id,
        row.role,
        row.created_by,
        milliseconds(row.created_at),
        optional_milliseconds(row.expires_at),
        optional_milliseconds(row.revoked_at),
    )
