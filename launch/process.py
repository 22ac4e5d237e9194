"""Child processes in the foreground: started with a readiness probe, stopped with their own signal."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from launch import guard as guard_script
from launch.logs import RotatingLog

READY_POLL_SECONDS = 0.03
LAST_WORDS_SECONDS = 2
ROOT = Path(__file__).resolve().parent.parent


class LaunchError(Exception):
    """What the user is told in one line, with a hint where one helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """How one child is started, when it counts as ready, and how it is asked to stop.

    `environment` is added to the parent's own, less the names in `withheld`. `user` and `group` are numeric
    ids, for a server that refuses root.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: Sequence[str] = ()
    directory: Path = ROOT
    ready: Callable[[], bool] | None = None
    ready_timeout_seconds: float = 60
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_seconds: float = 10
    user: int | None = None
    group: int | None = None


class Child(Protocol):
    """A child of this process, as `subprocess.Popen` has it; its output comes through `stdout`."""

    pid: int

    @property
    def stdout(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...


class Guard:
    """Parent's side of the guard process (`launch/guard.py`); `keep` are descriptors that it holds open.

    A guard that died is replaced as soon as there is something to tell it.
    """

    def __init__(self, *, keep: Sequence[int] = ()) -> None:
        self._lock = threading.Lock()
        self._keep = tuple(keep)
        self._children: dict[int, str] = {}
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guard_script.__file__],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=self._keep,
            cwd="/",
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, pid: int, spec: ProcessSpec) -> None:
        """Stop the child when this process is gone."""
        line = f"+ {pid} {int(spec.stop_signal)} {spec.stop_timeout_seconds}\n"
        with self._lock:
            self._children[pid] = line
            self._say(line)

    def forget(self, pid: int) -> None:
        with self._lock:
            if self._children.pop(pid, None) is not None:
                self._say(f"- {pid}\n")

    def _say(self, line: str) -> None:
        try:
            self._pipe.write(line.encode())
        except BrokenPipeError:
            self._pipe.close()
            self._process.wait()
            self._process = self._start()
            self._pipe.write("".join(self._children.values()).encode())

    @property
    def _pipe(self) -> IO[bytes]:
        if self._process.stdin is None:
            raise LaunchError("the guard has no pipe")
        return self._process.stdin

    def close(self) -> None:
        """Let the guard end; what it still watches is stopped by it."""
        with self._lock:
            self._children.clear()
            self._pipe.close()
        self._process.wait()


class ManagedProcess:
    """One running child of a `ProcessSpec`, with its output in a bounded log.

    As a context manager it is started, ready inside the block, and stopped at its end.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        log: RotatingLog,
        guard: Guard | None = None,
        on_exit: Callable[["ManagedProcess"], None] | None = None,
    ) -> None:
        self.spec = spec
        self.log = log
        self.started_monotonic = 0.0
        self._guard = guard
        self._on_exit = on_exit
        self._process: Child | None = None
        self._threads: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        """Process id; also the id of the child's own session and process group."""
        if self._process is None:
            raise LaunchError(f"{self.spec.name} was not started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def spawn(self) -> None:
        """Start the child without waiting for it to be ready."""
        self.started_monotonic = time.monotonic()
        self._process = self._begin()
        if self._guard is not None:
            self._guard.watch(self._process.pid, self.spec)
        assert self._process.stdout is not None
        self._threads = [
            self._thread(self._follow, self._process.stdout),
            self._thread(self._await_end, self._process),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """What the child finds in its environment."""
        inherited = {name: value for name, value in os.environ.items() if name not in self.spec.withheld}
        return {**inherited, **self.spec.environment}

    def _begin(self) -> Child:
        """Start the program, in a session of its own.

        A terminal's Ctrl-C would otherwise reach all children at once, and the order of stopping be lost.
        """
        return subprocess.Popen(
            self.spec.argv,
            env=self.environment,
            cwd=self.spec.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.spec.user,
            group=self.spec.group,
            extra_groups=[] if self.spec.user is not None else None,
        )

    def _thread(self, work: Callable[..., None], argument: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=(argument,), name=self.spec.name, daemon=True)
        thread.start()
        return thread

    def _follow(self, output: IO[bytes]) -> None:
        with output:
            while chunk := os.read(output.fileno(), 65536):
                self.log.write(chunk)
        self.log.finish()

    def _await_end(self, process: Child) -> None:
        """Wait for the child itself: something that it started may hold its output open for longer."""
        process.wait()
        if self._guard is not None:
            self._guard.forget(process.pid)
        if self._on_exit is not None:
            self._on_exit(self)

    def wait_ready(self) -> float:
        """Wait until the probe answers; return the seconds since the start. Raises LaunchError."""
        spec = self.spec
        deadline = self.started_monotonic + spec.ready_timeout_seconds
        while spec.ready is not None and not spec.ready():
            if self.returncode is not None:
                # Its last words may still be on their way through the pipe, which a grandchild can hold open.
                self._threads[0].join(LAST_WORDS_SECONDS)
                raise LaunchError(
                    f"{spec.name} ended with status {self.returncode} while starting", self._log_hint()
                )
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"{spec.name} was not ready within {spec.ready_timeout_seconds:g} s", self._log_hint()
                )
            time.sleep(READY_POLL_SECONDS)
        return time.monotonic() - self.started_monotonic

    def _log_hint(self) -> str:
        return f"see {self.log.path}; it ends with:\n{self.log.tail()}"

    def start(self) -> float:
        """Start the child and wait until it is ready; a child that fails to become ready is stopped."""
        self.spawn()
        try:
            return self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child alone."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill_group(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the child and everything that it started within its own session.

        A child that was waited for has no number any more: who has it now, if anybody, is a stranger, and
        nothing is left of the group, for the number of a group that lives is not given away.
        """
        try:
            if self.returncode is None or not _exists(self.pid):
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def wait(self, timeout_seconds: float) -> int | None:
        """Wait for the child's end; None when it still runs after `timeout_seconds`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Ask the child to stop, and kill what is left of its group when its time is up; safe to repeat."""
        if self._process is None:
            return
        self.send_signal(self.spec.stop_signal)
        self.wait(self.spec.stop_timeout_seconds)
        self.kill_group()
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
