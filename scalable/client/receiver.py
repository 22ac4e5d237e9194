"""What every consumer is to its application: a context that gives messages until it is left or fails."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from scalable.client.connection import ConnectionLost
from scalable.client.starting import require_new
from scalable.client.time_limit import time_limit

MessageKind = TypeVar("MessageKind")


class Receiver(ABC, Generic[MessageKind]):
    """Hands out messages that arrive beside the application; each kind of consumer says from where."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._leaving = False
        self._started = False
        self.on_change: Callable[[], None] | None = None
        """Called in the event loop whenever there may be a message, or the consumer ended.

        What it raises ends the consumer.
        """
        self._callback_failed = False

    @abstractmethod
    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Connect, and wait until messages can come."""

    @abstractmethod
    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Make durable what is done, and leave."""

    @abstractmethod
    def _next_message(self) -> MessageKind | None:
        """Hand out a message that waits, or None."""

    def _begin(self) -> None:
        """Note that this consumer starts; raises RuntimeError when it did already, or has ended."""
        self._require_open()
        require_new("consumer", started=self._started)
        self._started = True

    def _require_open(self) -> None:
        require_new("consumer", ended=self._leaving or self._failure is not None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def receive(self, timeout_seconds: float | None = None) -> MessageKind:
        """Wait for the next message; raises TimeoutError, and what ended the consumer, as TopicDeleted."""
        message = self._take_message()
        if message is not None:
            return message
        async with time_limit(timeout_seconds):
            while (message := self._take_message()) is None:
                self._raise_failure()
                await self._changed.wait()
        return message

    def _take_message(self) -> MessageKind | None:
        """Hand out a message that waits; after a callback failed none, though more may arrive."""
        return None if self._callback_failed else self._next_message()

    async def _wait_for_failure(self) -> BaseException:
        """Wait until the consumer ends, and give what ended it."""
        while self._failure is None:
            await self._changed.wait()
        return self._failure

    def __aiter__(self) -> AsyncIterator[MessageKind]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[MessageKind]:
        while not self._leaving:
            try:
                yield await self.receive()
            except ConnectionLost:
                if not self._leaving:
                    raise

    def _pulse(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self.on_change is None:
            return
        try:
            self.on_change()
        except Exception as error:  # here, where no session takes it for a loss that a new connection mends
            self.on_change = None
            self._callback_failed = True
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._pulse()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
