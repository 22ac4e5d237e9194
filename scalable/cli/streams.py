"""The three standard streams, also where the caller has closed them or nothing more fits into their file."""

import os
import sys


def open_closed_streams() -> None:
    """Replace closed streams: by no input, errors to nobody, and an output that cannot be written."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def drop_unwritten() -> None:
    """Forget output that could not be written, of which the interpreter would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
