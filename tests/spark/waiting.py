"""Waits for what other processes do."""

import time
from collections.abc import Callable

WAIT_SECONDS = 200
POLL_SECONDS = 0.1


def wait_for(condition: Callable[[], bool], what: str, *, seconds: float = WAIT_SECONDS) -> None:
    """Wait until another process has done something that only its answers and files show."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(POLL_SECONDS)
