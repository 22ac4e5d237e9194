"""What a soak does to the product without killing it: database sessions are cut, nodes are paused."""

import asyncio
import random
import signal

import psycopg

from launch.instance import Instance
from launch.services import serves
from launch.soak.journal import Journal
from launch.soak.plan import NODE_TIMEOUT_SECONDS, SoakPlan

MOST_SESSIONS = 4
SHORT_PAUSE_SECONDS = (0.2, 2.0)
LONG_PAUSE_SECONDS = (NODE_TIMEOUT_SECONDS + 1, NODE_TIMEOUT_SECONDS + 3)
"""Long enough for another node to take over: the paused one wakes up and leads no more, without knowing."""
LONG_PAUSES = 0.3
CUT = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'scalable' AND datname = current_database() AND pid <> pg_backend_pid()
    ORDER BY md5(pid::text || %s) LIMIT %s
) AS sessions
"""


class Interrupter:
    """Interrupts nodes and database sessions at random."""

    def __init__(self, plan: SoakPlan, instance: Instance, journal: Journal) -> None:
        self._random = random.Random(f"{plan.seed}/interruptions")
        self._pause_seconds = plan.mean_interruption_pause_seconds
        self._instance, self._journal = instance, journal
        self._paused: set[str] = set()
        self.counts: dict[str, int] = {"database session": 0, "node": 0}

    async def run(self) -> None:
        """Interrupt until cancelled; whatever is paused then goes on."""
        try:
            while True:
                await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._pause_seconds)
                if self._random.random() < 0.5:
                    self.counts["database session"] += await asyncio.to_thread(self._cut_sessions)
                else:
                    await self._pause_a_node()
        finally:
            for name in self._paused:
                self._instance.signal(name, signal.SIGCONT)

    def _cut_sessions(self) -> int:
        """End sessions of any process, whatever they are doing; give how many."""
        salt, most = str(self._random.random()), self._random.randint(1, MOST_SESSIONS)
        with psycopg.connect(self._instance.database_url, application_name="soak") as connection:
            row = connection.execute(CUT, (salt, most)).fetchone()
        self._journal.struck("database sessions")
        return int(row[0]) if row else 0

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
