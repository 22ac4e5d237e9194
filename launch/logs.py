"""Bounded log files: each line with its time and its process, one older file kept."""

import threading
from datetime import UTC, datetime
from pathlib import Path

LOG_BYTES = 10 * 1024 * 1024
LINE_BYTES = 64 * 1024
OBJECT = b'{"'
"""How a line begins that is an object for a collector, with its own time: nothing is put before it."""


class RotatingLog:
    """Log of one process; lines may come from several threads.

    At `limit_bytes` the file becomes `<name>.log.1` and a new one begins, so that a log takes twice the
    limit at most.
    """

    def __init__(self, path: Path, *, name: str, limit_bytes: int = LOG_BYTES, echo: bool = False) -> None:
        self.path = path
        self._name = name
        self._limit = limit_bytes
        self._echo = echo
        self._rest = b""
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, chunk: bytes) -> None:
        """Take output as it comes; whole lines are written at once, an endless line is cut."""
        with self._lock:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > LINE_BYTES:
                lines.append(self._rest)
                self._rest = b""
            if lines:
                self._append(lines)

    def finish(self) -> None:
        """Write what came without the end of a line: a process can die in the middle of its last words."""
        with self._lock:
            if self._rest:
                self._append([self._rest])
                self._rest = b""

    def _append(self, lines: list[bytes]) -> None:
        stamp = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        prefix = f"{stamp} {self._name:<8}| ".encode()
        text = b"".join((line if line.startswith(OBJECT) else prefix + line) + b"\n" for line in lines)
        if self.path.exists() and self.path.stat().st_size + len(text) > self._limit:
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        with self.path.open("ab") as file:
            file.write(text)
        if self._echo:
            print(text.decode(errors="replace"), end="", flush=True)

    def tail(self, line_count: int = 8) -> str:
        """Return the last lines, for an error message."""
        if not self.path.exists():
            return "(nothing)"
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - LINE_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-line_count:])
