"""The way out of a socket: order is kept, whether the server takes frames at once or makes us wait."""

import asyncio
from typing import Any

import pytest

from scalable.api.sockets.lane import Lane

SOON_SECONDS = 5.0


class Server:
    """Takes messages while it is open; `pauses` is how often a message waits before it is taken."""

    def __init__(self, pauses: int = 0) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.taken: list[Any] = []
        self.raises: Exception | None = None
        self._pauses = pauses

    async def send(self, message: dict[str, Any]) -> None:
        await self.open.wait()
        for _ in range(self._pauses):
            await asyncio.sleep(0)
        if self.raises is not None:
            raise self.raises
        self.taken.append(message["number"])


def lane_to(server: Server) -> tuple[Lane, list[None]]:
    stalls: list[None] = []
    return Lane(server.send, on_stall=lambda: stalls.append(None)), stalls


async def test_a_message_that_is_taken_at_once_leaves_no_task() -> None:
    server = Server()
    lane, stalls = lane_to(server)
    before = asyncio.all_tasks()
    lane.start({"number": 1})
    assert server.taken == [1]
    assert lane.is_free
    assert asyncio.all_tasks() == before
    assert stalls == []


async def test_a_message_that_waits_is_carried_on() -> None:
    server = Server()
    server.open.clear()
    lane, stalls = lane_to(server)
    lane.start({"number": 1})
    assert not lane.is_free
    assert lane.busy_since is not None
    assert len(stalls) == 1
    following = asyncio.create_task(lane.send({"number": 2}))
    await asyncio.sleep(0)
    server.open.set()
    await asyncio.wait_for(following, SOON_SECONDS)
    assert server.taken == [1, 2]
    assert lane.is_free


async def test_nobody_goes_ahead_of_who_waits() -> None:
    server = Server()
    server.open.clear()
    lane, _ = lane_to(server)
    lane.start({"number": 1})
    following = asyncio.create_task(lane.send({"number": 2}))
    await asyncio.sleep(0)
    server.open.set()
    number = 3
    while not following.done():
        if lane.is_free:  # as a push would, at whatever moment
            lane.start({"number": number})
            number += 1
        await asyncio.sleep(0)
    assert server.taken[:2] == [1, 2]


@pytest.mark.parametrize("pauses", [1, 2, 5])
async def test_a_server_that_waits_several_times(pauses: int) -> None:
    server = Server(pauses)
    lane, _ = lane_to(server)
    for number in range(3):
        await asyncio.wait_for(lane.send({"number": number}), SOON_SECONDS)
    assert server.taken == [0, 1, 2]


@pytest.mark.parametrize("pauses", [0, 3])
@pytest.mark.parametrize("error", [ConnectionResetError(), RuntimeError("after the close")])
async def test_a_peer_that_is_gone_is_no_error_of_the_sender(pauses: int, error: Exception) -> None:
    server = Server(pauses)
    server.raises = error
    lane, _ = lane_to(server)
    await asyncio.wait_for(lane.send({"number": 1}), SOON_SECONDS)
    assert lane.is_free


async def test_closing_gives_up_what_waits() -> None:
    server = Server()
    server.open.clear()
    lane, _ = lane_to(server)
    lane.start({"number": 1})
    await asyncio.wait_for(lane.close(), SOON_SECONDS)
    server.open.set()
    await asyncio.sleep(0)
    assert server.taken == []
    assert lane.is_free
