"""Small real children, and ways to see what became of them."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from launch.logs import RotatingLog
from launch.process import Guard, ManagedProcess, ProcessSpec

MARK = "LAUNCH_TEST_MARK"
OF_THE_TESTS = frozenset(
    ("DATABASE_URL", "REDIS_URL", "SCALABLE_DATA_DIR", "SCALABLE_SECRET_KEY", "SCALABLE_TOKEN_SECRET")
)
"""What the sandbox of the tests sets in their environment; its servers run only where a test wants them."""


def environment_of_a_user() -> dict[str, str]:
    """Return this environment without what the tests set: an instance then has servers of its own."""
    return {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}


def wait_until(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    """Wait for something that happens in another process, by its visible effect."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes that inherited the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def spec(
    script: str,
    *,
    name: str = "child",
    ready: Callable[[], bool] | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    stop_timeout_seconds: float = 5,
    ready_timeout_seconds: float = 10,
) -> ProcessSpec:
    """Describe a Python child that runs `script`."""
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-c", script),
        ready=ready,
        stop_signal=stop_signal,
        stop_timeout_seconds=stop_timeout_seconds,
        ready_timeout_seconds=ready_timeout_seconds,
    )


def child(
    process_spec: ProcessSpec,
    folder: Path,
    on_exit: Callable[[ManagedProcess], None] | None = None,
    *,
    guard: Guard | None = None,
) -> ManagedProcess:
    """Return a child that is not started yet, with a log in `folder`."""
    log = RotatingLog(folder / "child.log", name="child")
    return ManagedProcess(process_spec, log=log, guard=guard, on_exit=on_exit)


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that was not waited for by its parent does not count."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_hard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
