"""The three standard streams, also where the caller has closed them or nothing more fits into their file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class OutputFailed(OSError):
    """The standard output takes no more."""


class Watched(io.TextIOWrapper):
    """The standard output, whose own errors can be told from all others; raises OutputFailed."""

    def write(self, text: str) -> int:
        """Write a text."""
        with _told_apart():
            return super().write(text)

    def flush(self) -> None:
        """Write what waits."""
        with _told_apart():
            super().flush()


class Complaints(io.FileIO):
    """The standard error: what it does not take is dropped, as nobody is left to tell of it."""

    def write(self, data: Buffer, /) -> int:
        """Write what can be written."""
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes


@contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(error.errno, error.strerror) from error


def watch_streams() -> None:
    """Watch the output; closed streams become no input, errors to nobody, an output that takes nothing."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = _watched(sys.stdout)
    sys.stderr = _forgiving(sys.stderr)
    # The former output is detached, and who wants the terminal's width asks this one.
    for name in ("stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _watched(stream: TextIO | None) -> Watched:
    if stream is None:
        stream = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    assert isinstance(stream, io.TextIOWrapper)
    encoding, errors = stream.encoding, stream.errors
    by_line, at_once = stream.line_buffering, stream.write_through
    return Watched(
        stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=at_once
    )


def _forgiving(stream: TextIO | None) -> TextIO:
    descriptor = os.open(os.devnull, os.O_WRONLY) if stream is None else stream.fileno()
    file = io.BufferedWriter(Complaints(descriptor, "wb", closefd=False))
    encoding = None if stream is None else stream.encoding
    return io.TextIOWrapper(file, encoding=encoding, errors="backslashreplace", line_buffering=True)


def drop_unwritten() -> None:
    """Forget output that could not be written, of which the interpreter would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
