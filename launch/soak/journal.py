"""Journals: what a client did, in lines that survive its being killed, and how they are read."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Did(StrEnum):
    """What a line tells. `BEGAN`: a client began, with what it goes on from.

    `SENT`: a message is durable. `GOT`: a message was received and counts as processed. `KEPT`: from here on
    these deliveries must not come again. `STRUCK`: something was killed, frozen or cut, for so many seconds.
    """

    BEGAN = "began"
    SENT = "sent"
    GOT = "got"
    KEPT = "kept"
    STRUCK = "struck"


@dataclass(frozen=True, slots=True)
class Line:
    """One line; the time is of the machine's monotonic clock, which all its processes share."""

    at: float
    did: Did
    what: Any


class Journal:
    """A client's journal; each line is written at once, so that a kill takes none of them back."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def write(self, did: Did, what: Any) -> None:
        """Append a line."""
        os.write(self._descriptor, json.dumps([time.monotonic(), did, what]).encode() + b"\n")

    def sent(self, key: str, number: int) -> None:
        """Note that a message is durable."""
        self.write(Did.SENT, [key, number])

    def got(self, key: str, number: int, place: tuple[int, int]) -> None:
        """Note that a message was received from a segment and offset."""
        self.write(Did.GOT, [key, number, *place])

    def struck(self, what: str, seconds: float = 0.0) -> None:
        """Note what was done to the product; nobody judges it, it explains what the others note."""
        self.write(Did.STRUCK, [what, round(seconds, 1)])


class JournalReader:
    """Reads a journal that grows; half a line is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.lines: list[Line] = []

    def read(self) -> Sequence[Line]:
        """Give the lines since the last time."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        fresh = list(_parsed(whole))
        self.lines += fresh
        return fresh


def _parsed(data: bytes) -> Iterator[Line]:
    for line in filter(None, data.split(b"\n")):
        try:
            at, did, what = json.loads(line)
        except ValueError:
            continue  # its writer was killed in the middle of it, so what it tells did not happen
        yield Line(at, Did(did), what)
