"""Waits for what other processes do."""

import time
from collections.abc import Callable

WAIT_SECONDS = 400
POLL_SECONDS = 0.1


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until another process has done something that only its answers and files show."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        time.sleep(POLL_SECONDS)
