"""One read for all who ask at once, one write for all that wait."""

import asyncio
from collections.abc import Sequence

import pytest

from scalable.api.crowds import MAX_GATHERED, Gathered, SharedReads

pytestmark = pytest.mark.asyncio


class Rows:
    """Something to read that a test changes, and whose reads it holds up."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        self.begun.set()
        seen = self.value
        await self.may_end.wait()
        return seen


async def test_who_comes_while_a_read_runs_shares_the_next_one() -> None:
    rows, shared = Rows(), SharedReads[str, int]()
    first = asyncio.create_task(shared.read("a", rows.read))
    await rows.begun.wait()
    rows.value = 1  # committed after the first read began: those who come now must see it
    others = [asyncio.create_task(shared.read("a", rows.read)) for _ in range(100)]
    rows.may_end.set()
    assert await first == 0
    assert await asyncio.gather(*others) == [1] * 100
    assert rows.reads == 2


async def test_a_read_is_not_kept() -> None:
    rows, shared = Rows(), SharedReads[str, int]()
    rows.may_end.set()
    assert await shared.read("a", rows.read) == 0
    rows.value = 1
    assert await shared.read("a", rows.read) == 1


async def test_one_who_leaves_takes_the_read_from_nobody() -> None:
    rows, shared = Rows(), SharedReads[str, int]()
    leaving, staying = (asyncio.create_task(shared.read("a", rows.read)) for _ in range(2))
    await rows.begun.wait()
    leaving.cancel()
    rows.may_end.set()
    assert await staying == 0


async def test_an_error_is_told_to_all_and_ends_nothing() -> None:
    async def fail() -> int:
        raise LookupError("gone")

    rows, shared = Rows(), SharedReads[str, int]()
    results = await asyncio.gather(*(shared.read("a", fail) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [LookupError] * 3
    rows.may_end.set()
    assert await shared.read("a", rows.read) == 0


class Writes:
    """What was written together, and a hold on the writes."""

    def __init__(self) -> None:
        self.together: list[list[int]] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def write(self, key: str, values: Sequence[int]) -> Sequence[int]:
        self.together.append(list(values))
        self.begun.put_nowait(key)
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return [-value for value in values]


async def test_what_comes_while_a_write_runs_goes_into_the_next_in_its_order() -> None:
    writes = Writes()
    gathered = Gathered[str, int, int](writes.write)
    first = asyncio.create_task(gathered.write("a", 0))
    assert await writes.begun.get() == "a"
    others = [asyncio.create_task(gathered.write("a", number)) for number in range(1, 101)]
    await asyncio.sleep(0)
    writes.may_end.set()
    assert [await first, *(await asyncio.gather(*others))] == [-number for number in range(101)]
    assert writes.together == [[0], list(range(1, 101))]


async def test_a_write_is_bounded_and_keys_do_not_wait_for_each_other() -> None:
    writes = Writes()
    gathered = Gathered[str, int, int](writes.write)
    crowd = [asyncio.create_task(gathered.write("a", number)) for number in range(MAX_GATHERED + 1)]
    other = asyncio.create_task(gathered.write("b", 7))
    assert {await writes.begun.get(), await writes.begun.get()} == {"a", "b"}
    writes.may_end.set()
    await asyncio.gather(*crowd, other)
    assert sorted(map(len, writes.together)) == [1, 1, MAX_GATHERED]


async def test_a_cancelled_caller_is_written_all_the_same() -> None:
    writes = Writes()
    gathered = Gathered[str, int, int](writes.write)
    first, second = (asyncio.create_task(gathered.write("a", number)) for number in range(2))
    assert await writes.begun.get() == "a"
    second.cancel()
    writes.may_end.set()
    assert await first == 0
    assert await gathered.write("a", 2) == -2
    assert sorted(value for values in writes.together for value in values) == [0, 1, 2]


async def test_a_failed_write_fails_for_all_in_it_and_for_no_later_one() -> None:
    writes = Writes()
    writes.may_end.set()
    writes.error = LookupError("gone")
    gathered = Gathered[str, int, int](writes.write)
    results = await asyncio.gather(*(gathered.write("a", one) for one in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [LookupError] * 3
    writes.error = None
    assert await gathered.write("a", 4) == -4


async def test_writes_that_end_with_the_threads_leave_nobody_waiting() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def end(_: str, values: Sequence[int]) -> Sequence[int]:
        begun.set()
        await may_end.wait()
        if values == [2]:
            return values
        raise asyncio.CancelledError  # as from an executor that was closed

    gathered = Gathered[str, int, int](end)
    first = asyncio.create_task(gathered.write("a", 0))
    await begun.wait()
    second = asyncio.create_task(gathered.write("a", 1))
    await asyncio.sleep(0)
    may_end.set()
    async with asyncio.timeout(60):
        results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    assert await gathered.write("a", 2) == 2
