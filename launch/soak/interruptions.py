"""What a soak does around the product: database sessions are cut, nodes are paused, its servers crash."""

import asyncio
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable

import psycopg

from launch.instance import Instance
from launch.restarts import STEADY_SECONDS
from launch.services import serves
from launch.soak.journal import Journal
from launch.soak.plan import NODE_TIMEOUT_SECONDS, SoakPlan

MOST_SESSIONS = 4
SHORT_PAUSE_SECONDS = (0.2, 2.0)
LONG_PAUSE_SECONDS = (NODE_TIMEOUT_SECONDS + 1, NODE_TIMEOUT_SECONDS + 3)
"""Long enough for another node to take over: the paused one wakes up and leads no more, without knowing."""
LONG_PAUSES = 0.3
CRASHES = 0.15
"""How often a server crashes instead; each one again after a steady time only, so that it is soon back."""
CUT = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'scalable' AND datname = current_database() AND pid <> pg_backend_pid()
    ORDER BY md5(pid::text || %s) LIMIT %s
) AS sessions
"""


class Interrupter:
    """Interrupts nodes, database sessions and servers at random."""

    def __init__(self, plan: SoakPlan, instance: Instance, journal: Journal) -> None:
        self._random = random.Random(f"{plan.seed}/interruptions")
        self._pause_seconds = plan.mean_interruption_pause_seconds
        self._instance, self._journal = instance, journal
        self._paused: set[str] = set()
        self._crashed_at: dict[str, float] = {}
        self.counts: dict[str, int] = {"database session": 0, "node": 0, "server": 0}

    async def run(self) -> None:
        """Interrupt until cancelled; whatever is paused then goes on."""
        try:
            while True:
                await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._pause_seconds)
                await self._choose()()
        finally:
            for name in self._paused:
                self._instance.signal(name, signal.SIGCONT)

    def _choose(self) -> Callable[[], Awaitable[None]]:
        if self._random.random() < CRASHES:
            return self._random.choice([self._crash_postgres, self._crash_valkey])
        return self._random.choice([self._cut_some_sessions, self._pause_a_node])

    async def _cut_some_sessions(self) -> None:
        self.counts["database session"] += await asyncio.to_thread(self._cut_sessions)

    def _cut_sessions(self) -> int:
        """End sessions of any process, whatever they are doing; give how many."""
        salt, most = str(self._random.random()), self._random.randint(1, MOST_SESSIONS)
        try:
            with psycopg.connect(self._instance.database_url, application_name="soak") as connection:
                row = connection.execute(CUT, (salt, most)).fetchone()
        except psycopg.OperationalError:  # it has crashed and is not back yet
            return 0
        self._journal.struck("database sessions")
        return int(row[0]) if row else 0

    async def _crash_postgres(self) -> None:
        """End the database without a checkpoint: every session is cut, and it recovers from its log."""
        self._crash("postgres", signal.SIGQUIT)

    async def _crash_valkey(self) -> None:
        """Kill the broker, every second time with what it keeps: tasks and notices are lost."""
        forgets = self._random.random() < 0.5
        if self._crash("valkey", signal.SIGKILL) and forgets:
            kept = self._instance.running.data_directory / "valkey" / "appendonlydir"
            await asyncio.to_thread(shutil.rmtree, kept, ignore_errors=True)

    def _crash(self, name: str, number: signal.Signals) -> bool:
        now = time.monotonic()
        if now - self._crashed_at.get(name, -STEADY_SECONDS) < STEADY_SECONDS:
            return False
        if not self._instance.signal(name, number):  # it is not ours
            return False
        self._crashed_at[name] = now
        self._journal.struck(name)
        self.counts["server"] += 1
        return True

    async def _pause_a_node(self) -> None:
        """Freeze a node while another one serves."""
        number = self._random.randrange(len(self._instance.nodes))
        long = self._random.random() < LONG_PAUSES
        seconds = self._random.uniform(*(LONG_PAUSE_SECONDS if long else SHORT_PAUSE_SECONDS))
        others = [url for each, url in enumerate(self._instance.running.urls) if each != number]
        if not await asyncio.to_thread(_any_serves, others):
            return
        name = self._instance.nodes[number]
        self._paused.add(name)
        self._journal.struck(f"{name} frozen", seconds)
        if self._instance.signal(name, signal.SIGSTOP):
            self.counts["node"] += 1
            await asyncio.sleep(seconds)
        self._instance.signal(name, signal.SIGCONT)
        self._paused.discard(name)


def _any_serves(urls: list[str]) -> bool:
    return any(serves(f"{url}/readyz") for url in urls)
