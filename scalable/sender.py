"""Sends what processes tell each other from a thread of its own, so that nobody waits for a receiver."""

import atexit
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

logger = logging.getLogger(__name__)


class Sender(ABC, Generic[T]):
    """The thread that sends; started with the first thing that is offered.

    What is offered again while it waits is sent once; beyond the bound it is dropped, as any hint may be.
    """

    def __init__(self, name: str, *, most: int, goodbye_seconds: float) -> None:
        """Take the thread's name, how many things may wait, and how long the end of a process waits."""
        self._name, self._most, self._goodbye_seconds = name, most, goodbye_seconds
        self.reset()

    @abstractmethod
    def send(self, things: Sequence[T]) -> None:
        """Send what waited."""

    def at_home(self) -> None:
        """Have the process close it at its end, and begin it anew after a fork."""
        os.register_at_fork(after_in_child=partial(type(self).reset, self))
        atexit.register(self.close)

    def reset(self) -> None:
        """Begin anew, as after a fork, which leaves no thread behind."""
        self._pending: dict[T, None] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def pending(self) -> int:
        """Count the things that wait to be sent."""
        return len(self._pending)

    def offer(self, things: Iterable[T]) -> None:
        """Send things soon."""
        with self._wake:
            room = self._most - len(self._pending)
            self._pending.update(dict.fromkeys(islice(things, room)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """Send what is left, as far as there is time."""
        with self._wake:
            thread, self._closing = self._thread, True
            self._wake.notify()
        if thread is not None:
            thread.join(self._goodbye_seconds)

    def _run(self) -> None:
        while things := self._take():
            try:
                self.send(things)
            except Exception:  # the thread outlives what it could not send
                logger.exception("%s: %d were not sent", self._name, len(things))

    def _take(self) -> Sequence[T]:
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._closing)
            things, self._pending = list(self._pending), {}
        return things
