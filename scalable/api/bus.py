"""Carries notices between processes: what one process commits wakes the waiters of all, over Redis pub/sub.

A message holds hub keys only, never data, so it may be lost: whoever waits also reads again at a slow pace.
The publishing thread coalesces what is committed while a message is under way, and never makes a writer wait.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from scalable import announce
from scalable.api.hub import (
    access_key,
    activity_key,
    hub,
    namespace_key,
    operation_key,
    policy_key,
    queue_key,
    segment_key,
    subscription_key,
    topic_key,
)
from scalable.sender import Sender

logger = logging.getLogger(__name__)

PUBLISH_TIMEOUT_SECONDS = 1.0
PENDING_KEYS_MAX = 50_000
SILENCE_SECONDS = 2.0
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 5.0


def channel() -> str:
    """The pub/sub channel of this installation."""
    return f"{settings.SCALABLE_REDIS_PREFIX}notices"


def keys_of(notice: announce.Notice) -> tuple[str, ...]:
    """The hub keys that a notice fires."""
    match notice:
        case announce.TopicChanged(incarnation=incarnation) | announce.TopicDeleted(incarnation=incarnation):
            return (topic_key(incarnation),)
        case announce.NamespaceChanged(tenant=tenant, namespace=namespace):
            return (namespace_key(tenant, namespace),)
        case announce.NamespacePolicyChanged(tenant=tenant, namespace=namespace):
            return (policy_key(tenant, namespace),)
        case announce.OperationChanged(operation_id=operation_id, incarnation=incarnation):
            return (operation_key(operation_id), activity_key(incarnation))
        case (
            announce.SegmentAppended(incarnation=incarnation, segment_id=segment_id)
            | announce.SegmentTerminated(incarnation=incarnation, segment_id=segment_id)
        ):
            return (segment_key(incarnation, segment_id),)
        case announce.AssignmentChanged(subscription_id=subscription_id):
            return (subscription_key(subscription_id),)
        case announce.QueueChanged(subscription_id=subscription_id, segment_id=segment_id):
            return (queue_key(subscription_id, segment_id),)
        case announce.AccessChanged():
            return (access_key(),)
        case _:  # a request for a worker wakes no waiter
            return ()


def publish(notice: announce.Notice) -> None:
    """Wake the waiters of this process at once and those of the others soon; joined at start-up."""
    fired = keys_of(notice)
    if fired:
        hub.fire_threadsafe(*fired)
        if settings.SCALABLE_HINTS_ENABLED:
            _publisher.offer(fired)


@dataclass(slots=True)
class Hearing:
    """Whether the notices of other processes arrive just now."""

    trouble: str | None = "not connected yet"


hearing = Hearing()


async def run() -> None:
    """Follow the other processes' notices for as long as this process serves; reconnects by itself."""
    delay = RETRY_SECONDS_MIN
    while True:
        link = Link()
        try:
            await link.follow()
        except (redis.RedisError, OSError) as error:
            if link.subscribed:
                delay = RETRY_SECONDS_MIN
            hearing.trouble = "not connected"
            logger.warning("No hints from other processes (%s); again in %.1f s", error, delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, RETRY_SECONDS_MAX)


class Link:
    """One connection that listens on the channel."""

    def __init__(self) -> None:
        self.subscribed = False
        self._unanswered = 0

    async def follow(self) -> None:
        client = redis.asyncio.Redis.from_url(
            settings.SCALABLE_REDIS_URL, socket_connect_timeout=PUBLISH_TIMEOUT_SECONDS
        )
        async with client, client.pubsub() as subscriber:
            await subscriber.subscribe(channel())
            while True:
                message = await subscriber.get_message(timeout=SILENCE_SECONDS)
                if message is None:
                    await self._probe(subscriber)
                else:
                    self._take(message)

    async def _probe(self, subscriber: Any) -> None:
        # A link that was cut without a word looks like silence.
        if self._unanswered:
            raise redis.ConnectionError("the link is silent")
        self._unanswered += 1
        await subscriber.ping()

    def _take(self, message: dict[str, Any]) -> None:
        self._unanswered = 0
        if message["type"] == "subscribe":
            self.subscribed = True
            hearing.trouble = None
            hub.resync()
        elif message["type"] == "message":
            hub.fire(*_foreign_keys(message["data"]))


class Message(msgspec.Struct):
    """What travels: who published, and which keys fired."""

    origin: str
    keys: list[str]


def _foreign_keys(data: bytes) -> list[str]:
    """The keys of a message, none of our own ones, which fired here already."""
    try:
        message = msgspec.json.decode(data, type=Message)
    except (msgspec.DecodeError, RecursionError):
        logger.warning("A message on %s cannot be read", channel())
        return []
    return [] if message.origin == _publisher.origin else message.keys


class Publisher(Sender[str]):
    """Publishes the keys that fired here."""

    def __init__(self) -> None:
        super().__init__("notices", most=PENDING_KEYS_MAX, goodbye_seconds=PUBLISH_TIMEOUT_SECONDS)

    def reset(self) -> None:
        """Begin anew, under another name."""
        super().reset()
        self.origin = uuid.uuid4().hex
        self._client: redis.Redis | None = None
        self._failing = False

    def send(self, things: Sequence[str]) -> None:
        """Publish keys in one message; the first of several failures is logged."""
        try:
            message = Message(self.origin, list(things))
            self._connected().publish(channel(), msgspec.json.encode(message))
            self._failing = False
        except (redis.RedisError, OSError) as error:
            if not self._failing:
                logger.warning(
                    "Hints do not leave this process (%s); watchers notice at their slow pace", error
                )
            self._failing = True

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis.from_url(
                settings.SCALABLE_REDIS_URL,
                socket_timeout=PUBLISH_TIMEOUT_SECONDS,
                socket_connect_timeout=PUBLISH_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 1),
            )
        return self._client


_publisher = Publisher()
_publisher.at_home()
