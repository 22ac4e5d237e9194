"""The bound on what a producer holds."""

from __future__ import annotations

import asyncio

import pytest

from scalable.client.room import Room


async def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    room, served = Room(max_bytes=10, max_messages=100), []

    async def take(name: str, size: int) -> None:
        await room.take(size)
        served.append(name)

    await room.take(10)
    tasks = [asyncio.create_task(take(name, size)) for name, size in (("large", 9), ("small", 1))]
    await asyncio.sleep(0)
    room.give(10)
    await asyncio.gather(*tasks)
    assert served == ["large", "small"]


async def test_a_message_larger_than_the_room_gets_it_alone() -> None:
    room = Room(max_bytes=10, max_messages=100)
    await room.take(50)
    waiting = asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    room.give(50)
    await waiting


async def test_a_cancelled_waiter_takes_no_room_and_holds_up_nobody() -> None:
    room = Room(max_bytes=10, max_messages=100)
    await room.take(6)
    first, second = asyncio.create_task(room.take(10)), asyncio.create_task(room.take(4))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    assert (room.used_bytes, room.used_messages) == (10, 2)


async def test_a_waiter_cancelled_in_the_moment_it_was_served_gives_its_room_back() -> None:
    room = Room(max_bytes=10, max_messages=100)
    await room.take(10)
    waiting = asyncio.create_task(room.take(10))
    await asyncio.sleep(0)
    room.give(10)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (room.used_bytes, room.used_messages) == (0, 0)


async def test_a_failure_reaches_all_that_wait_and_all_that_come() -> None:
    room = Room(max_bytes=1, max_messages=1)
    await room.take(1)
    waiting = asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    room.fail(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await waiting
    with pytest.raises(ConnectionError):
        await room.take(1)


async def test_who_comes_late_does_not_overtake_one_that_was_let_in_just_now() -> None:
    room, served = Room(max_bytes=10, max_messages=100), []

    async def take(name: str) -> None:
        await room.take(5)
        served.append(name)

    await room.take(10)
    first = asyncio.create_task(take("first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(take("second"))
    room.give(10)  # lets the first one in, which runs only after the second one has come
    await asyncio.gather(first, second)
    assert served == ["first", "second"]


async def test_a_failure_reaches_one_that_was_let_in_just_now() -> None:
    room = Room(max_bytes=10, max_messages=100)
    await room.take(10)
    waiting = asyncio.create_task(room.take(10))
    await asyncio.sleep(0)
    room.give(10)
    room.fail(OSError("over"))
    with pytest.raises(OSError, match="over"):
        await waiting
    assert (room.used_bytes, room.used_messages) == (0, 0)
