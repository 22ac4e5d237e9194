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

POLL_SECONDS = 0.05


def _signal_group(pid: int, number: int) -> bool:
    """Signal a child's process group; False where nothing of it is left."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stop(pid: int, number: int, grace_seconds: float) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
    deadline = time.monotonic() + grace_seconds
    while _signal_group(pid, 0) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal_group(pid, signal.SIGKILL)


def main() -> None:
    """Follow the parent's children until its pipe ends, then stop what is left, newest first."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    children: dict[int, tuple[int, float]] = {}
    for line in sys.stdin:
        match line.split():
            case ["+", pid, number, seconds]:
                children[int(pid)] = (int(number), float(seconds))
            case ["-", pid]:
                children.pop(int(pid), None)
    for pid, (number, seconds) in reversed(children.items()):
        _stop(pid, number, seconds)


if __name__ == "__main__":
    main()
