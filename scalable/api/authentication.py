"""Who asks over REST: a bearer token or the dashboard's session; and whether the door lets them in."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from scalable import trace
from scalable.api.doors import Door
from scalable.api.errors import AUTHENTICATE_HEADER
from scalable.api.observing import ACTOR
from scalable.api.rates import counted_address, rates
from scalable.domain.access import Scope, Subject, role_of_user
from scalable.domain.errors import Unauthenticated
from scalable.services import access

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
    from rest_framework.views import APIView

SCHEME = b"bearer"


class TokenUser:
    """What Django calls a user, for a request that came with a token."""

    is_authenticated: ClassVar[bool] = True
    is_active: ClassVar[bool] = True

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __str__(self) -> str:
        return self.subject.role


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`; raises Unauthenticated when there is a token that is no good."""

    def authenticate(self, request: Request) -> tuple[TokenUser, str] | None:
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != SCHEME:
            return None
        try:
            return _user_of(parts)
        except Unauthenticated:
            rates.take(f"address {counted_address(request.META.get('REMOTE_ADDR', ''))}")
            raise

    def authenticate_header(self, request: Request) -> str:
        return AUTHENTICATE_HEADER


def _user_of(header: list[bytes]) -> tuple[TokenUser, str]:
    if len(header) != 2:
        raise Unauthenticated(problem="the header is not 'Bearer <token>'")
    token = header[1].decode("latin-1")
    return TokenUser(access.authenticate(token=token)), token


def subject_of_user(user: "TokenUser | AbstractBaseUser | AnonymousUser") -> Subject | None:
    """The subject behind a request's or a session's user; None when nobody logged in."""
    if isinstance(user, TokenUser):
        return user.subject
    if not user.is_authenticated or not user.is_active:
        return None
    role = role_of_user(user.get_username())
    return Subject(role, superuser=bool(getattr(user, "is_superuser", False)))


class HasRight(BasePermission):
    """The subject has the right that the view's door of this method names; no door, no entry."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        subject = subject_of_user(request.user)
        if subject is None:
            raise Unauthenticated(problem="there is none")
        rates.take(f"role {subject.role}")
        doors: Mapping[str, Door] = getattr(view, "doors", {})
        door = doors.get("GET" if request.method == "HEAD" else str(request.method))
        if door is None:
            raise MethodNotAllowed(str(request.method))
        trace.name_actor(subject.role)
        getattr(request._request, "scope", {})[ACTOR] = subject.role
        access.require(subject=subject, right=door.right, scope=Scope.of_path(view.kwargs, door.level))
        return True


def subject_of(request: Request) -> Subject:
    """The subject of a request that a door has let in; raises Unauthenticated without one."""
    subject = subject_of_user(request.user)
    if subject is None:
        raise Unauthenticated(problem="there is none")
    return subject


def actor_of(request: Request) -> str:
    """The name under which a change is recorded."""
    subject = subject_of_user(request.user)
    return subject.role if subject else ""
