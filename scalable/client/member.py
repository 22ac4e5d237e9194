"""A member of a subscription whose segments the topic's controller assigns: session, links, messages."""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import abstractmethod

from scalable.client.connection import (
    Backoff,
    Connection,
    ConnectionLost,
    Endpoint,
    Urls,
    error_of,
    first_to_end,
    keep_running,
    logger,
    open_connection,
)
from scalable.client.consume_link import ConsumeLink
from scalable.client.inbox import Inbox, Message
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.client.receiver import Receiver
from scalable.client.time_limit import time_limit
from scalable.domain.errors import (
    GenerationSuperseded,
    NotLeader,
    SegmentNotOwned,
    SubscriptionNotFound,
    TopicDeleted,
    TopicNotFound,
)
from scalable.domain.names import TopicName
from scalable.wire.frames import (
    Assignment,
    ErrorFrame,
    Frame,
    Leave,
    Register,
)

DEFAULT_PREFETCH_MESSAGES = 1_000
LEAVE_SECONDS = 5.0
"""How long the leave may take, in addition to what is made durable before it."""
LEAVE_PAUSE_SECONDS = 1.0
"""The longest wait between attempts to leave: the next leader must hear of it in time."""
CLOSE_LEFT = 1000
"""How the server closes once a leave is a fact."""


class Member(Receiver[Message]):
    """What stream and checkpoint consumers share; each says how it registers and gives segments up."""

    def __init__(
        self,
        url: Urls,
        topic: TopicName | str,
        subscription: str,
        token: str,
        *,
        name: str | None,
        prefetch_messages: int | Prefetch,
    ) -> None:
        super().__init__()
        self.name = name or f"consumer-{uuid.uuid4().hex[:12]}"
        self.topic = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
        self.subscription = subscription
        self._membership = Membership(self.name, self.topic, subscription)
        self._endpoint = Endpoint(url, token)
        self._leader_url: str | None = None
        self._prefetch = Prefetch.of(prefetch_messages)
        self._inbox = self._make_inbox()
        self._links: dict[str, tuple[ConsumeLink, asyncio.Task[None]]] = {}
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._closing = self._said_goodbye = False

    # What each kind of member does in its own way

    @abstractmethod
    def _registration(self) -> Register:
        """Give the frame that joins the subscription; asked for again with each new session."""

    @abstractmethod
    async def _give_up_segments(self, connection: Connection) -> None:
        """Tell the controller of segments that are done with; called after every change."""

    @abstractmethod
    async def _finish(self) -> None:
        """Make durable what must be before this member leaves."""

    def _make_inbox(self) -> Inbox:
        """Make what keeps the messages of each segment."""
        return Inbox(self.topic)

    async def _say_farewell(self, connection: Connection) -> None:
        """Tell the controller what it needs to know before the leave; nothing, unless a kind says so."""
        return

    def _take(self, frame: Frame) -> None:
        """Take a frame of the controller that is neither an assignment nor an error; others are ignored."""
        return

    # Life

    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Register and wait for the first assignment.

        Raises TopicNotFound, SubscriptionTypeMismatch, Unauthenticated, Forbidden, ConnectionLost,
        TimeoutError; RuntimeError for a second start.
        """
        self._begin()
        self._task = asyncio.create_task(self._control(), name=f"consumer {self.name}")
        try:
            async with self._backoff.within(timeout_seconds):
                await self._wait_until_assigned()
        except BaseException:
            await self._stop()
            raise

    async def _wait_until_assigned(self) -> None:
        while self._membership.incarnation is None:
            self._raise_failure()
            await self._changed.wait()

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Make durable what is done and leave the subscription, so that others take over at once.

        What is not durable within that time is delivered again; it leaves all the same, which may take 5 s
        longer. While nobody leads the topic it waits for the next leader. When that comes too late, its place
        is kept for the grace period, as after a crash.
        """
        self._closing = True
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_seconds + min(timeout_seconds, LEAVE_SECONDS)
        try:
            if self._failure is None and self._task is not None:
                await self._finish_within(timeout_seconds)
                await self._leave(self._task, deadline - now())
        except (ConnectionLost, SubscriptionNotFound) as error:
            logger.info("consumer %s left without goodbye: %s", self.name, error)
        finally:
            await self._stop()

    async def _finish_within(self, seconds: float) -> None:
        try:
            async with time_limit(seconds):
                await self._finish()
        except TimeoutError:  # answers may stand behind megabytes of deliveries, but not the leave
            logger.info("consumer %s: not all that is done became durable", self.name)

    async def _leave(self, session: asyncio.Task[None], seconds: float) -> None:
        self._leaving = True
        self._backoff.hasten(LEAVE_PAUSE_SECONDS)
        self._pulse()
        _, waiting = await asyncio.wait([session], timeout=seconds)
        if waiting:
            logger.warning("consumer %s: nobody took its leave; its place is kept for the grace", self.name)

    async def _stop(self) -> None:
        self._leaving = True
        tasks = [task for _, task in self._links.values()] + ([self._task] if self._task else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(ConnectionLost(1000, "the consumer was closed"))

    # Messages

    def _next_message(self) -> Message | None:
        message = None if self._leaving else self._inbox.next_message()
        if message is not None:
            self._wake_links()
        return message

    @property
    def owned_segments(self) -> tuple[int, ...]:
        """Give the ids of the segments that this consumer owns now."""
        return tuple(held.segment_id for held in self._inbox.owned.values())

    @property
    def segment_count(self) -> int:
        """Count the segments, or entry buckets, that this consumer owns now."""
        return len(self._inbox.owned)

    @property
    def standby(self) -> bool:
        """Tell whether there are more members than segments, and this one waits."""
        return self._inbox.standby

    # The controller session

    async def _control(self) -> None:
        try:
            await keep_running(self._session, backoff=self._backoff, what=f"consumer {self.name}")
        except TopicNotFound as error:
            known = self._membership.incarnation is not None
            self._fail(TopicDeleted(topic=str(self.topic)) if known else error)
        except Exception as error:
            self._fail(error)

    async def _session(self) -> None:
        hello = self._membership.hello()
        endpoint, self._leader_url = self._endpoint.at(self._leader_url), None
        try:
            connection = await open_connection(
                endpoint, "controller", self.topic, self.subscription, hello=hello
            )
        except NotLeader as elsewhere:
            self._leader_url = elsewhere.url
            raise
        self._said_goodbye = False
        try:
            if self._closing and self._membership.subscription_id:
                # To register would end a successor that has the name by now; to acknowledge needs none.
                await first_to_end(self._take_frames(connection), self._leave_in_time(connection))
            else:
                await connection.send(self._registration())
                await first_to_end(self._take_frames(connection), self._report(connection))
        except NotLeader as elsewhere:
            self._leader_url = elsewhere.url
            raise
        except ConnectionLost as lost:
            # Any other end may have come before the leave was a fact: the next leader is told again.
            if not self._said_goodbye or lost.close_code != CLOSE_LEFT:
                raise
        finally:
            await connection.close()

    async def _take_frames(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            if isinstance(frame, Assignment):
                self._backoff.reset()
                self._adopt(frame)
            elif isinstance(frame, ErrorFrame):
                self._refused(frame)
            elif isinstance(frame, Frame):
                self._take(frame)

    def _refused(self, frame: ErrorFrame) -> None:
        error = error_of(frame)
        # In a hand-over what was given up may have been taken away meanwhile; the next assignment says so.
        ordinary = isinstance(error, GenerationSuperseded | SegmentNotOwned)
        logger.log(logging.DEBUG if ordinary else logging.WARNING, "consumer %s: %s", self.name, error)

    def _adopt(self, assignment: Assignment) -> None:
        self._membership.learn(assignment.incarnation, assignment.subscription_id)
        if self._inbox.apply(assignment):
            for segment in assignment.segments:
                self._link_to(segment.url.rstrip("/"))
            self._wake_links()
        self._pulse()

    async def _report(self, connection: Connection) -> None:
        """Tell the controller of segments that are done with, and at the end that this member leaves."""
        while not self._leaving:
            changed = self._changed
            await self._give_up_segments(connection)
            await changed.wait()
        await self._say_farewell(connection)
        await self._say_goodbye(connection)

    async def _leave_in_time(self, connection: Connection) -> None:
        """Leave once all that is done is durable, without having come back."""
        while not self._leaving:
            await self._changed.wait()
        await self._say_goodbye(connection)

    async def _say_goodbye(self, connection: Connection) -> None:
        await connection.send(Leave())
        self._said_goodbye = True
        # The server closes once the leave is a fact; to close first could end the session before it is.
        await asyncio.Event().wait()

    def _link_to(self, url: str) -> None:
        if url in self._links:
            return
        link = ConsumeLink(
            self._endpoint.at(url),
            self._membership,
            inbox=self._inbox,
            prefetch=self._prefetch,
            changed=self._pulse,
        )
        self._links[url] = link, asyncio.create_task(self._serve(link), name=f"{self.name} at {url}")

    async def _serve(self, link: ConsumeLink) -> None:
        try:
            await link.run()
        except TopicNotFound:
            self._fail(TopicDeleted(topic=str(self.topic)))
        except Exception as error:
            self._fail(error)

    async def _wait_until_durable(self) -> None:
        """Wait for one after another: whatever comes meanwhile, none is looked at each time."""
        self._wake_links()
        while waiting := self._inbox.unacknowledged:
            for held in waiting:
                while held.unacknowledged and self._inbox.owned.get(held.key) is held:
                    self._raise_failure()
                    await self._changed.wait()

    def _wake_links(self) -> None:
        for link, _ in self._links.values():
            link.wake()
