"""Who asks, and what they may do: bearer tokens (JWT, HS256) name a role, and roles have rights."""

import time

import jwt
from django.conf import settings

from scalable.domain.access import Right, Scope, Subject, allowed
from scalable.domain.errors import Forbidden, Unauthenticated
from scalable.domain.names import validate_part

ALGORITHM = "HS256"
ADMIN_ROLE = "admin"
SYSTEM_ROLE = "system"
ANYWHERE = Scope()


def subject_of_role(role: str) -> Subject:
    """The subject that a token of this role speaks for; a role nobody knows has no rights."""
    return Subject(role, superuser=role == ADMIN_ROLE, system=role == SYSTEM_ROLE)


def authenticate(*, token: str) -> Subject:
    """The subject of a bearer token; raises Unauthenticated."""
    try:
        claims = jwt.decode(
            token, settings.SCALABLE_TOKEN_SECRET, algorithms=[ALGORITHM], options={"require": ["sub"]}
        )
    except jwt.ExpiredSignatureError as error:
        raise Unauthenticated(problem="the token has expired") from error
    except jwt.InvalidSignatureError as error:
        raise Unauthenticated(problem="the token was signed by somebody else") from error
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(problem=f"the token cannot be read ({error})") from error
    return subject_of_role(claims["sub"])


def require(*, subject: Subject | None, right: Right, scope: Scope = ANYWHERE) -> Subject:
    """Give the subject back if it has the right in the scope; raises Unauthenticated, Forbidden."""
    if subject is None:
        raise Unauthenticated(problem="there is none")
    if not allowed(subject, right, scope, {}):
        raise Forbidden(role=subject.role, right=right.value)
    return subject


def mint_token(*, role: str, ttl_seconds: float | None = None) -> str:
    """A bearer token for the role, for ever or for `ttl_seconds`; raises InvalidName."""
    claims: dict[str, object] = {"sub": validate_part(role, "role")}
    if ttl_seconds is not None:
        claims["exp"] = int(time.time() + ttl_seconds)
    return jwt.encode(claims, settings.SCALABLE_TOKEN_SECRET, algorithm=ALGORITHM)
