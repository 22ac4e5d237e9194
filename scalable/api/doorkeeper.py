"""Who is inside: every open socket with what let it in; whoever may stay no longer is turned out.

What was granted is checked again whenever the rules were read anew, which a notice or the slow pace brings
about; sessions of the dashboard are asked for at that pace, all with one statement.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from django.conf import settings

from scalable.api.executor import Call
from scalable.api.hub import access_key, hub
from scalable.domain.access import Right, Scope, Subject
from scalable.domain.errors import ScalableError, TooManyRequests, Unauthenticated
from scalable.services import access
from scalable.services.rules import rules
from scalable.store.access import Rules
from scalable.store.sessions import SessionState, living_sessions

logger = logging.getLogger(__name__)

GUESTS_PER_TURN = 500
RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Session:
    """A login of the dashboard: its key, its user, and the mark that a change of password changes."""

    key: str
    user_id: str
    auth_hash: str


@dataclass(frozen=True, slots=True)
class Pass:
    """What let somebody in: a subject with a right in a scope; the session when no token was shown."""

    subject: Subject
    right: Right
    scope: Scope
    session: Session | None = None


class Guest(Protocol):
    """An open socket."""

    def turn_out(self, error: ScalableError) -> None:
        """Close now, with this error."""


class Doorkeeper:
    """The open sockets of this node."""

    def __init__(self) -> None:
        self._guests: dict[Guest, Pass] = {}
        self._of_role: Counter[str] = Counter()
        self._checked: Rules | None = None

    def __len__(self) -> int:
        return len(self._guests)

    def admit(self, guest: Guest, shown: Pass) -> None:
        """Let a guest in; raises Unauthenticated, Forbidden, TooManyRequests.

        Rules that are read later are a new object, which `check` holds against every guest.
        """
        _check(shown, rules.latest)
        _check_room(len(self._guests), settings.SCALABLE_MAX_SOCKETS)
        _check_room(self._of_role[shown.subject.role], settings.SCALABLE_MAX_SOCKETS_PER_ROLE)
        self._guests[guest] = shown
        self._of_role[shown.subject.role] += 1

    def part(self, guest: Guest) -> None:
        """Forget a guest that left."""
        shown = self._guests.pop(guest, None)
        if shown is not None:
            self._of_role[shown.subject.role] -= 1
            if not self._of_role[shown.subject.role]:
                del self._of_role[shown.subject.role]

    async def run(self, call: Call) -> None:
        """Look after the guests for as long as the node serves."""
        with hub.watch(access_key()) as watch:
            while True:
                await self.check(call)
                await watch.wait(settings.SCALABLE_ACCESS_RESYNC_SECONDS / 2)

    async def check(self, call: Call) -> None:
        """Turn out whoever may stay no longer; raises what the database raises."""
        known = await call(rules.refresh)
        if known is not self._checked:
            await self._check_rules(known)
            self._checked = known
        sessions = {guest: shown.session for guest, shown in self._guests.items() if shown.session}
        if sessions:
            users = {session.key: session.user_id for session in sessions.values()}
            alive = await call(living_sessions, users)
            for guest, session in sessions.items():
                self._check_session(guest, session, alive.get(session.key))

    async def _check_rules(self, known: Rules) -> None:
        for number, (guest, shown) in enumerate(tuple(self._guests.items()), start=1):
            try:
                _check(shown, known)
            except ScalableError as error:
                self._turn_out(guest, error)
            if number % GUESTS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _check_session(self, guest: Guest, session: Session, state: SessionState | None) -> None:
        shown = self._guests.get(guest)
        if shown is None:
            return
        if state is None or state.auth_hash != session.auth_hash:
            self._turn_out(guest, Unauthenticated(problem="the login has ended"))
        elif (state.role, state.superuser) != (shown.subject.role, shown.subject.superuser):
            self._turn_out(guest, Unauthenticated(problem="the user's name or standing has changed"))

    def _turn_out(self, guest: Guest, error: ScalableError) -> None:
        logger.info("A socket is closed: %s", error.reason)
        guest.turn_out(error)


def _check(shown: Pass, known: Rules) -> None:
    access.check_revoked(subject=shown.subject, known=known)
    access.require(subject=shown.subject, right=shown.right, scope=shown.scope, known=known)


def _check_room(taken: int, limit: int) -> None:
    if taken >= limit:
        raise TooManyRequests(limit=limit, retry_after_seconds=RETRY_AFTER_SECONDS)


doorkeeper = Doorkeeper()
