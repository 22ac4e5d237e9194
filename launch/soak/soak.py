"""One soak: clients work, things die, and at the end the journals are judged."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from launch.instance import Instance
from launch.process import LaunchError
from launch.soak import verdict
from launch.soak.crew import Crew
from launch.soak.disturbances import Killer, Reshaper
from launch.soak.inspector import Inspector
from launch.soak.interruptions import Interrupter
from launch.soak.journal import Journal
from launch.soak.plan import CONSUMERS, DRAIN_SECONDS, STALL_SECONDS, TOPIC, Role, SoakPlan
from launch.soak.verdict import Name, Verdict
from scalable.client import Admin
from scalable.client.subscription_admin import Kind

MEND_SECONDS = 0.2
SETTLE_SECONDS = 60.0
RESHAPE_SECONDS = 180.0
"""How long, on a slow machine, a soak goes on without kills until there were a split and a merge."""
MUST_HAPPEN = ("produced", "kills", "splits", "merges")
KINDS: dict[Role, Kind] = {Role.STREAM: "STREAM", Role.QUEUE: "QUEUE", Role.CHECKPOINT: "CHECKPOINT"}
DONE = {Role.STREAM: verdict.received, Role.QUEUE: verdict.received, Role.CHECKPOINT: verdict.lasting}
JUDGES = {
    Role.STREAM: verdict.judge_stream,
    Role.QUEUE: verdict.judge_queue,
    Role.CHECKPOINT: verdict.judge_checkpoint,
}


class Soak:
    """Runs in an instance of its own; the figures can be read while it runs."""

    def __init__(self, plan: SoakPlan, instance: Instance, folder: Path) -> None:
        self.plan = plan
        self._folder = folder
        services = instance.running
        self._admin = Admin(services.urls, services.admin_token)
        self.crew = Crew(plan, services, folder)
        strikes = Journal(folder / "strikes.journal")
        self.killer = Killer(plan, self.crew, instance, strikes)
        self.interrupter = Interrupter(plan, instance, strikes)
        self.reshaper = Reshaper(plan, self._admin)
        self.inspector = Inspector(self._admin)
        self.phase = "starting"
        self.verdicts: dict[Role, Verdict] = {}
        self.produced: set[Name] = set()
        self._begun_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the soak has run."""
        return time.monotonic() - self._begun_at

    def received(self, role: Role) -> set[Name]:
        """What the consumers of a role have received by now."""
        return verdict.received(self.crew.journals(role))

    async def run(self) -> None:
        """Do everything. Raises LaunchError when what is left does not come to its end."""
        try:
            await asyncio.to_thread(self._set_up)
            await self._work()
            await self._finish()
        finally:
            await asyncio.to_thread(self.crew.close)
            self._admin.close()

    def _set_up(self) -> None:
        self._admin.create_topic(TOPIC)
        self._admin.set_policy(TOPIC, {"enabled": False})
        for role in CONSUMERS:
            self._admin.create_subscription(TOPIC, role, kind=KINDS[role])

    async def _work(self) -> None:
        """Let everybody work and disturb them for as long as planned; nothing else ends this phase."""
        self.phase = "disturbed"
        inspecting = asyncio.create_task(self.inspector.run())
        mending = asyncio.create_task(self._mend())
        reshaping = asyncio.create_task(self.reshaper.run())
        striking = [asyncio.create_task(each.run()) for each in (self.killer, self.interrupter)]
        tasks = [inspecting, mending, reshaping, *striking]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=self.plan.seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            await _until(lambda: any(self.killer.kills.values()), SETTLE_SECONDS)
            await _cancel(striking)
            await _until(lambda: self.reshaper.splits > 0 and self.reshaper.merges > 0, RESHAPE_SECONDS)
            await _cancel([reshaping])
            await self._drain()
        finally:
            await _cancel(tasks)

    async def _mend(self) -> None:
        while True:
            self.crew.mend()
            await asyncio.sleep(MEND_SECONDS)

    async def _drain(self) -> None:
        """Let the producers finish, then wait until everybody has everything."""
        self.phase = "draining"
        await asyncio.to_thread(self.crew.stop, Role.PRODUCER)
        self.produced = verdict.sent(self.crew.journals(Role.PRODUCER))
        await _until(_Drain(self._missing), DRAIN_SECONDS)
        if self._missing():
            # What is missing is counted as lost; where it stands is told here.
            stats = await asyncio.to_thread(self._admin.stats, TOPIC)
            (self._folder / "stats.json").write_text(json.dumps(stats, indent=1))
        await self._settle()

    def _missing(self) -> int:
        """Count what the subscriptions do not have for good, summed over them."""
        return sum(len(self.produced - done(self.crew.journals(role))) for role, done in DONE.items())

    async def _settle(self) -> None:
        """Wait until no split or merge is under way."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while True:
                    await asyncio.to_thread(self.reshaper.count)
                    if not self.reshaper.unfinished:
                        return
                    await asyncio.sleep(MEND_SECONDS)
        except TimeoutError:
            raise LaunchError(f"{self.reshaper.unfinished} operations did not come to an end") from None

    async def _finish(self) -> None:
        self.phase = "judging"
        for role in CONSUMERS:
            await asyncio.to_thread(self.crew.stop, role)
        for role in CONSUMERS:
            self.verdicts[role] = JUDGES[role](self.produced, self.crew.journals(role))
        self.phase = "done"

    def result(self) -> dict[str, Any]:
        """Give the figures by the names of the JSON line."""
        found = self.verdicts.values()
        return {
            "produced": len(self.produced),
            "lost": sum(each.lost for each in found),
            "reordered": sum(each.reordered for each in found),
            "duplicated_beyond_window": sum(each.duplicated for each in found),
            "assignment_violations": len(self.inspector.violations),
            "kills": sum(self.killer.kills.values()),
            "splits": self.reshaper.splits,
            "merges": self.reshaper.merges,
        }

    def problems(self) -> list[str]:
        """Say what is not as it must be, with some examples."""
        found = [f"{role}: {example}" for role, each in self.verdicts.items() for example in each.examples]
        found += self.inspector.violations[:10] + self.crew.crashes[:5]
        result = self.result()
        return found + [f"no {name}: nothing was proven" for name in MUST_HAPPEN if not result[name]]


class _Drain:
    """Over when nothing is missing any more, or when nothing has come for too long."""

    def __init__(self, missing: Callable[[], int]) -> None:
        self._missing = missing
        self._least: int | None = None
        self._progress_at = time.monotonic()

    def __call__(self) -> bool:
        now, missing = time.monotonic(), self._missing()
        if self._least is None or missing < self._least:
            self._least, self._progress_at = missing, now
        return not missing or now - self._progress_at > STALL_SECONDS


async def _until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait, so long at most, until something is done; False when it never was."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                if done():
                    return True
                await asyncio.sleep(MEND_SECONDS)
    return False


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
