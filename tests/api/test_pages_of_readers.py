"""The bound on claims that the readers of one socket hold: who waits is woken in order, one for each page."""

import asyncio

from scalable.api.sockets.pages import Pages

READERS = 3_000


class Readers:
    """Readers that take a page, hold it for a moment, and count how often they looked for one."""

    def __init__(self, limit: int) -> None:
        self.pages = Pages(limit)
        self.looks = 0
        self.served: list[int] = []

    async def read(self, number: int) -> None:
        """Hold a page once."""
        self.looks += 1
        while not self.pages.take():
            await self.pages.wait()
            self.looks += 1
        await asyncio.sleep(0)
        self.served.append(number)
        self.pages.put_back()


async def test_a_page_that_is_put_back_wakes_one_reader_and_not_thousands() -> None:
    readers = Readers(limit=4)
    await asyncio.gather(*map(readers.read, range(READERS)))
    assert readers.served == list(range(READERS))
    assert readers.looks < 3 * READERS


async def test_a_page_that_the_first_in_line_leaves_goes_to_the_next() -> None:
    pages = Pages(1)
    assert pages.take()
    without_turn = asyncio.create_task(pages.wait())
    await asyncio.sleep(0)
    second = asyncio.create_task(Readers.read(readers := Readers(0), 2))
    readers.pages = pages
    await asyncio.sleep(0)
    pages.put_back()
    async with asyncio.timeout(5):
        await asyncio.gather(without_turn, second)
    assert readers.served == [2]


async def test_a_reader_that_ends_while_it_waits_takes_no_wake_with_it() -> None:
    readers = Readers(limit=1)
    assert readers.pages.take()
    tasks = [asyncio.create_task(readers.read(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    readers.pages.put_back()
    tasks[1].cancel()
    async with asyncio.timeout(5):
        await asyncio.wait(tasks)
    assert readers.served == [2]


async def test_who_was_overtaken_stays_the_first_in_line() -> None:
    readers = Readers(limit=1)
    assert readers.pages.take()
    tasks = [asyncio.create_task(readers.read(number)) for number in range(2)]
    await asyncio.sleep(0)
    readers.pages.put_back()
    assert readers.pages.take()  # somebody is faster than who was just woken
    await asyncio.sleep(0)
    readers.pages.put_back()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert readers.served == [0, 1]
