"""Wakes whoever waits for rows to change, inside one process: keys fire, waiters read the rows again.

A key names a thing (`topic:5`, `segment:5:3`); that it fired says "read again", never what changed. Fired
keys are coalesced in sets, so nothing here grows with the number of events.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

RECHECK_SECONDS = 1.0
"""How long a blocking waiter trusts silence; a lost hint costs at most this."""


def topic_key(incarnation: int) -> str:
    """The layout, the leader or anything else that every watcher of a topic sees."""
    return f"topic:{incarnation}"


def activity_key(incarnation: int) -> str:
    """The operations of a topic, which only detailed watchers see."""
    return f"activity:{incarnation}"


def segment_key(incarnation: int, segment_id: int) -> str:
    """The messages of a segment, and its end."""
    return f"segment:{incarnation}:{segment_id}"


def subscription_key(subscription_id: int) -> str:
    """The assignment of a subscription, and the acknowledgements that may drain a sealed segment."""
    return f"subscription:{subscription_id}"


def queue_key(subscription_id: int, segment_id: int) -> str:
    """What the consumers of a QUEUE subscription may claim in a segment, beside what is appended."""
    return f"queue:{subscription_id}:{segment_id}"


def operation_key(operation_id: str) -> str:
    """The phase and outcome of an operation."""
    return f"operation:{operation_id}"


def namespace_key(tenant: str, namespace: str) -> str:
    """The topics of a namespace."""
    return f"namespace:{tenant}/{namespace}"


def policy_key(tenant: str, namespace: str) -> str:
    """The auto-scale policy of a namespace."""
    return f"policy:{tenant}/{namespace}"


def access_key() -> str:
    """Who may do what."""
    return "access"


class Watch:
    """One waiter's keys and which of them fired; made by `Hub.watch`, used on the event loop."""

    def __init__(self, hub: "Hub", keys: Iterable[str]) -> None:
        self._hub = hub
        self._keys = set(keys)
        self._fired: set[str] = set()
        self._event = asyncio.Event()

    def __enter__(self) -> "Watch":
        self._hub.bind(asyncio.get_running_loop())
        for key in self._keys:
            self._hub.join(key, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in self._keys:
            self._hub.part(key, self)
        self._keys.clear()

    @property
    def keys(self) -> frozenset[str]:
        """The keys watched now."""
        return frozenset(self._keys)

    def add(self, key: str) -> None:
        """Watch one more key."""
        if key not in self._keys:
            self._keys.add(key)
            self._hub.join(key, self)

    def discard(self, key: str) -> None:
        """Watch a key no longer, and forget that it fired."""
        if key in self._keys:
            self._keys.discard(key)
            self._fired.discard(key)
            self._hub.part(key, self)

    def forget(self) -> None:
        """Forget what fired up to now, because the rows are about to be read."""
        self._fired.clear()

    def notify(self, key: str) -> None:
        """Note that the key fired and wake the waiter."""
        self._fired.add(key)
        self._event.set()

    async def wait(self, timeout_seconds: float | None = None) -> frozenset[str]:
        """The keys that fired since the last call, as soon as there is one; none after the time-out."""
        if not self._fired:
            self._event.clear()
            try:
                async with asyncio.timeout(timeout_seconds):  # `wait_for` may swallow a cancellation
                    await self._event.wait()
            except TimeoutError:
                return frozenset()
        fired, self._fired = frozenset(self._fired), set()
        self._event.clear()
        return fired


class Hub:
    """The waiters of one process, by key."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self._blocked: dict[str, set[threading.Event]] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: set[str] = set()

    @property
    def is_watched(self) -> bool:
        """True while anybody waits for anything."""
        return bool(self._watches or self._blocked or self._pending)

    def watch(self, *keys: str) -> Watch:
        """A waiter for these keys, a context manager on the event loop; enter it before reading the rows."""
        return Watch(self, keys)

    def fire(self, *keys: str) -> None:
        """Wake the waiters of these keys; on the event loop only."""
        self._wake_blocked(keys)
        self._notify(keys)

    def fire_threadsafe(self, *keys: str) -> None:
        """Wake the waiters of these keys from any thread."""
        self._wake_blocked(keys)
        with self._lock:
            loop, idle = self._loop, not self._pending
            # A key without a waiter need not be kept: who comes later reads the rows after coming.
            self._pending.update(key for key in keys if key in self._watches)
            call = idle and bool(self._pending)
        if loop is not None and call:
            self._call_soon(loop)

    def resync(self) -> None:
        """Wake everybody, because hints may have been lost; on the event loop only."""
        self.fire(*self._watches, *self._blocked)

    def wait_blocking(
        self, key: str, *, timeout_seconds: float, predicate: Callable[[], T | None]
    ) -> T | None:
        """Ask the predicate now, at each firing of the key and every second, until it gives a value.

        For threads; None when time is up. The predicate must hold no database connection when it returns.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._blocking(key) as event:
            while (value := predicate()) is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return None
                event.wait(min(remaining, RECHECK_SECONDS))
                event.clear()
        return value

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver what threads fire on this loop from now on."""
        with self._lock:
            if loop is not self._loop:
                self._loop, self._pending = loop, set()

    def join(self, key: str, watch: Watch) -> None:
        """Add a waiter of a key; called by `Watch`."""
        self._watches.setdefault(key, set()).add(watch)

    def part(self, key: str, watch: Watch) -> None:
        """Remove a waiter of a key; called by `Watch`."""
        waiters = self._watches.get(key)
        if waiters is not None:
            waiters.discard(watch)
            if not waiters:
                del self._watches[key]

    def _notify(self, keys: Iterable[str]) -> None:
        for key in keys:
            for watch in tuple(self._watches.get(key, ())):
                watch.notify(key)

    def _call_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # the loop closed, and its waiters with it
            with self._lock:
                self._pending.clear()

    def _drain(self) -> None:
        with self._lock:
            keys, self._pending = self._pending, set()
        self._notify(keys)

    @contextmanager
    def _blocking(self, key: str) -> Iterator[threading.Event]:
        event = threading.Event()
        with self._lock:
            self._blocked.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._blocked[key].discard(event)
                if not self._blocked[key]:
                    del self._blocked[key]

    def _wake_blocked(self, keys: Iterable[str]) -> None:
        if not self._blocked:
            return
        with self._lock:
            events = [event for key in keys for event in self._blocked.get(key, ())]
        for event in events:
            event.set()


hub = Hub()
