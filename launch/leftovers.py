"""Children of an instance whose supervisor and guard were both killed.

They are noted while they run, and stopped by the next start.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.guard import has_ended
from launch.process import ManagedProcess

GRACE_SECONDS = 15
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Note:
    """One child: `argv` tells it from a later process that got the same id."""

    pid: int
    argv: list[str]
    stop_signal: int


def notes(processes: Sequence[ManagedProcess]) -> list[dict[str, Any]]:
    """Describe running children as JSON, in the order of their start."""
    return [
        vars(Note(process.pid, list(process.spec.argv), int(process.spec.stop_signal)))
        for process in processes
    ]


def stop_leftovers(noted: Any) -> list[str]:
    """Stop the noted children that still run, newest first; return their programs' names.

    Only to be called by the owner of the data directory's lock: whatever runs there then belongs to nobody.
    """
    stopped = []
    for entry in reversed(noted if isinstance(noted, list) else []):
        note = Note(**entry)
        if _arguments(note.pid) == note.argv:
            _stop(note)
            stopped.append(Path(note.argv[0]).name)
    return stopped


def _arguments(pid: int) -> list[str] | None:
    """Return the arguments of a running process, or None."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return _arguments_by_ps(pid) if not Path("/proc/self").exists() else None
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def _arguments_by_ps(pid: int) -> list[str] | None:
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.split() if result.returncode == 0 else None


def _stop(note: Note) -> None:
    try:
        os.kill(note.pid, note.stop_signal)
        _await_end(note.pid)
        os.killpg(note.pid, signal.SIGKILL)
        _await_end(note.pid)
    except (ProcessLookupError, PermissionError):
        return


def _await_end(pid: int) -> None:
    """Wait, within bounds, until a process is gone with all that it held.

    Its arguments vanish from `/proc` earlier, while its ports and locks are still taken.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while not has_ended(pid) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
