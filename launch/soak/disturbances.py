"""What a soak does to the product while it works: kills, splits and merges, all by one seed."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import httpx

from launch.instance import Instance
from launch.services import serves
from launch.soak.crew import Crew
from launch.soak.journal import Journal
from launch.soak.plan import CONSUMERS, MAX_ACTIVE_SEGMENTS, MIN_ACTIVE_SEGMENTS, TOPIC, SoakPlan
from scalable.client import Admin, ConnectionLost
from scalable.domain.errors import ScalableError

SHORT_ABSENCE_SECONDS = (0.2, 2.0)
LONG_ABSENCE_SECONDS = (8.0, 12.0)
"""Longer than the grace period: the others get what the absent one had."""
LONG_ABSENCES = 0.2


class Killer:
    """Kills clients, workers and nodes at random; what it killed comes back by itself."""

    def __init__(self, plan: SoakPlan, crew: Crew, instance: Instance, journal: Journal) -> None:
        self._random = random.Random(f"{plan.seed}/kills")
        self._pause_seconds = plan.mean_kill_pause_seconds
        self._crew, self._instance, self._journal = crew, instance, journal
        self.kills: dict[str, int] = {"consumer": 0, "worker": 0, "node": 0}

    async def run(self) -> None:
        """Kill until cancelled."""
        strikes: list[tuple[str, Callable[[], bool]]] = [
            *[("consumer", self._kill_consumer)] * 3,
            ("worker", self._kill_worker),
            *[("node", self._kill_node)] * 2,
        ]
        while True:
            await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._pause_seconds)
            kind, strike = self._random.choice(strikes)
            self.kills[kind] += await asyncio.to_thread(strike)

    def _kill_consumer(self) -> bool:
        role = self._random.choice(list(CONSUMERS))
        member = self._random.choice(self._crew.of(role))
        long = self._random.random() < LONG_ABSENCES
        away_seconds = self._random.uniform(*(LONG_ABSENCE_SECONDS if long else SHORT_ABSENCE_SECONDS))
        self._journal.struck(member.name, away_seconds)
        return self._crew.kill(member, away_seconds=away_seconds)

    def _kill_worker(self) -> bool:
        return self._kill_process(self._random.choice(self._instance.workers))

    def _kill_node(self) -> bool:
        """Kill a node while another one serves; with none at all nothing would be tried but waiting."""
        victim = self._random.randrange(len(self._instance.nodes))
        others = [url for number, url in enumerate(self._instance.running.urls) if number != victim]
        if not any(serves(f"{url}/readyz") for url in others):
            return False
        return self._kill_process(self._instance.nodes[victim])

    def _kill_process(self, name: str) -> bool:
        self._journal.struck(name)
        return self._instance.kill(name)


class Reshaper:
    """Asks for splits and merges at random, by REST."""

    def __init__(self, plan: SoakPlan, admin: Admin) -> None:
        self._random = random.Random(f"{plan.seed}/shapes")
        self._pause_seconds = plan.mean_reshape_pause_seconds
        self._admin = admin
        self.splits = self.merges = self.unfinished = 0

    async def run(self) -> None:
        """Reshape until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._pause_seconds)
            await asyncio.to_thread(self._try)

    def _try(self) -> None:
        """Ask for something; a node that died or a segment that is taken means another try later."""
        try:
            self._reshape()
            self.count()
        except (ScalableError, ConnectionLost, httpx.HTTPError):
            return

    def _reshape(self) -> None:
        segments = self._admin.get_topic(TOPIC)["segments"].items()
        active = sorted(
            (each["hashRange"]["start"], int(key)) for key, each in segments if each["state"] == "ACTIVE"
        )
        if self._splits_next(len(active)):
            self._admin.split(TOPIC, self._random.choice(active)[1], wait=False)
        else:
            left = self._random.randrange(len(active) - 1)
            self._admin.merge(TOPIC, [active[left][1], active[left + 1][1]], wait=False)

    def _splits_next(self, active: int) -> bool:
        """Choose between a split and a merge; the first merge does not wait for its luck."""
        if active <= MIN_ACTIVE_SEGMENTS:
            return True
        if active >= MAX_ACTIVE_SEGMENTS or not self.merges:
            return False
        return self._random.random() < 0.5

    def count(self) -> None:
        """Count what has come to its end, and what has not."""
        operations: list[dict[str, Any]] = self._admin.operations(TOPIC, limit=1_000)
        done = [each["kind"] for each in operations if each["outcome"] == "SUCCEEDED"]
        self.splits, self.merges = done.count("SPLIT"), done.count("MERGE")
        self.unfinished = sum(each["outcome"] is None for each in operations)
