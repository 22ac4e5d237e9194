"""What this node remembers as the leader of topics: who is connected, and since when not.

None of it is written down (PIP-468, Consumer Session Lifecycle). A consumer whose connection is lost keeps
its segments for the grace period; a new leader gives everyone a fresh one. The database refuses, by the
term, what a leader does that no longer is one.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from scalable.api.crowds import Gathered
from scalable.api.executor import Call
from scalable.domain.errors import (
    NoLeader,
    NotLeader,
    ScalableError,
    SubscriptionNotFound,
    TermSuperseded,
    TopicNotFound,
)
from scalable.domain.names import TopicName
from scalable.services import controller, nodes
from scalable.services.controller import Leader

logger = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""How long a topic without sessions is remembered."""

SessionKey = tuple[int, str]
"""A subscription's id and a consumer's name."""
Register = Callable[[], Coroutine[Any, Any, None]]
"""Writes a consumer's registration."""


class SessionState(StrEnum):
    """Whether a consumer is there, as far as this node knows."""

    CONNECTED = "connected"
    GRACE = "grace"
    UNKNOWN = "unknown"


class Connection(Protocol):
    """A socket that holds a consumer's session; `session_id` is the peer's name for it, "" if it has none."""

    session_id: str

    def fail(self, error: BaseException) -> None:
        """Tell the peer why, and close."""


@dataclass(slots=True)
class Session:
    """One consumer; `lock` keeps its registration and its expiry apart."""

    connection: Connection | None = None
    disconnected_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_left(self, session_id: str) -> bool:
        """Tell whether nobody has it, or only a connection of the same peer."""
        return self.connection is None or (session_id != "" and self.connection.session_id == session_id)


@dataclass(slots=True)
class Led:
    """A topic that this node leads."""

    leader: Leader
    asked_for_at: float
    sessions: dict[SessionKey, Session] = field(default_factory=dict)


class LeaderMemory:
    """The topics that this node leads and the sessions of their consumers; lives on the event loop."""

    def __init__(self, *, call: Call, clock: Callable[[], float]) -> None:
        self._call = call
        self._clock = clock
        self._led: dict[int, Led] = {}
        self._removals = Gathered(self._remove_all)

    @property
    def led(self) -> int:
        """Count the topics that this node believes to lead."""
        return len(self._led)

    async def lead(self, name: TopicName, *, node_id: uuid.UUID) -> Led:
        """Give the topic's sessions if this node leads it or can; raises NotLeader, TopicNotFound."""
        leadership = await self._call(controller.acquire_leadership, name=name, node_id=node_id)
        if not leadership.mine:
            error = NotLeader(topic=str(name), url=leadership.url)
            self._forget(leadership.incarnation, error)
            raise error
        leader = Leader(node_id, leadership.term, name, leadership.incarnation)
        led = self._led.get(leadership.incarnation)
        if led is None or led.leader != leader:
            led = await self._begin(leader)
        led.asked_for_at = self._clock()
        return led

    async def enter(
        self, led: Led, key: SessionKey, connection: Connection, register: Register
    ) -> Connection | None:
        """Register a consumer, then `connect`; raises NotLeader, and what `register` raises.

        A caller that ends meanwhile leaves a consumer whose grace period began.
        """
        async with self._holding(led, key):
            if self._led.get(led.leader.incarnation) is not led:
                raise NotLeader(topic=str(led.leader.topic), url="")
            await _finish(register())
            return self.connect(led, key, connection)

    async def enter_again(
        self, led: Led, key: SessionKey, connection: Connection, register: Register
    ) -> None:
        """Register a consumer whose registration was removed, if this connection still has the session."""
        async with self._holding(led, key) as session:
            if session.connection is connection:
                await _finish(register())

    def connect(self, led: Led, key: SessionKey, connection: Connection) -> Connection | None:
        """Make this connection the session's, and give the one that it takes the place of."""
        session = led.sessions.setdefault(key, Session())
        former, session.connection = session.connection, connection
        return None if former is connection else former

    def disconnect(self, led: Led, key: SessionKey, connection: Connection) -> None:
        """Begin the grace period, unless a newer connection has the session."""
        session = led.sessions.get(key)
        if session is not None and session.connection is connection:
            session.connection, session.disconnected_at = None, self._clock()

    def session(self, led: Led, key: SessionKey) -> Session:
        """The session of a consumer, which begins as disconnected."""
        return led.sessions.setdefault(key, Session(disconnected_at=self._clock()))

    def holds(self, led: Led, key: SessionKey, connection: Connection) -> bool:
        """Tell whether this connection has the session."""
        session = led.sessions.get(key)
        return session is not None and session.connection is connection

    def state(self, incarnation: int, key: SessionKey) -> SessionState:
        """What this node knows of a session: only a topic's leader knows anything."""
        led = self._led.get(incarnation)
        session = None if led is None else led.sessions.get(key)
        if session is None:
            return SessionState.UNKNOWN
        return SessionState.GRACE if session.connection is None else SessionState.CONNECTED

    async def leave(self, led: Led, key: SessionKey, connection: Connection) -> None:
        """End the session of this connection at once, unless a newer one has it by now.

        If that fails, its grace period still ends it. Raises TermSuperseded.
        """
        await self._end(led, key, lambda session: session.connection is connection)

    async def leave_former(self, led: Led, key: SessionKey, *, session_id: str) -> None:
        """End the session of a consumer at the word of who had it on a connection that broke for the peer.

        This node need not know that: the `session_id` tells it from a successor's. Raises TermSuperseded.
        """
        await self._end(led, key, lambda session: session.is_left(session_id))

    async def _end(self, led: Led, key: SessionKey, may_end: Callable[[Session], bool]) -> None:
        session = led.sessions.get(key)
        if session is None or not may_end(session):
            return
        async with self._holding(led, key) as session:
            if may_end(session):  # while the lock was awaited, somebody may have come back
                session.connection, session.disconnected_at = None, self._clock()
                await self._remove(led, key)

    @asynccontextmanager
    async def _holding(self, led: Led, key: SessionKey) -> AsyncIterator[Session]:
        """Hold the lock of the session that is remembered: one that ended while it was awaited is not."""
        while True:
            session = self.session(led, key)
            async with session.lock:
                if led.sessions.get(key) is session:
                    yield session
                    return

    async def sweep(self, *, node_id: uuid.UUID) -> None:
        """Give up what others lead, look after topics whose leader died, end sessions whose time is up."""
        await self._give_up_what_is_lost(node_id)
        for name in await self._call(controller.orphaned_topics):
            await self._adopt(name, node_id)
        grace_seconds = await self._graces()
        for led in list(self._led.values()):
            seconds = grace_seconds.get(led.leader.incarnation)
            over = [key for key, session in led.sessions.items() if self._is_over(session, seconds)]
            await asyncio.gather(*(self._expire(led, key, seconds) for key in over))
            if not led.sessions and self._clock() - led.asked_for_at > IDLE_SECONDS:
                self._led.pop(led.leader.incarnation, None)

    async def _give_up_what_is_lost(self, node_id: uuid.UUID) -> None:
        """Demote this node where it was too slow: nobody tells it, and its consumers belong elsewhere."""
        terms = {incarnation: led.leader.term for incarnation, led in self._led.items()}
        lost = await self._call(nodes.lost_leaderships, node_id=node_id, terms=terms) if terms else {}
        for incarnation, current_term in lost.items():
            led = self._led.get(incarnation)
            if led is not None and led.leader.term == terms[incarnation]:
                topic, term = str(led.leader.topic), terms[incarnation]
                self._forget(incarnation, TermSuperseded(topic=topic, term=term, current_term=current_term))

    async def _begin(self, leader: Leader) -> Led:
        led = Led(leader, asked_for_at=self._clock())
        for key in await self._call(controller.registrations, incarnation=leader.incarnation):
            led.sessions[key] = Session(disconnected_at=self._clock())
        known = self._led.get(leader.incarnation)
        if known is not None and known.leader == leader:  # another socket was faster
            return known
        self._forget(leader.incarnation, NotLeader(topic=str(leader.topic), url=""))
        self._led[leader.incarnation] = led
        return led

    async def _adopt(self, name: TopicName, node_id: uuid.UUID) -> None:
        try:
            await self.lead(name, node_id=node_id)
        except (NotLeader, NoLeader, TopicNotFound):
            return

    async def _graces(self) -> Mapping[int, float]:
        """Read the grace periods, in seconds, of the topics in which somebody is away."""
        away = [
            led.leader.incarnation
            for led in self._led.values()
            if any(session.connection is None for session in led.sessions.values())
        ]
        if not away:
            return {}
        found = await self._call(controller.session_graces, incarnations=away)
        return dict.fromkeys(away, 0.0) | found  # nobody waits for a deleted topic

    async def _expire(self, led: Led, key: SessionKey, grace_seconds: float | None) -> None:
        session = led.sessions.get(key)
        if session is None or not self._is_over(session, grace_seconds):
            return
        async with session.lock:
            # While the lock was awaited, it may have come back, or left and be here anew.
            if led.sessions.get(key) is session and self._is_over(session, grace_seconds):
                await self._try_to_remove(led, key)

    def _is_over(self, session: Session, grace_seconds: float | None) -> bool:
        if session.connection is not None or grace_seconds is None:
            return False
        return self._clock() - session.disconnected_at >= grace_seconds

    async def _try_to_remove(self, led: Led, key: SessionKey) -> None:
        try:
            await self._remove(led, key)
        except TermSuperseded as error:
            self._forget(led.leader.incarnation, error)
        except Exception:
            logger.exception("The session of %s could not be ended and is tried again", key)

    async def _remove(self, led: Led, key: SessionKey) -> None:
        subscription_id, consumer = key
        with suppress(SubscriptionNotFound):
            await self._removals.write((led.leader, subscription_id), consumer)
        led.sessions.pop(key, None)

    async def _remove_all(self, key: tuple[Leader, int], consumers: Sequence[str]) -> Sequence[None]:
        leader, subscription_id = key
        await self._call(
            controller.remove_consumers,
            leader=leader,
            subscription_id=subscription_id,
            consumers=consumers,
        )
        return [None] * len(consumers)

    def _forget(self, incarnation: int, error: ScalableError) -> None:
        """This node no longer leads the topic: its sessions are somebody else's."""
        led = self._led.pop(incarnation, None)
        for session in led.sessions.values() if led is not None else ():
            if session.connection is not None:
                session.connection.fail(error)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work to end, also when cancelled: its thread writes on, and who comes next must see it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
