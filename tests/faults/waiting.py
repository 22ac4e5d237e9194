"""Waiting for rows that another process writes."""

import time
from collections.abc import Callable

LIMIT_SECONDS = 120
PAUSE_SECONDS = 0.05


def until(condition: Callable[[], bool], *, what: str) -> None:
    """Look again and again until it holds: rows are the truth, and no event stands for all of them."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_SECONDS} s for {what}")
        time.sleep(PAUSE_SECONDS)
