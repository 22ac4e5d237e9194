"""What threads share that ask for the rules at the same time: one reading, also when it fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import pytest
from django.db import OperationalError

from scalable.services.rules import RuleCache
from scalable.store.access import Rules
from tests.faults.waiting import until

WAIT_SECONDS = 60.0
THREADS = 5


class CountedLock:
    """A lock that tells how many have come for it."""

    def __init__(self) -> None:
        self.comers = 0
        self._lock, self._counting = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._counting:
            self.comers += 1
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._lock.release()


class AwayDatabase(RuleCache):
    """Each reading fails once it is let go."""

    def __init__(self, lock: Any) -> None:
        super().__init__()
        self._lock = lock
        self.readings = 0
        self.let_go = threading.Event()

    def _refresh(self) -> Rules:
        self.readings += 1
        self.let_go.wait(WAIT_SECONDS)
        raise OperationalError("the database is away")


@pytest.mark.parametrize("ask", [RuleCache.current, RuleCache.refresh])
def test_a_reading_that_fails_has_failed_for_all_that_wait(ask: Any) -> None:
    lock = CountedLock()
    cache = AwayDatabase(lock)
    with ThreadPoolExecutor(THREADS) as threads:
        asked = [threads.submit(ask, cache) for _ in range(THREADS)]
        until(lambda: lock.comers == THREADS, what="all to wait")
        cache.let_go.set()
        errors = [each.exception(WAIT_SECONDS) for each in asked]
    assert [str(error) for error in errors] == ["the database is away"] * THREADS
    assert len({id(error) for error in errors}) == THREADS
    assert cache.readings == 1
    with pytest.raises(OperationalError):
        ask(cache)
    assert cache.readings == 2
