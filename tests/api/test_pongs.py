"""Pings of a peer that reads nothing are not all answered: what it is sent would be kept for it."""

import asyncio
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from scalable.api.socket_protocol import BoundedSocket
from tests.api.rough import CLOSE, PING, piece
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


@pytest.mark.parametrize("together", [1, 7, PINGS])
async def test_only_the_last_ping_is_answered_when_the_peer_reads_again(together: int) -> None:
    socket, network = await opened()
    socket.pause_writing()
    pings = [piece(PING, bytes((number,))) for number in range(PINGS)]
    for start in range(0, PINGS, together):
        socket.data_received(b"".join(pings[start : start + together]))
    assert network.written == []
    socket.resume_writing()
    assert network.written == [bytes((0x8A, 1, PINGS - 1))]
    socket.data_received(piece(PING, b"a"))
    assert network.written[1:] == [b"\x8a\x01a"]
    socket.connection_lost(None)


async def test_a_close_behind_a_ping_is_answered_though_the_ping_is_not() -> None:
    socket, network = await opened()
    socket.pause_writing()
    socket.data_received(piece(PING, b"a") + piece(CLOSE, b"\x03\xe8"))
    assert b"".join(network.written) == b"\x88\x02\x03\xe8"
    socket.connection_lost(None)
