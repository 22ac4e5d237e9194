"""Pings of a peer that reads nothing are not all answered: what it is sent would be kept for it."""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from scalable.api.socket_protocol import BoundedSocket
from tests.api.rough import PING, piece
from tests.api.test_hosts import UPGRADE, request
from tests.api.test_paced_transport import Network

PINGS = 100


async def _application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    scope["state"]["accepted"].set()
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def opened() -> tuple[BoundedSocket, Network]:
    config, network = Config(_application, lifespan="off"), Network()
    config.load()
    accepted = asyncio.Event()
    socket = BoundedSocket(config, ServerState(), {"accepted": accepted}, asyncio.get_running_loop())
    socket.connection_made(network)
    socket.data_received(request("/", ("a",), UPGRADE).sent)
    await accepted.wait()
    network.written.clear()
    return socket, network


async def test_only_the_last_ping_is_answered_when_the_peer_reads_again() -> None:
    socket, network = await opened()
    socket.pause_writing()
    for number in range(PINGS):
        socket.data_received(piece(PING, bytes((number,))))
    assert network.written == []
    socket.resume_writing()
    assert network.written == [bytes((0x8A, 1, PINGS - 1))]
    socket.data_received(piece(PING, b"a"))
    assert network.written[1:] == [b"\x8a\x01a"]
    socket.connection_lost(None)
