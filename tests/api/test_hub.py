"""Waking up: keys fire, waiters come back; nothing is lost, nothing grows."""

import asyncio
import threading

import pytest

from scalable import announce
from scalable.api.bus import keys_of
from scalable.api.hub import RECHECK_SECONDS, Hub

SOON_SECONDS = 5.0
FOR_WORKERS = {announce.OperationRequested, announce.ConsumersChanged, announce.JobRequested}


async def test_keys_that_fire_between_two_waits_come_together() -> None:
    hub = Hub()
    with hub.watch("a", "b") as watch:
        for _ in range(1_000):
            hub.fire("a")
        hub.fire("b", "unwatched")
        assert await watch.wait() == {"a", "b"}
        assert await watch.wait(0.01) == frozenset()


async def test_a_key_that_fires_before_the_wait_is_not_lost() -> None:
    hub = Hub()
    with hub.watch("a") as watch:
        hub.fire("a")
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"a"}


async def test_a_thread_wakes_the_loop() -> None:
    hub = Hub()
    with hub.watch("a") as watch:
        thread = threading.Thread(target=hub.fire_threadsafe, args=("a", "unwatched"))
        thread.start()
        assert await asyncio.wait_for(watch.wait(), SOON_SECONDS) == {"a"}
        thread.join()


async def test_who_is_woken_and_cancelled_at_once_is_cancelled() -> None:
    """A socket ends by cancelling its tasks, often for what wakes them: one that went on would keep it."""
    hub = Hub()
    with hub.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait(60.0))
        await asyncio.sleep(0)
        for turns in range(4):
            hub.fire("a")
            for _ in range(turns):
                await asyncio.sleep(0)
            if waiting.done():
                break
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            watch.forget()
            waiting = asyncio.create_task(watch.wait(60.0))
            await asyncio.sleep(0)
        waiting.cancel()


async def test_keys_come_and_go() -> None:
    hub = Hub()
    with hub.watch() as watch:
        watch.add("a")
        hub.fire("a")
        watch.discard("a")
        hub.fire("a")
        assert await watch.wait(0.01) == frozenset()


async def test_a_lost_link_wakes_everybody() -> None:
    hub = Hub()
    with hub.watch("a", "b") as one, hub.watch("c") as other:
        hub.resync()
        assert await one.wait() == {"a", "b"}
        assert await other.wait() == {"c"}


async def test_nothing_is_kept_of_those_who_left() -> None:
    hub = Hub()
    with hub.watch("a"), hub.watch("a", "b"):
        pass
    hub.fire_threadsafe("a")
    assert not hub.is_watched


def test_a_thread_waits_until_the_predicate_gives_a_value() -> None:
    hub, values = Hub(), iter([None, None, "done"])
    asked = threading.Semaphore(0)

    def predicate() -> str | None:
        asked.release()
        return next(values)

    found: list[str | None] = []
    waiter = threading.Thread(
        target=lambda: found.append(hub.wait_blocking("a", timeout_seconds=60, predicate=predicate))
    )
    waiter.start()
    for _ in range(2):
        asked.acquire()
        hub.fire_threadsafe("a")
    waiter.join(SOON_SECONDS)
    assert found == ["done"]
    assert not hub.is_watched


def test_a_thread_asks_again_although_no_hint_comes() -> None:
    values = iter([None, "done"])
    assert (
        Hub().wait_blocking("a", timeout_seconds=RECHECK_SECONDS * 5, predicate=lambda: next(values))
        == "done"
    )


def test_a_thread_gives_up_when_time_is_up() -> None:
    assert Hub().wait_blocking("a", timeout_seconds=0.05, predicate=lambda: None) is None


NOTICES: list[announce.Notice] = [
    announce.NamespacePolicyChanged("public", "default"),
    announce.TopicChanged(1, "topic://a/b/c", 2),
    announce.TopicDeleted(1, "topic://a/b/c"),
    announce.NamespaceChanged("a", "b"),
    announce.OperationChanged("o", 1),
    announce.SegmentAppended(1, 2),
    announce.SegmentTerminated(1, 2),
    announce.AssignmentChanged(3, 1),
    announce.QueueChanged(3, 2),
    announce.AccessChanged(),
]


@pytest.mark.parametrize("notice", NOTICES, ids=lambda notice: type(notice).__name__)
def test_a_notice_fires_keys(notice: announce.Notice) -> None:
    assert keys_of(notice)


def test_every_notice_is_thought_of() -> None:
    known = {type(notice) for notice in NOTICES} | FOR_WORKERS
    # By name: a class with slots is made twice, and both makes count as subclasses.
    names = {subclass.__name__ for subclass in announce.Notice.__subclasses__()}
    assert {notice.__name__ for notice in known} == names
