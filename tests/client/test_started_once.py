"""A client is started once, and leaves in good order even when not all that it did became durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scalable.client import (
    CheckpointConsumer,
    KeySharedConsumer,
    MultiTopicQueueConsumer,
    MultiTopicStreamConsumer,
    Producer,
    QueueConsumer,
    StreamConsumer,
)
from scalable.client.connection import ConnectionLost
from scalable.wire.frames import Frame, Leave
from tests.processes import LiveNode

Make = Callable[[str, str, str], Any]
MEMBERS: dict[str, Make] = {
    "stream": lambda url, topic, token: StreamConsumer(url, topic, "s", token),
    "key-shared": lambda url, topic, token: KeySharedConsumer(url, topic, "k", token),
    "checkpoint": lambda url, topic, token: CheckpointConsumer(url, topic, token, group="c"),
}
CLIENTS: dict[str, Make] = {
    **MEMBERS,
    "producer": Producer,
    "queue": lambda url, topic, token: QueueConsumer(url, topic, "q", token),
    "streams": lambda url, _, token: MultiTopicStreamConsumer(url, "public/default", "ms", token),
    "queues": lambda url, _, token: MultiTopicQueueConsumer(url, "public/default", "mq", token),
}


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_client_is_started_once(live_node: LiveNode, topic: str, kind: str) -> None:
    client = CLIENTS[kind](live_node.url, topic, live_node.admin_token)
    await client.start()
    try:
        if kind == "queue":
            await client.start()
        else:
            with pytest.raises(RuntimeError, match="started already"):
                async with client:
                    pass
    finally:
        await client.close()
    with pytest.raises(RuntimeError, match="make another one"):
        await client.start()


class Session:
    """A controller's socket that takes frames and never answers."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []

    async def send(self, frame: Frame) -> None:
        self.sent.append(frame)


@pytest.mark.parametrize("kind", ["stream", "key-shared"])
async def test_what_never_becomes_durable_keeps_no_member_from_leaving(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    member, session = MEMBERS[kind]("http://node", "topic://public/default/t", "token"), Session()
    monkeypatch.setattr(member, "_finish", asyncio.Event().wait)
    member._task = asyncio.create_task(member._report(session))
    await member.close(0.05)
    assert session.sent == [Leave()]
    with pytest.raises(ConnectionLost, match="closed"):
        await member.receive()
