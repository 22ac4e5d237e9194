"""What the demo sees of its topic from outside: layout by the watch; operations, decisions, loads by REST."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launch.process import LaunchError
from scalable.client import Admin, Endpoint, Topology, TopologyWatch
from scalable.domain.names import TopicName

LOAD_RULES = frozenset({"msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut"})
MERGE_RULE = "cold"
READ_SECONDS = 1.0
MAX_OPERATIONS = 1_000


@dataclass
class Sight:
    """The last that was read."""

    splits: int = 0
    merges: int = 0
    other_operations: int = 0
    decision: str = ""
    load_known: bool = False
    load_reports: set[tuple[str, int]] = field(default_factory=set)

    def take_operations(self, operations: list[dict[str, Any]]) -> None:
        """Count finished operations by whether a load rule asked for them."""
        done = [(each["kind"], each["reason"]) for each in operations if each["outcome"] == "SUCCEEDED"]
        self.splits = sum(kind == "SPLIT" and reason in LOAD_RULES for kind, reason in done)
        self.merges = sum(kind == "MERGE" and reason == MERGE_RULE for kind, reason in done)
        self.other_operations = len(done) - self.splits - self.merges

    def take_loads(self, loads: dict[str, Any]) -> None:
        """Collect the reports: each material change of a segment's load has a time of its own."""
        self.load_known = bool(loads["known"])
        self.load_reports |= {(key, value["modifiedAtMs"]) for key, value in loads["segments"].items()}

    def take_decisions(self, decisions: list[dict[str, Any]]) -> None:
        """Keep the last decision as one line."""
        if decisions:
            last = decisions[0]
            self.decision = f"{last.get('action') or 'hold'}: {last.get('rule', '')}"


class Observer:
    """Re-reads what REST says after each push of the watch, and at least every second."""

    def __init__(self, admin: Admin, endpoint: Endpoint, topic: TopicName) -> None:
        self._admin, self._topic = admin, topic
        self._watch = TopologyWatch(endpoint, topic, client="demo")
        self._read = asyncio.Event()
        self.sight = Sight()

    @property
    def topology(self) -> Topology | None:
        """Return the newest layout."""
        return self._watch.current

    @property
    def active_segments(self) -> int:
        """Return how many segments take messages now."""
        return len(self._watch.current.active) if self._watch.current else 0

    async def run(self) -> None:
        """Observe until cancelled."""
        revision = (await self._watch.start()).revision
        try:
            while True:
                await asyncio.to_thread(self._look)
                self._pulse()
                revision = await self._next_revision(revision)
        finally:
            await self._watch.close()

    async def _next_revision(self, revision: int) -> int:
        """Wait for a push, a second at most: loads and decisions may change without one."""
        try:
            return (await self._watch.wait_for(lambda seen: seen.revision > revision, READ_SECONDS)).revision
        except TimeoutError:
            return revision

    def _look(self) -> None:
        self.sight.take_operations(self._admin.operations(self._topic, limit=MAX_OPERATIONS))
        self.sight.take_decisions(self._admin.decisions(self._topic, limit=1))
        self.sight.take_loads(self._admin.loads(self._topic))

    def _pulse(self) -> None:
        self._read.set()
        self._read = asyncio.Event()

    async def until(self, holds: Callable[[], bool], *, timeout_seconds: float, what: str) -> None:
        """Wait until a condition on what was seen holds. Raises LaunchError at the deadline."""
        deadline = time.monotonic() + timeout_seconds
        while not holds():
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._read.wait()
            except TimeoutError:
                raise LaunchError(f"{what} did not come within {timeout_seconds:.0f} seconds") from None
