"""Reading messages through a subscription, of any type."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import click

from scalable.cli.session import Session
from scalable.cli.topics import topic_argument
from scalable.cli.values import SPAN, START
from scalable.client import (
    CheckpointConsumer,
    KeySharedConsumer,
    Message,
    QueueConsumer,
    QueueMessage,
    StreamConsumer,
)
from scalable.domain.names import TopicName

TYPES = ("stream", "key-shared", "queue", "checkpoint")
AnyConsumer = StreamConsumer | KeySharedConsumer | QueueConsumer | CheckpointConsumer


@click.command()
@topic_argument
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
    topic: TopicName,
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
    consumer = _make(session, topic, subscription, kind, start, name)
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


async def _read(
    session: Session, consumer: AnyConsumer, *, count: int | None, idle: float | None, acknowledge: bool
) -> int:
    read = 0
    async with _open(consumer) as receive:
        while count is None or read < count:
            try:
                message = await receive(idle)
            except TimeoutError:
                break
            session.output.event(*_shown(message))
            if acknowledge and not isinstance(consumer, CheckpointConsumer):
                consumer.acknowledge(message)
            read += 1
        if isinstance(consumer, CheckpointConsumer):
            await consumer.commit(consumer.checkpoint())
    return read


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
    return body, f"{place.segment_id}:{place.offset}\t{message.key or '-'}\t{text}"


def _value(value: bytes) -> dict[str, str]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"valueBase64": base64.b64encode(value).decode()}


COMMANDS = (consume,)
