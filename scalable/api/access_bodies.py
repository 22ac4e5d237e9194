"""What REST reads and answers about grants and tokens."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from scalable.api.serializers import Body
from scalable.services.tokens import IssuedToken
from scalable.store.tokens import TokenView

SHORTEST_TTL_SECONDS = 0.001
LONGEST_TTL_SECONDS = 100 * 366 * 24 * 3600
Action = Literal["produce", "consume", "lookup", "admin"]
Actions = Annotated[list[Action], Meta(min_length=1, max_length=4)]
Permissions = dict[str, list[Action]]
"""The actions of each role."""


class MintBody(Body):
    """For which role, and for how many seconds; `null` is for ever."""

    role: Annotated[str, Meta(min_length=1, max_length=255)]
    ttl_seconds: Annotated[float, Meta(ge=SHORTEST_TTL_SECONDS, le=LONGEST_TTL_SECONDS)] | None = None


class IssuedBody(Body):
    """A new token, shown this once."""

    id: str
    role: str
    token: str
    expires_at_ms: int | None


class TokenBody(Body):
    """A token that was given out, without the token itself."""

    id: str
    role: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None


class TokensBody(Body):
    """A page of the tokens, the newest first, and how many there are."""

    tokens: list[TokenBody]
    total: int


def issued_body(issued: IssuedToken) -> dict[str, Any]:
    """Write a new token."""
    return {
        "id": issued.token_id,
        "role": issued.role,
        "token": issued.token,
        "expiresAtMs": issued.expires_at_ms,
    }


def token_body(view: TokenView) -> dict[str, Any]:
    """Write a token of a list."""
    return {
        "id": view.token_id,
        "role": view.role,
        "createdBy": view.created_by,
        "createdAtMs": view.created_at_ms,
        "expiresAtMs": view.expires_at_ms,
        "revokedAtMs": view.revoked_at_ms,
    }
