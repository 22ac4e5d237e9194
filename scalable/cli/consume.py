"""Reading messages through a subscription, of any type."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import click

from scalable.cli.session import Session
from scalable.cli.topics import property_option
from scalable.cli.values import NAMESPACE, SPAN, START, TOPIC, properties_of
from scalable.client import (
    Checkpoint,
    CheckpointConsumer,
    ConnectionLost,
    KeySharedConsumer,
    Message,
    MultiTopicMessage,
    MultiTopicQueueConsumer,
    MultiTopicQueueMessage,
    MultiTopicStreamConsumer,
    QueueConsumer,
    QueueMessage,
    StreamConsumer,
)
from scalable.client.connection import RETRIABLE_ERRORS
from scalable.client.time_limit import time_limit
from scalable.domain.errors import ScalableError
from scalable.domain.names import TopicName

TYPES = ("stream", "key-shared", "queue", "checkpoint")
INTERRUPTED_SECONDS = 10.0  # who presses Ctrl-C does not wait for a node that is not there

AnyConsumer = (
    StreamConsumer
    | KeySharedConsumer
    | QueueConsumer
    | CheckpointConsumer
    | MultiTopicStreamConsumer
    | MultiTopicQueueConsumer
)


@click.command()
@click.argument("topic", type=TOPIC, required=False)
@click.option("--namespace", type=NAMESPACE, help="Read all its topics instead, those that come later, too.")
@property_option
@click.option("-s", "--subscription", required=True, help="The subscription, or the checkpoint group.")
@click.option("--type", "kind", type=click.Choice(TYPES), default="stream", show_default=True)
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--idle", type=SPAN, help="End when nothing came for so long (10s).")
@click.option(
    "--from",
    "start",
    type=START,
    default="earliest",
    show_default=True,
    help="Where a new subscription begins.",
)
@click.option("--name", help="Name of the consumer; the same one finds its segments again.")
@click.option("--ack/--no-ack", default=True, help="Acknowledge what was printed.")
@click.pass_obj
def consume(
    session: Session,
    topic: TopicName | None,
    namespace: str | None,
    properties: tuple[tuple[str, str], ...],
    subscription: str,
    kind: str,
    count: int | None,
    idle: float | None,
    start: Any,
    name: str | None,
    ack: bool,
) -> None:
    """Print messages as they come, and acknowledge them; Ctrl-C ends it without losing any."""
    if kind == "checkpoint" and not ack:
        raise click.UsageError("a checkpoint group acknowledges nothing; leave --no-ack out")
    if (topic is None) == (namespace is None):
        raise click.UsageError("give either a topic or --namespace")
    if properties and namespace is None:
        raise click.UsageError("--property chooses among the topics of a --namespace")
    consumer = (
        _make(session, topic, subscription, kind, start, name)
        if topic is not None
        else _make_for_many(
            session, str(namespace), properties_of(properties), subscription, kind, start, name
        )
    )
    read = asyncio.run(_read(session, consumer, count=count, idle=idle, acknowledge=ack))
    session.output.note(f"{read} messages")


def _make(
    session: Session, topic: TopicName, subscription: str, kind: str, start: Any, name: str | None
) -> AnyConsumer:
    if kind == "checkpoint":
        return CheckpointConsumer(
            session.url, topic, session.token, group=subscription, name=name, start=start
        )
    if kind == "queue":
        return QueueConsumer(session.url, topic, subscription, session.token, name=name, start=start)
    make = KeySharedConsumer if kind == "key-shared" else StreamConsumer
    return make(session.url, topic, subscription, session.token, name=name, initial_position=start)


def _make_for_many(
    session: Session,
    namespace: str,
    properties: dict[str, str],
    subscription: str,
    kind: str,
    start: Any,
    name: str | None,
) -> AnyConsumer:
    if isinstance(start, Checkpoint):
        raise click.UsageError("a checkpoint is of one topic; --from a time instead")
    common: dict[str, Any] = {"properties": properties, "name": name}
    place = (session.url, namespace, subscription, session.token)
    if kind == "queue":
        return MultiTopicQueueConsumer(*place, **common, start=start)
    if kind == "stream":
        return MultiTopicStreamConsumer(*place, **common, initial_position=start)
    raise click.UsageError("a namespace is read by --type stream or queue")


async def _read(
    session: Session, consumer: AnyConsumer, *, count: int | None, idle: float | None, acknowledge: bool
) -> int:
    read = 0
    async with _open(consumer) as receive:
        _raise_trouble(consumer, only_final=True)
        while count is None or read < count:
            try:
                message = await receive(idle)
            except TimeoutError:
                _raise_trouble(consumer)
                break
            except asyncio.CancelledError:  # by Ctrl-C: what was printed does not come again
                await _keep_place(consumer, min(session.timeout_seconds, INTERRUPTED_SECONDS))
                raise
            session.output.event(*_shown(message))
            if acknowledge and not isinstance(consumer, CheckpointConsumer):
                consumer.acknowledge(message)
            read += 1
        await _keep_place(consumer, session.timeout_seconds)
    return read


async def _keep_place(consumer: AnyConsumer, timeout_seconds: float) -> None:
    """Commit what a checkpoint group has read; others acknowledged it, and make it durable as they close.

    Raises ConnectionLost when no node answers in time.
    """
    if not isinstance(consumer, CheckpointConsumer):
        return
    try:
        async with time_limit(timeout_seconds):
            await consumer.commit(consumer.checkpoint())
    except TimeoutError:
        raise ConnectionLost(1006, "no answer in time: what was printed last will come again") from None


def _raise_trouble(consumer: AnyConsumer, *, only_final: bool = False) -> None:
    """Raise what keeps a topic of a namespace from being read: an end without messages would look well.

    `only_final`: only when no topic can be read, and trying again mends none.
    """
    if not isinstance(consumer, MultiTopicStreamConsumer | MultiTopicQueueConsumer):
        return
    troubles = consumer.troubles
    may_pass = len(troubles) < len(consumer.topics) or any(
        isinstance(trouble, RETRIABLE_ERRORS) for trouble in troubles.values()
    )
    if not troubles or (only_final and may_pass):
        return
    topic, trouble = next(iter(troubles.items()))
    if isinstance(trouble, ScalableError):
        raise trouble
    raise ConnectionLost(1006, f"{topic}: {trouble}") from trouble


@asynccontextmanager
async def _open(consumer: AnyConsumer) -> AsyncIterator[Callable[[float | None], Any]]:
    async with consumer:
        yield consumer.receive


def _shown(message: Message | QueueMessage) -> tuple[dict[str, Any], str]:
    """Give a message for scripts, and as a line."""
    place = message.message_id
    body: dict[str, Any] = {
        "topic": str(message.topic),
        "key": message.key,
        **_value(message.value),
        "segmentId": place.segment_id,
        "offset": place.offset,
        "publishedAtMs": message.published_at_ms,
        "properties": dict(message.properties),
    }
    if isinstance(message, QueueMessage):
        body["deliveries"] = message.deliveries
    text = body.get("value", f"base64:{body.get('valueBase64')}")
    line = f"{place.segment_id}:{place.offset}\t{message.key or '-'}\t{text}"
    of_many = isinstance(message, MultiTopicMessage | MultiTopicQueueMessage)
    return body, f"{message.topic}\t{line}" if of_many else line


def _value(value: bytes) -> dict[str, str]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"valueBase64": base64.b64encode(value).decode()}


COMMANDS = (consume,)
