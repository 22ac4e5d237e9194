"""A raw client of the DAG watch, for tests: it speaks frames and holds what they tell."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from scalable.client.topology import Topology, apply_delta, from_snapshot
from scalable.wire.frames import Delta, ServerFrame, Snapshot, decode, decoder
from tests.processes import LiveNode

_decoder = decoder(ServerFrame)
SUBPROTOCOL = "scalable.v1"


class Watcher:
    """One watch socket, and the topology that its frames add up to."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Any] = []
        self.bytes_received = 0
        self.topology: Topology | None = None

    async def say(self, **frame: object) -> None:
        """Send a control frame."""
        await self.socket.send(json.dumps(frame))

    async def receive(self) -> Any:
        """The next frame, applied to the topology."""
        text = await self.socket.recv()
        self.bytes_received += len(text)
        frame = decode(_decoder, text)
        self.frames.append(frame)
        if isinstance(frame, Snapshot):
            self.topology = from_snapshot(frame)
        elif isinstance(frame, Delta):
            assert self.topology is not None
            self.topology = apply_delta(self.topology, frame)
        return frame

    async def until_epoch(self, epoch: int) -> Topology:
        """Receive until the topology has reached the epoch."""
        while self.topology is None or self.topology.epoch < epoch:
            await self.receive()
        return self.topology


@asynccontextmanager
async def watching(
    node: LiveNode, topic: str, *, detail: str = "layout", session_id: str = "s", token: str | None = None
) -> AsyncIterator[Watcher]:
    """Open a watch of `tenant/namespace/name` and say hello."""
    async with connect(
        f"{node.socket_url}/ws/v2/scalable/lookup/{topic}",
        subprotocols=[SUBPROTOCOL, f"bearer.{token or node.admin_token}"],  # type: ignore[list-item]
        compression=None,
        proxy=None,
        max_size=None,
    ) as socket:
        watcher = Watcher(socket)
        await watcher.say(type="hello", protocol=1, session_id=session_id, detail=detail)
        yield watcher
