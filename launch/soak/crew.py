"""The client processes of a soak: started, killed, and started again under their names."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.data_directory import RunningServices
from launch.logs import RotatingLog
from launch.process import Guard, ManagedProcess, ProcessSpec
from launch.soak.journal import JournalReader, Line
from launch.soak.plan import CONSUMERS, PRODUCERS, Role, SoakPlan

STOP_SECONDS = 45.0


@dataclass
class Member:
    """One client; without a process it is dead until `restart_at`, by the monotonic clock."""

    role: Role
    name: str
    journal: JournalReader
    process: ManagedProcess | None = None
    restart_at: float = 0.0
    retired: bool = False


class Crew:
    """All clients; `crashes` are those that ended although nobody killed them."""

    def __init__(self, plan: SoakPlan, services: RunningServices, folder: Path) -> None:
        self._plan, self._services, self._folder = plan, services, folder
        self._guard = Guard()
        self.members = [
            Member(role, name, JournalReader(folder / f"{name}.journal")) for role, name in _everybody()
        ]
        self.crashes: list[str] = []
        self._lock = threading.Lock()  # kills come from threads

    def of(self, role: Role) -> list[Member]:
        """Give the members of a role."""
        return [member for member in self.members if member.role is role]

    def journals(self, role: Role) -> list[list[Line]]:
        """Read the journals of a role up to now."""
        for member in self.of(role):
            member.journal.read()
        return [member.journal.lines for member in self.of(role)]

    def kill(self, member: Member, *, away_seconds: float) -> bool:
        """Kill a client that runs; it comes back after a while."""
        with self._lock:
            process = member.process
            if process is None or process.returncode is not None:
                return False
            member.process, member.restart_at = None, time.monotonic() + away_seconds
            process.kill_group()
        process.wait(STOP_SECONDS)
        return True

    def mend(self) -> None:
        """Start who is to be back by now, and who crashed."""
        for member in self.members:
            if not member.retired:
                with self._lock:
                    self._mend(member)

    def _mend(self, member: Member) -> None:
        process = member.process
        if process is not None and process.returncode is not None:
            self._note_crash(process)
            member.process = None
        if member.process is None and member.restart_at <= time.monotonic():
            self._start(member)

    def _note_crash(self, process: ManagedProcess) -> None:
        self.crashes.append(
            f"{process.spec.name} ended with status {process.returncode}:\n{process.log.tail()}"
        )

    def stop(self, role: Role) -> None:
        """Ask the members of a role to finish, and wait until they have; they do not come back."""
        for member in self.of(role):
            member.retired = True
        running = [member.process for member in self.of(role) if member.process is not None]
        for process in running:
            process.send_signal(process.spec.stop_signal)
        for process in running:
            process.stop()
            # One that has only just been started does not know the signal yet.
            if process.returncode not in (0, -signal.SIGTERM):
                self._note_crash(process)

    def close(self) -> None:
        """Stop whoever still runs."""
        for member in self.members:
            if member.process is not None:
                member.process.kill_group()
                member.process.stop()
        self._guard.close()

    def _start(self, member: Member) -> None:
        log = RotatingLog(self._folder / f"{member.name}.log", name=member.name)
        spec = ProcessSpec(
            name=member.name,
            argv=(
                *(sys.executable, "-m", "launch.soak.client", member.role, "--name", member.name),
                *("--urls", ",".join(self._services.urls)),
                *("--token-file", str(self._services.data_directory / "admin-token")),
                *("--journal", str(self._folder / f"{member.name}.journal")),
                *("--rate", str(self._plan.messages_per_second / PRODUCERS)),
            ),
            environment={"PYTHONUNBUFFERED": "1"},
            stop_timeout_seconds=STOP_SECONDS,
        )
        member.process = ManagedProcess(spec, log=log, guard=self._guard)
        member.process.spawn()


def _everybody() -> Iterator[tuple[Role, str]]:
    for role, count in {Role.PRODUCER: PRODUCERS, **CONSUMERS}.items():
        for number in range(1, count + 1):
            yield role, f"{role}-{number}"
