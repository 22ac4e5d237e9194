"""Runs synchronous services for the event loop: threads of our own, each with its connection."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from scalable.domain.errors import TooManyRequests

P = ParamSpec("P")
T = TypeVar("T")

WAITING_PER_THREAD = 256
RETRY_AFTER_SECONDS = 1.0


class Call(Protocol):
    """Runs a synchronous service beside the event loop and gives its result."""

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run the function; raises what it raises, or TooManyRequests."""


class ServiceExecutor:
    """A bounded pool of threads with open connections; one that failed is dropped and opened anew."""

    def __init__(self, *, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="service")
        self._limit = threads * WAITING_PER_THREAD
        self._unfinished = 0
        self._lock = threading.Lock()
        self._opened: set[BaseDatabaseWrapper] = set()

    @property
    def unfinished(self) -> int:
        """Count the calls that run or wait."""
        return self._unfinished

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function on a thread and give its result; raises what it raises, or TooManyRequests."""
        if self._unfinished >= self._limit:
            raise TooManyRequests(limit=self._limit, retry_after_seconds=RETRY_AFTER_SECONDS)
        self._unfinished += 1
        try:
            loop = asyncio.get_running_loop()
            call = partial(copy_context().run, self._run, partial(function, *args, **kwargs))
            return await loop.run_in_executor(self._pool, call)
        finally:
            self._unfinished -= 1

    def close(self) -> None:
        """Wait for the calls under way and close the connections; blocks."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in self._opened:
            connection.inc_thread_sharing()
            connection.close()
        self._opened.clear()

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            for connection in connections.all(initialized_only=True):
                self._keep(connection)

    def _keep(self, connection: BaseDatabaseWrapper) -> None:
        if connection.errors_occurred:
            drop(connection)
        if connection not in self._opened:
            with self._lock:
                self._opened.add(connection)


def drop(connection: BaseDatabaseWrapper) -> None:
    """Close a connection for good, also to a pool: it may lead to a read-only server."""
    if connection.connection is not None:
        connection.connection.close()
    connection.close()
    connection.errors_occurred = False
