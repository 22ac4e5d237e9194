"""The three standard streams, also where the caller has closed them or nothing more fits into their file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class OutputFailed(OSError):
    """A standard stream takes no more."""


class Watched(io.TextIOWrapper):
    """A standard stream whose own errors can be told from all others of the system; raises OutputFailed."""

    def write(self, text: str) -> int:
        """Write a text."""
        with _told_apart():
            return super().write(text)

    def flush(self) -> None:
        """Write what waits."""
        with _told_apart():
            super().flush()


@contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(error.errno, error.strerror) from error


def watch_streams() -> None:
    """Watch both outputs; closed streams become no input, errors to nobody, an output that takes nothing."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = _watched(sys.stdout, os.O_RDONLY)
    sys.stderr = _watched(sys.stderr, os.O_WRONLY)
    # The former ones are detached, and who wants the terminal's width asks these.
    for name in ("stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _watched(stream: TextIO | None, flags_if_closed: int) -> Watched:
    if stream is None:
        stream = os.fdopen(os.open(os.devnull, flags_if_closed), "w")
    assert isinstance(stream, io.TextIOWrapper)
    encoding, errors = stream.encoding, stream.errors
    by_line, at_once = stream.line_buffering, stream.write_through
    return Watched(
        stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=at_once
    )


def drop_unwritten() -> None:
    """Forget output that could not be written, of which the interpreter would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
