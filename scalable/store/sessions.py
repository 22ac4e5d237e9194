"""Sessions of the dashboard, asked for many at once."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session

from scalable.domain.access import role_of_user
from scalable.store.clock import ClockTimestamp


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session that is alive, as far as its user goes."""

    role: str
    superuser: bool
    auth_hash: str


def living_sessions(users: Mapping[str, str]) -> dict[str, SessionState]:
    """Of these sessions, each with its user's id: those that have not ended and whose user is active."""
    keys = Session.objects.filter(session_key__in=list(users), expire_date__gt=ClockTimestamp())
    alive = set(keys.values_list("session_key", flat=True))
    active = get_user_model()._default_manager.filter(pk__in=set(users.values()), is_active=True)
    states = {
        str(user.pk): SessionState(
            role_of_user(user.get_username()), user.is_superuser, user.get_session_auth_hash()
        )
        for user in active
    }
    return {key: states[user] for key, user in users.items() if key in alive and user in states}
