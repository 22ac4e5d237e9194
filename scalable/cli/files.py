"""Files that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click


@contextmanager
def private_file(path: str) -> Iterator[IO[str]]:
    """Make a file with mode 0600 to be written; raises UsageError, also when it exists.

    When the block fails the file goes: nobody shall take a part for the whole.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"{Path(path)} cannot be made: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        Path(path).unlink()
        raise


def replace_private_file(path: str, content: str) -> None:
    """Put another content into a file with mode 0600: who reads it finds the former one or the new one.

    Raises click.ClickException when it cannot be written.
    """
    new = Path(path).with_name(f".{Path(path).name}.{os.getpid()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(content)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
