"""The base of all sockets and its way out, with a server in the place of uvicorn that can stand still."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pytest_django import Settings

from launch.sandbox import token
from scalable.api.sockets import outbox
from scalable.api.sockets.base import Socket
from scalable.api.sockets.outbox import Ending, Outbox, Perishable
from scalable.domain.errors import ReaderTooSlow
from scalable.wire.frames import PROTOCOL_VERSION, Frame, Gone, Hello, encode


class Server:
    """The server's side of one ASGI connection; `stalled` stops what is sent."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.progress = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        await self.flowing.wait()
        self.sent.append(message)
        self.progress.set()
        if message["type"] == "websocket.close":
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """The first message of this kind that was sent."""
        async with asyncio.timeout(10):
            while not (found := [message for message in self.sent if message["type"] == kind]):
                self.progress.clear()
                await self.progress.wait()
        return found[0]


class Echo(Socket):
    """Floods its peer when told to."""

    instances: list["Echo"]
    is_closed = False

    def make_outbox(self) -> Outbox:
        self.instances.append(self)
        return Outbox(max_frames=8)

    async def frame_received(self, frame: Frame) -> None:
        self.push(encode(frame))

    async def closed(self) -> None:
        self.is_closed = True


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[Server, Echo, "asyncio.Task[None]"]]:
    """An open connection to the socket, past its hello."""
    server = Server()
    Echo.instances = []
    scope = {
        "type": "websocket",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token('admin')}".encode())],
        "subprotocols": [],
        "extensions": {},
        "url_route": {"kwargs": {"tenant": "public", "namespace": "default", "topic": "orders"}},
    }
    application: Any = Echo.as_asgi()
    task = asyncio.create_task(application(scope, server.incoming.get, server.send))
    server.incoming.put_nowait({"type": "websocket.connect"})
    await server.wait_for("websocket.accept")
    server.incoming.put_nowait(
        {"type": "websocket.receive", "text": encode(Hello(protocol=PROTOCOL_VERSION))}
    )
    yield server, Echo.instances[0], task
    server.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
    async with asyncio.timeout(10):
        await task


async def test_a_reader_too_far_behind_is_closed_with_the_code() -> None:
    async with connection() as (server, socket, _):
        server.flowing.clear()
        for _ in range(100):
            socket.push("frame")
        assert len(socket.outbox) == 0
        server.flowing.set()
        assert (await server.wait_for("websocket.close"))["code"] == 4408


async def test_a_frame_that_does_not_leave_in_time_closes(settings: Settings) -> None:
    settings.SCALABLE_SOCKET_SEND_SECONDS = 0.2
    async with connection() as (server, socket, task):
        server.flowing.clear()
        socket.push("frame")
        async with asyncio.timeout(10):
            await task
        assert socket.is_closed


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_frame_that_is_late_when_its_turn_comes_is_not_sent_and_its_maker_is_told(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the lane, behind a frame that the server does not take."""
    now, told = time.monotonic(), asyncio.Event()
    monkeypatch.setattr(outbox, "monotonic", lambda: now)
    async with connection() as (server, socket, _):
        server.flowing.clear()
        socket.push("stuck")
        await socket.push_when_room(Perishable(b"perishable", now + 1, told.set))
        socket.push("last")
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(socket.outbox) == 1
        now += 1 if is_late else 0
        server.flowing.set()
        socket.end()
        await server.wait_for("websocket.close")
    sent = [message.get("text", message.get("bytes")) for message in server.sent[1:-1]]
    assert sent == ["stuck", *([] if is_late else [b"perishable"]), "last"]
    assert told.is_set() == is_late


async def test_the_end_of_the_connection_is_seen_while_a_frame_is_stuck() -> None:
    async with connection() as (server, socket, task):
        server.flowing.clear()
        socket.push("frame")
        await asyncio.sleep(0)
        server.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
        async with asyncio.timeout(5):
            await task
        assert socket.is_closed


async def test_what_waits_is_sent_before_the_close() -> None:
    async with connection() as (server, socket, _):
        socket.push(Gone(topic="t", incarnation=1))
        socket.end(4410, "topic_deleted")
        socket.push("too late")
        assert (await server.wait_for("websocket.close"))["code"] == 4410
        assert [message["text"] for message in server.sent if "text" in message] == [
            encode(Gone(topic="t", incarnation=1))
        ]


async def test_work_that_fails_ends_the_socket_and_is_not_told_to_the_peer() -> None:
    async with connection() as (server, socket, _):
        socket.spawn(fail())
        assert (await server.wait_for("websocket.close"))["code"] == 4500
        text = (await server.wait_for("websocket.send"))["text"]
        assert '"code":"internal"' in text
        assert "secret" not in text


async def fail() -> None:
    """Fail with something that is nobody's business."""
    raise RuntimeError("secret")


async def test_bulky_frames_wait_in_turn_and_answers_do_not() -> None:
    outbox = Outbox(max_frames=2, headroom=2)
    await outbox.put_when_room("1")
    await outbox.put_when_room("2")
    waiting = [asyncio.create_task(outbox.put_when_room(name)) for name in ("3", "4", "5")]
    await asyncio.sleep(0)
    outbox.put("answer")
    assert [await outbox.take() for _ in range(3)] == ["1", "2", "answer"]
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert [await outbox.take() for _ in range(2)] == ["3", "5"]
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_waiter_that_is_woken_and_cancelled_passes_its_turn_on() -> None:
    outbox = Outbox(max_frames=1)
    await outbox.put_when_room("1")
    first, second = (asyncio.create_task(outbox.put_when_room(name)) for name in ("2", "3"))
    await asyncio.sleep(0)
    assert await outbox.take() == "1"
    first.cancel()
    async with asyncio.timeout(5):
        assert await outbox.take() == "3"
    await asyncio.gather(first, second, return_exceptions=True)


async def test_bytes_bound_an_outbox_too() -> None:
    outbox = Outbox(max_frames=100, max_bytes=10)
    await outbox.put_when_room(bytes(11))
    waiting = asyncio.create_task(outbox.put_when_room(b"next"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await outbox.take() == bytes(11)
    assert await outbox.take() == b"next"
    await waiting


async def test_an_ending_frees_those_who_wait() -> None:
    outbox = Outbox(max_frames=1)
    await outbox.put_when_room("1")
    waiting = asyncio.create_task(outbox.put_when_room("2"))
    await asyncio.sleep(0)
    outbox.end(Ending(1000, ""))
    await waiting
    assert [await outbox.take(), await outbox.take()] == ["1", Ending(1000, "")]


def test_a_full_outbox_names_its_limit() -> None:
    outbox = Outbox(max_frames=1, headroom=1)
    outbox.put("1")
    outbox.put("2")
    with pytest.raises(ReaderTooSlow) as refused:
        outbox.put("3")
    assert refused.value.limit == 2
