"""Who may do what where: rights, the scopes that they hold in, and what one right implies.

A grant on a tenant holds in all its namespaces, one on a namespace for all its topics. Names are compared as
they are written, so a scope may name what does not exist: who has no right learns nothing of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scalable.domain.errors import InvalidName
from scalable.domain.names import validate_part

SYSTEM_TENANT = "system"
"""Its topics belong to the product's own machinery alone."""


def role_of_user(name: str) -> str:
    """The role of a user of the dashboard, to which grants are made."""
    return f"user:{name}"


def validate_role(role: str) -> str:
    """Give back a role that may be given rights; raises InvalidName, also for one that looks like another."""
    if role != role.strip():
        raise InvalidName(field="role", value=role, problem="it begins or ends with a space")
    return validate_part(role, "role")


class Right(StrEnum):
    """What a door asks for: the first four in the scope that its path names, the others as such."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "lookup"
    ADMIN = "admin"
    SUPERUSER = "superuser"
    SYSTEM = "system"
    OBSERVE = "observe"
    """A superuser, or the product's own machinery: figures of the whole instance."""
    KNOWN = "known"
    """Any valid token or session; what is answered is no secret, or is cut to the subject's rights."""


GRANTABLE = frozenset({Right.PRODUCE, Right.CONSUME, Right.LOOKUP, Right.ADMIN})
"""What a grant may hold."""

_IMPLIED = {
    Right.PRODUCE: frozenset({Right.PRODUCE, Right.LOOKUP}),
    Right.CONSUME: frozenset({Right.CONSUME, Right.LOOKUP}),
    Right.LOOKUP: frozenset({Right.LOOKUP}),
    Right.ADMIN: GRANTABLE,
}


class Level(StrEnum):
    """How much of the name space a scope covers."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """A tenant, a namespace of it, or a topic of that; the empty strings stand for all of them."""

    tenant: str = ""
    namespace: str = ""
    topic: str = ""

    @classmethod
    def of_path(cls, path: Mapping[str, str], level: Level = Level.TOPIC) -> Scope:
        """The scope that the parts of a path name, down to the level; parts are not checked."""
        depth = list(Level).index(level) + 1
        return cls(*(path.get(part.value, "") for part in list(Level)[:depth]))

    @property
    def is_system(self) -> bool:
        """True inside the tenant of the product's own machinery."""
        return self.tenant == SYSTEM_TENANT

    @property
    def around(self) -> tuple[Scope, ...]:
        """The scopes whose grants hold here: the tenant, the namespace, the topic."""
        parts = (self.tenant, self.namespace, self.topic)
        return tuple(Scope(*parts[:depth]) for depth in (1, 2, 3) if parts[depth - 1])


Grants = Mapping[Scope, frozenset[Right]]
"""What a role was granted, by scope."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whoever asks: a role, and whether it is a superuser or the product's own machinery."""

    role: str
    superuser: bool = False
    system: bool = False
    token_id: str = ""
    """The id (`jti`) of the token that speaks for it; the empty one cannot be revoked by itself."""
    expires_at_seconds: float | None = None
    """When its token expires, in seconds since the epoch; None is never."""


def allowed(subject: Subject, right: Right, scope: Scope, grants: Grants) -> bool:
    """True when the subject, whose role was granted `grants`, has the right in the scope."""
    match right:
        case Right.KNOWN:
            return True
        case Right.SUPERUSER:
            return subject.superuser
        case Right.SYSTEM:
            return subject.system
        case Right.OBSERVE:
            return subject.superuser or subject.system
    if scope.is_system:
        return subject.system or (subject.superuser and right is Right.LOOKUP)
    if subject.superuser or (subject.system and right is Right.LOOKUP):
        return True
    return any(right in implied(grants.get(each, frozenset())) for each in scope.around)


def implied(actions: frozenset[Right]) -> frozenset[Right]:
    """The rights that actions give: to administer is to do all; to produce or consume is to look, too."""
    return frozenset().union(*(_IMPLIED[action] for action in actions))
