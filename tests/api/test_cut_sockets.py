"""Who was dropped for not reading, and then may stay no longer, is cut in the time of the latter."""

import asyncio
import itertools
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from uvicorn.config import Config
from uvicorn.server import ServerState

from scalable.api.http_protocol import BoundedHttp
from scalable.api.socket_protocol import CUT, BoundedSocket
from scalable.api.sockets import base
from scalable.api.sockets.base import Socket
from scalable.domain.errors import ReaderTooSlow, Unauthenticated
from tests.api.rough import CONTINUATION, PING, TEXT, piece
from tests.api.test_hosts import UPGRADE, request
from tests.api.test_paced_transport import Network
from tests.api.test_pongs import opened

LONG = 60


async def test_a_revocation_cuts_a_socket_that_was_dropped_before(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SCALABLE_SOCKET_SEND_SECONDS = LONG
    monkeypatch.setattr(base, "TURN_OUT_SECONDS", 0.01)
    socket, is_cut = Socket(), asyncio.Event()
    socket.scope = {"extensions": {CUT: is_cut.set}}
    socket.drop(ReaderTooSlow(limit=1))
    socket.turn_out(Unauthenticated(problem="the token was revoked"))
    async with asyncio.timeout(LONG / 2):
        await is_cut.wait()


async def test_who_is_turned_out_while_it_ends_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a socket does at its end, such as to give back what was claimed, is not broken off."""
    monkeypatch.setattr(base, "TURN_OUT_SECONDS", 0.01)
    is_cut, ended = asyncio.Event(), []

    class Slow(Socket):
        async def closed(self) -> None:
            await is_cut.wait()
            await asyncio.sleep(0)  # here a cancellation would come out
            ended.append(True)

    async def gone() -> dict[str, object]:
        return {"type": "websocket.disconnect", "code": 1006}

    async def nothing(_: object) -> None: ...

    socket = Slow()
    socket.scope = {"extensions": {CUT: is_cut.set}}
    socket.turn_out(Unauthenticated(problem="the token was revoked"))
    await socket(socket.scope, gone, nothing)
    assert ended == [True]


async def test_nobody_upgrades_behind_an_answer_that_is_not_taken() -> None:
    kinds: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        kinds.append(scope["type"])

    config, network = Config(application, lifespan="off"), Network()
    config.load()
    protocol = BoundedHttp(config, ServerState(), {}, asyncio.get_running_loop())
    protocol.connection_made(network)
    protocol.pause_writing()
    protocol.data_received(request("/", ("a",), UPGRADE).sent)
    await asyncio.sleep(0)
    assert kinds == ["http"]
    protocol.connection_lost(None)


async def test_the_clock_of_a_message_counts_nothing_that_came_before(settings: Settings) -> None:
    """Frames that never end where what is read ends, and pings between them."""
    settings.SCALABLE_REQUEST_BODY_SECONDS = LONG
    socket, _ = await opened()
    whole, end = piece(TEXT, b"a" * 4_000), piece(TEXT, b"b")
    for frame in itertools.repeat(piece(PING) + whole, 50):
        socket.data_received(frame[-1:] + frame[:-1] if socket.conn.reader.buffer else frame[:-1])
        socket.transport.resume_reading()
    assert limit_seconds(socket) < LONG + 1
    socket.data_received(whole[-1:])
    socket.data_received(piece(TEXT, b"a", final=False) + piece(CONTINUATION, b"a", final=False))
    begun = socket._message_since
    socket.data_received(piece(PING))
    assert socket._message_since == begun
    socket.data_received(piece(CONTINUATION) + end)
    socket.connection_lost(None)


def limit_seconds(socket: BoundedSocket) -> float:
    return LONG + socket._message_bytes / 8_192
