"""Starts the processes of one instance in order, restarts what dies, and stops all of it in reverse order."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from launch.data_directory import DataDirectory
from launch.leftovers import notes, stop_leftovers
from launch.logs import RotatingLog
from launch.process import Guard, LaunchError, ManagedProcess, ProcessSpec
from launch.restarts import Backoff

Report = Callable[[str], None]


@dataclass
class Supervised:
    """One process that is kept running; `process` changes with each restart."""

    spec: ProcessSpec
    process: ManagedProcess
    backoff: Backoff = field(default_factory=Backoff)
    restart_at_monotonic: float | None = None


class Supervisor:
    """The children of one instance. `start` them in order, then `watch` in the background, then `stop`.

    It owns the lock of the data directory from its making to `stop`; the guard process inherits the lock,
    so that it is free only when nothing of the instance runs any more, also after a SIGKILL of this
    process.
    """

    def __init__(self, directory: DataDirectory, *, report: Report, echo: bool = False) -> None:
        self.directory = directory
        self._report = report
        self._echo = echo
        self._children: list[Supervised] = []
        self._exits: queue.SimpleQueue[ManagedProcess | None] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None
        directory.acquire(report)
        for name in stop_leftovers(directory.read_json("processes.json")):
            report(f"stopped {name}, left by a killed instance")
        self._guard = Guard(keep=(directory.lock_descriptor,))

    def launch(self, spec: ProcessSpec) -> ManagedProcess:
        """Start a process and keep it running, without waiting until it is ready."""
        process = self._spawn(spec)
        self._children.append(Supervised(spec, process))
        self._note()
        return process

    def start(self, spec: ProcessSpec, *, label: str) -> None:
        """Start a process, wait until it is ready, and keep it running."""
        self.await_ready(self.launch(spec), label=label)

    def await_ready(self, process: ManagedProcess, *, label: str) -> None:
        """Wait for a launched process, and say how long it took. Raises LaunchError."""
        self._report(f"{label} ready after {process.wait_ready():.1f} s")

    def run(self, spec: ProcessSpec, *, label: str, timeout_seconds: float = 120) -> None:
        """Run a process that ends by itself. Raises LaunchError when it fails."""
        process = self._spawn(spec, keep=False)
        try:
            status = process.wait(timeout_seconds)
        finally:
            process.stop()
        if status != 0:
            problem = "did not end in time" if status is None else f"ended with status {status}"
            raise LaunchError(f"{label} {problem}", f"see {process.log.path}:\n{process.log.tail()}")
        self._report(f"{label} done in {time.monotonic() - process.started_monotonic:.1f} s")

    def _spawn(self, spec: ProcessSpec, *, keep: bool = True) -> ManagedProcess:
        log = RotatingLog(self.directory.logs / f"{spec.name}.log", name=spec.name, echo=self._echo)
        process = ManagedProcess(spec, log=log, guard=self._guard, on_exit=self._exits.put if keep else None)
        process.spawn()
        return process

    def _note(self) -> None:
        self.directory.write_json("processes.json", notes([child.process for child in self._children]))

    def running(self, name: str) -> ManagedProcess | None:
        """Give the process of a name while it runs, and None while it waits for its restart."""
        for child in self._children:
            if child.spec.name == name and child.process.returncode is None:
                return child.process
        return None

    def watch(self) -> None:
        """Restart in the background, from now on, what ends by itself."""
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        while True:
            try:
                ended = self._exits.get(timeout=self._next_restart_seconds())
            except queue.Empty:
                self._restart_due()
                continue
            if ended is None:
                return
            self._schedule(ended)

    def _next_restart_seconds(self) -> float | None:
        due = [
            child.restart_at_monotonic for child in self._children if child.restart_at_monotonic is not None
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _schedule(self, ended: ManagedProcess) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process is ended:
                child.backoff = child.backoff.after_run(now - ended.started_monotonic)
                delay = child.backoff.delay_seconds
                child.restart_at_monotonic = now + delay
                ended.kill_group()
                self._report(
                    f"{child.spec.name} ended with status {ended.returncode}; again in {delay:g} s"
                    f" (see {ended.log.path})"
                )

    def _restart_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.restart_at_monotonic is not None and child.restart_at_monotonic <= now:
                child.restart_at_monotonic = None
                child.process = self._spawn(child.spec)
        self._note()

    def stop(self) -> None:
        """Stop everything in reverse order and give up the lock; safe to repeat."""
        if self._watcher is not None:
            self._exits.put(None)
            self._watcher.join()
            self._watcher = None
        self.directory.withdraw()
        for child in reversed(self._children):
            self._report(f"stopping {child.spec.name}")
            child.process.stop()
        self._children.clear()
        self._guard.close()
        (self.directory.path / "processes.json").unlink(missing_ok=True)
        self.directory.release()
