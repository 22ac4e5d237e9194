"""Addresses, pauses, and what a user is told when the node is not there."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from launch.ports import free_port
from scalable.client import (
    Admin,
    CheckpointConsumer,
    ConnectionLost,
    Endpoint,
    FrameOverLimit,
    Producer,
    StreamConsumer,
)
from scalable.client.connection import (
    LONGEST_PAUSE_SECONDS,
    Backoff,
    keep_running,
    least_pause_seconds,
    open_connection,
)
from scalable.domain.errors import (
    NotLeader,
    PermitsExceeded,
    ReaderTooSlow,
    TooManyRequests,
    TopicDeleted,
    UnrecognisedError,
)
from scalable.domain.names import TopicName
from scalable.wire.frames import SUBPROTOCOL, ErrorFrame, Hello, Welcome, encode

TOPIC = "topic://public/default/t"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://host", "http://"])
def test_what_is_no_url_of_a_node_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="URL of a node"):
        Producer(url, TOPIC, "token")


def test_names_are_quoted_in_socket_addresses_and_the_token_never_is_in_one() -> None:
    endpoint = Endpoint("https://host:8443/prefix", "secret-token")
    url = endpoint.socket_url("consume", TopicName("a b", "n?", "t#ü"), "s/1")
    assert url == "wss://host:8443/prefix/ws/v2/scalable/consume/a%20b/n%3F/t%23%C3%BC/s%2F1"
    assert "secret-token" not in url + repr(endpoint)
    assert endpoint.headers == {"Authorization": "Bearer secret-token"}


@pytest.mark.parametrize("name", ["SCALABLE_TLS_CA", "SCALABLE_TLS_CERT", "SCALABLE_TLS_KEY"])
def test_a_file_of_the_environment_that_is_of_no_use_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match=f"{name}: .*missing"):
        Endpoint("https://host:8443", "secret-token")
    if name == "SCALABLE_TLS_KEY":
        return  # of which nothing is read without a certificate
    junk = tmp_path / "junk"
    junk.write_text("no certificate")
    monkeypatch.setenv(name, str(junk))
    with pytest.raises(OSError, match=f"{name}=.*junk cannot be used"):
        Endpoint("https://host:8443", "secret-token")


def test_pauses_grow_with_jitter_up_to_a_limit_and_start_again_after_a_success() -> None:
    backoff = Backoff(first_seconds=1.0, limit_seconds=8.0)
    waits = [backoff.next_seconds() for _ in range(50)]
    for attempt, wait in enumerate(waits):
        span = min(8.0, 2.0**attempt)
        assert span / 2 <= wait <= span
    assert len(set(waits)) == 50
    backoff.reset()
    assert backoff.next_seconds() <= 1.0


async def test_a_session_runs_again_after_what_a_new_connection_may_mend_and_ends_by_anything_else() -> None:
    ends: list[Exception] = [ConnectionLost(1006, "cut"), ReaderTooSlow(limit=1), TopicDeleted(topic=TOPIC)]

    async def session() -> None:
        raise ends.pop(0)

    with pytest.raises(TopicDeleted):
        await keep_running(session, backoff=Backoff(first_seconds=0.001), what="test")
    assert not ends


async def test_who_asks_too_often_comes_back_when_told_and_who_counts_wrongly_does_not() -> None:
    ends: list[Exception] = [TooManyRequests(limit=1, retry_after_seconds=0.2), PermitsExceeded(limit=1)]

    async def session() -> None:
        raise ends.pop(0)

    began = asyncio.get_running_loop().time()
    with pytest.raises(PermitsExceeded):
        await keep_running(session, backoff=Backoff(first_seconds=0.001), what="test")
    assert not ends
    assert asyncio.get_running_loop().time() - began >= 0.2


def test_the_pause_that_a_server_asks_for_is_bounded() -> None:
    assert least_pause_seconds(ReaderTooSlow(limit=1)) == 0
    for asked, kept in ((-1.0, 0.0), (3.0, 3.0), (1e9, LONGEST_PAUSE_SECONDS)):
        assert least_pause_seconds(TooManyRequests(limit=1, retry_after_seconds=asked)) == kept


async def test_a_frame_above_the_servers_limit_is_not_sent_again() -> None:
    connections = 0

    async def count(socket: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        await socket.wait_closed()

    async with serve(count, "127.0.0.1", 0, max_size=8, subprotocols=[Subprotocol(SUBPROTOCOL)]) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FrameOverLimit):
            await Producer(f"http://127.0.0.1:{port}", TOPIC, "token").start(timeout_seconds=60)
    assert connections <= 2, "a producer has a produce socket and a watch"


@pytest.mark.parametrize("url", ["", "node-1"])
async def test_a_node_that_does_not_lead_and_names_no_address_is_asked_again(url: str) -> None:
    asked_thrice = asyncio.Event()
    hellos = 0

    async def refuse(socket: ServerConnection) -> None:
        nonlocal hellos
        hellos += "hello" in str(await socket.recv())
        error = NotLeader(topic=TOPIC, url=url)
        await socket.send(encode(ErrorFrame(**error.to_json())))
        if hellos == 3:
            asked_thrice.set()

    async with serve(refuse, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)]) as server:
        port = server.sockets[0].getsockname()[1]
        consumer = CheckpointConsumer(f"http://127.0.0.1:{port}", TOPIC, "token", group="g")
        starting = asyncio.create_task(consumer.start(timeout_seconds=60))
        await asyncio.wait(
            {starting, asyncio.create_task(asked_thrice.wait())}, return_when="FIRST_COMPLETED"
        )
        assert asked_thrice.is_set()
        starting.cancel()
        await asyncio.wait({starting})


@pytest.mark.parametrize("welcomed", [False, True])
@pytest.mark.parametrize(
    ("close_code", "final"),
    [(4409, True), (4418, True), (4408, False), (4421, False), (4429, False), (4503, False)],
)
async def test_an_error_of_a_later_version_counts_by_its_close(
    close_code: int, final: bool, welcomed: bool
) -> None:
    async def end(socket: ServerConnection) -> None:
        await socket.recv()
        if welcomed:
            await socket.send(encode(Welcome(protocol=1, node="", max_frame_bytes=1, max_message_bytes=1)))
        await socket.send(encode(ErrorFrame(code="of_tomorrow", reason="it is late")))
        await socket.close(close_code, "of_tomorrow")

    async def connect() -> None:
        connection = await open_connection(
            endpoint, "lookup", TopicName.parse(TOPIC), hello=Hello(protocol=1)
        )
        while True:
            await connection.receive()

    async with serve(end, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)]) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "token")
        with pytest.raises(UnrecognisedError if final else ConnectionLost):
            await connect()


@pytest.mark.parametrize(
    ("status", "final"), [(403, True), (418, True), (421, False), (429, False), (503, False)]
)
async def test_a_refused_handshake_of_a_later_version_counts_by_its_status(status: int, final: bool) -> None:
    def refuse(socket: ServerConnection, request: Request) -> Response:
        body = {"code": "of_tomorrow", "reason": "it is late", "fields": {}, "hint": ""}
        return socket.respond(HTTPStatus(status), json.dumps(body))

    async def nothing(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve(nothing, "127.0.0.1", 0, process_request=refuse) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "token")
        with pytest.raises(UnrecognisedError if final else ConnectionLost):
            await open_connection(endpoint, "lookup", TopicName.parse(TOPIC), hello=Hello(protocol=1))


async def test_a_node_that_is_not_there_is_named_as_the_reason() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLost, match=r"refused|failed"):
        await Producer(url, TOPIC, "token").start(timeout_seconds=0.5)
    with pytest.raises(ConnectionLost, match=r"refused|failed"):
        await StreamConsumer(url, TOPIC, "s", "token").start(timeout_seconds=0.5)
    with Admin(url, "token") as admin, pytest.raises(ConnectionLost, match=r"refused|failed"):
        admin.get_topic(TOPIC)
