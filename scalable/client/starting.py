"""A client is started once: a second session in one object would end the first, or own what nobody reads."""

from __future__ import annotations


def require_new(what: str, *, started: bool = False, ended: bool = False) -> None:
    """Raise RuntimeError for a client that was started already, or that has ended."""
    if ended:
        raise RuntimeError(f"this {what} has ended, and cannot be started again: make another one")
    if started:
        raise RuntimeError(f"this {what} was started already: use either start() or `async with`")
