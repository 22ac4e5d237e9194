"""Service tokens: given out, listed, revoked."""

import time
import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction

from scalable.domain.access import Subject, validate_role
from scalable.domain.errors import AccessFull, TokenNotFound, Unauthenticated
from scalable.domain.names import validate_part
from scalable.services import access, auditing, rules
from scalable.store import tokens as store
from scalable.store.clock import database_now, moment
from scalable.store.tokens import TokenView

MAX_TOKEN_ID_LENGTH = 64
KEPT_AFTER_EXPIRY = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token; this is the only time that it is shown."""

    token_id: str
    role: str
    token: str
    expires_at_ms: int | None


def issue_token(
    *, role: str, ttl_seconds: float | None = None, actor: str, is_limited: bool = True
) -> IssuedToken:
    """Give out a token for a role, for ever or for `ttl_seconds`; raises InvalidName, AccessFull.

    Without the limit for those few without which nothing starts.
    """
    validate_role(role)
    token_id = str(uuid.uuid4())
    expires_at = None if ttl_seconds is None else int(time.time() + ttl_seconds)
    with transaction.atomic():
        if is_limited:
            _make_room()
        store.insert(
            token_id,
            role=role,
            created_by=actor,
            expires_at=None if expires_at is None else moment(expires_at * 1000),
        )
        auditing.record(
            "token.issue", f"tokens/{token_id}", actor=actor, after={"role": role, "expiresAt": expires_at}
        )
    claims = {"sub": role, "jti": token_id, **({} if expires_at is None else {"exp": expires_at})}
    return IssuedToken(token_id, role, access.sign(claims), None if expires_at is None else expires_at * 1000)


def listed(*, token: str) -> Subject | None:
    """The subject of a token that holds and was given out here, so that it is listed and can be revoked."""
    try:
        subject = access.authenticate(token=token)
    except Unauthenticated:
        return None
    return subject if subject.token_id and store.knows(subject.token_id) else None


def list_tokens(*, limit: int, offset: int = 0) -> tuple[list[TokenView], int]:
    """A page of the tokens that were given out, the newest first, and how many there are."""
    return store.page(limit=limit, offset=offset), store.count()


def revoke_token(*, token_id: str, role: str = "", actor: str) -> TokenView:
    """Let a token open no door any more, and close what it opened.

    With a role also one that somebody else signed, which is listed from then on, for ever. Raises
    TokenNotFound, InvalidName.
    """
    if len(token_id) > MAX_TOKEN_ID_LENGTH or not token_id.isprintable():
        raise TokenNotFound(token_id=token_id[:MAX_TOKEN_ID_LENGTH])
    with transaction.atomic():
        if role and not store.knows(token_id):
            validate_part(role, "role")
            store.note_foreign(token_id, role=role, noted_by=actor)
        revoked, is_new = store.revoke(token_id)
        if is_new:
            auditing.record("token.revoke", f"tokens/{token_id}", actor=actor, before={"role": revoked.role})
            rules.changed()
    return revoked


def _make_room() -> None:
    if store.count() >= settings.SCALABLE_MAX_TOKENS:
        store.forget_expired(before=database_now() - KEPT_AFTER_EXPIRY)
        if store.count() >= settings.SCALABLE_MAX_TOKENS:
            raise AccessFull(kind="tokens", limit=settings.SCALABLE_MAX_TOKENS)
