"""Guard process: stops the children of a parent that went away without stopping them.

It runs as a script of its own (`python -I -S guard.py`) and reads lines from a pipe whose only writing end
the parent holds, so that the end of the pipe means that the parent is gone, however it went (SIGKILL
included). Lines are `+ pid signal seconds` for a child that started (with its stop signal and grace) and `-
pid` for one that ended.
"""

import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.05


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone; one that nobody reaps (as in a bare container) is gone too."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except OSError:  # another system than Linux, or another account's process
        return False


def born(pid: int) -> str:
    """Name when a process began, which tells it from a later one with its number; empty when unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _stop(pid: int, birth: str, number: int, grace_seconds: float) -> None:
    try:
        if born(pid) not in ("", birth):
            return  # another one has its number, so that nothing of its group is left
        os.kill(pid, number)
        deadline = time.monotonic() + grace_seconds
        while not has_ended(pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if born(pid) in ("", birth):
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def main() -> None:
    """Follow the parent's children until its pipe ends, then stop what is left, newest first."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    children: dict[int, tuple[str, int, float]] = {}
    for line in sys.stdin:
        match line.split():
            case ["+", pid, number, seconds]:
                children[int(pid)] = (born(int(pid)), int(number), float(seconds))
            case ["-", pid]:
                children.pop(int(pid), None)
    for pid, (birth, number, seconds) in reversed(children.items()):
        _stop(pid, birth, number, seconds)


if __name__ == "__main__":
    main()
