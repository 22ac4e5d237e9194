"""What the watches of topics and of namespaces share: a task that follows, and waiting for what it tells."""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from scalable.client.connection import Backoff, ConnectionLost, Endpoint, keep_running, logger
from scalable.client.time_limit import time_limit

State = TypeVar("State")
News = TypeVar("News")
CLOSED = 1000


class CallbackFailed(Exception):
    """The application's own callback raised `error`; no new connection mends that, of whatever kind it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Watch(Generic[State]):
    """Follows something over one socket, which is opened again when it is lost."""

    def __init__(self, endpoint: Endpoint, followed: object, *, client: str) -> None:
        self._endpoint, self._followed, self._client = endpoint, followed, client
        self._session_id = uuid.uuid4().hex
        self.backoff = Backoff()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _session(self) -> None:
        """Open a socket and adopt what it tells, until it ends."""

    @abstractmethod
    def _state(self) -> State | None:
        """Give what is known, or None before anything is."""

    async def start(self, timeout_seconds: float = 30.0) -> State:
        """Begin to watch and wait until something is known.

        Raises TopicNotFound or NamespaceNotFound, Unauthenticated, Forbidden, ConnectionLost, TimeoutError.
        """
        self._task = asyncio.create_task(self._run(), name=f"watch {self._followed}")
        # Who waits is told of the error; an owner that is dropped without a close has nobody who waits.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with self.backoff.within(timeout_seconds):
                return await self.wait_for(lambda _: True)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_for(self, holds: Callable[[State], bool], timeout_seconds: float | None = None) -> State:
        """Wait until a condition on what is known holds.

        Raises what ended the watch, which may be an error of its callback; TimeoutError.
        """
        async with time_limit(timeout_seconds):
            while True:
                changed = self._changed
                state = self._state()
                if state is not None and holds(state):
                    return state
                self._raise_if_ended()
                await changed.wait()

    def _raise_if_ended(self) -> None:
        if self._task is None:
            raise RuntimeError("the watch was not started")
        if self._task.done():
            if not self._task.cancelled():
                self._task.result()
            raise ConnectionLost(CLOSED, "the watch was closed")

    async def _keep_following(self) -> None:
        """Follow until an error ends it that no new connection mends."""
        await keep_running(self._session, backoff=self.backoff, what=f"watch of {self._followed}")

    def _tell(self, callback: Callable[[News], None] | None, news: News) -> None:
        """Call what the application gave; raises CallbackFailed, which ends the watch."""
        if callback is None:
            return
        try:
            callback(news)
        except Exception as error:
            raise CallbackFailed(error) from error

    async def _follow_to_the_end(self) -> None:
        """Follow; raises what a callback raised as it is, with its own cause and context."""
        try:
            await self._keep_following()
        except CallbackFailed as failed:
            error = failed.error
        else:
            return
        raise error

    async def _run(self) -> None:
        try:
            await self._follow_to_the_end()
        except Exception as error:
            logger.info("watch of %s ended: %s", self._followed, error)
            raise
        finally:
            # The task is not done before this returns: waiters must look after it is.
            asyncio.get_running_loop().call_soon(self._pulse)

    def _pulse(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
