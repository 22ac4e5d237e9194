"""Who asks, and what they may do: bearer tokens (JWT, HS256 or RS256) name a role, and roles have rights."""

import time
from typing import Any

import jwt
from django.conf import settings

from scalable.domain.access import GRANTABLE, Right, Scope, Subject, allowed, validate_role
from scalable.domain.errors import Forbidden, InvalidName, Unauthenticated
from scalable.domain.names import validate_part
from scalable.services.rules import rules
from scalable.store.access import Rules

OWN_ALGORITHM = "HS256"
FOREIGN_ALGORITHM = "RS256"
ADMIN_ROLE = "admin"
SYSTEM_ROLE = "system"
ANYWHERE = Scope()


def subject_of_role(role: str, *, token_id: str = "", expires_at_seconds: float | None = None) -> Subject:
    """The subject that a token of this role speaks for."""
    return Subject(
        role,
        superuser=role in settings.SCALABLE_SUPERUSER_ROLES,
        system=role == SYSTEM_ROLE,
        token_id=token_id,
        expires_at_seconds=expires_at_seconds,
    )


def read_token(*, token: str) -> Subject:
    """The subject of a bearer token that is signed and has not expired; raises Unauthenticated.

    Whether it was revoked is not asked: see `check_revoked`.
    """
    try:
        algorithm = jwt.get_unverified_header(token).get("alg")
        claims = jwt.decode(
            token, _key_of(algorithm), algorithms=[str(algorithm)], options={"require": ["sub"]}
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated(problem="the token has expired") from error
    except jwt.InvalidSignatureError as error:
        raise Unauthenticated(problem="the token was signed by somebody else") from error
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(problem=f"the token cannot be read ({error})") from error
    return _subject_of_claims(claims)


def _subject_of_claims(claims: dict[str, Any]) -> Subject:
    """The subject of claims whose signature holds: others sign, too, and may write whatever they like."""
    expiry = claims.get("exp")
    try:
        return subject_of_role(
            validate_part(claims["sub"], "role"),
            token_id=str(claims.get("jti", "")),
            expires_at_seconds=None if expiry is None else float(expiry),
        )
    except InvalidName as error:
        raise Unauthenticated(problem="its 'sub' is no name of a role") from error
    except OverflowError as error:
        raise Unauthenticated(problem="its 'exp' is no time") from error


def check_revoked(*, subject: Subject, known: Rules | None = None) -> None:
    """Raise Unauthenticated when the subject's token was revoked; `known` are the rules, if at hand."""
    if subject.token_id and subject.token_id in (known or rules.current()).revoked:
        raise Unauthenticated(problem="the token was revoked")


def authenticate(*, token: str) -> Subject:
    """The subject of a bearer token that holds; raises Unauthenticated."""
    subject = read_token(token=token)
    check_revoked(subject=subject)
    return subject


def may(*, subject: Subject, right: Right, scope: Scope = ANYWHERE, known: Rules | None = None) -> bool:
    """True when the subject has the right in the scope; `known` are the rules, if at hand."""
    if needs_rules(subject, right):
        return allowed(subject, right, scope, (known or rules.current()).grants.get(subject.role, {}))
    return allowed(subject, right, scope, {})


def needs_rules(subject: Subject, right: Right) -> bool:
    """True when what was granted decides; superusers and the system role depend on no grant."""
    return right in GRANTABLE and not (subject.superuser or subject.system)


def require(
    *, subject: Subject | None, right: Right, scope: Scope = ANYWHERE, known: Rules | None = None
) -> Subject:
    """Give the subject back if it has the right in the scope; raises Unauthenticated, Forbidden.

    Unless the rules are given, a refusal compares them with the stamp first: what was granted through another
    node holds at once.
    """
    if subject is None:
        raise Unauthenticated(problem="there is none")
    if may(subject=subject, right=right, scope=scope, known=known):
        return subject
    if known is None and needs_rules(subject, right):
        return require(subject=subject, right=right, scope=scope, known=rules.refresh())
    raise Forbidden(role=subject.role, right=right.value)


def visible_scopes(*, subject: Subject) -> frozenset[Scope] | None:
    """The scopes in which the subject was granted anything, for lists over several; None is everywhere."""
    if subject.superuser or subject.system:
        return None
    return frozenset(rules.current().grants.get(subject.role, {}))


def sign(claims: dict[str, Any]) -> str:
    """A token with these claims, signed with this installation's secret."""
    return jwt.encode(claims, settings.SCALABLE_TOKEN_SECRET, algorithm=OWN_ALGORITHM)


def mint_token(*, role: str, ttl_seconds: float | None = None, token_id: str = "") -> str:
    """A bearer token for the role, for ever or for `ttl_seconds`; raises InvalidName.

    Without an id the token cannot be revoked by itself.
    """
    claims: dict[str, object] = {"sub": validate_role(role)}
    if ttl_seconds is not None:
        claims["exp"] = int(time.time() + ttl_seconds)
    if token_id:
        claims["jti"] = token_id
    return sign(claims)


def _key_of(algorithm: str | None) -> str:
    """The key that checks tokens of an algorithm: an attacker who names another one meets another key."""
    if algorithm == OWN_ALGORITHM:
        return settings.SCALABLE_TOKEN_SECRET
    if algorithm == FOREIGN_ALGORITHM and settings.SCALABLE_TOKEN_PUBLIC_KEY:
        return settings.SCALABLE_TOKEN_PUBLIC_KEY
    raise jwt.InvalidAlgorithmError(f"the algorithm {algorithm} is not taken")
