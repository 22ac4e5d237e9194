"""The starter's side of `tests/warm_start.py`: web nodes and workers that have their libraries at once."""

import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from launch.logs import RotatingLog
from launch.process import ROOT, Guard, ManagedProcess, ProcessSpec
from launch.sandbox import Sandbox

ADOPT = 36
"""prctl's PR_SET_CHILD_SUBREAPER: descendants that are left without a parent become our children."""
MODULES = frozenset({"uvicorn", "celery"})


class WarmStarter:
    """Process that forks programs for this one, from its first request on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.warm_start"],
                    stdin=theirs.fileno(),
                    cwd=ROOT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )
        return self._socket

    def start(
        self, argv: tuple[str, ...], *, environment: Mapping[str, str], directory: Path, output: int
    ) -> int:
        """Start `python -m` with these words as a child of this process; give its number."""
        request = json.dumps({"argv": argv, "environment": dict(environment), "directory": str(directory)})
        body = request.encode()
        with self._lock:
            connection = self._connected()
            _adopt(True)
            try:
                socket.send_fds(connection, [len(body).to_bytes(4, "big")], [output])
                connection.sendall(body)
                answer = connection.recv(4)
            finally:
                _adopt(False)
        if len(answer) < 4:
            raise ChildProcessError("the process that forks web nodes and workers is gone")
        return int.from_bytes(answer, "big")

    def stop(self) -> None:
        """Let the process end; what it has started goes on."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
            self._socket = None


def _adopt(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(ADOPT, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class WarmChild:
    """What `subprocess.Popen` is of a program that it started itself."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Give its exit code as `subprocess` has it, or None while it runs."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        while (code := self.poll()) is None:
            try:
                ended = os.pidfd_open(self.pid)
            except ProcessLookupError:  # another thread was faster
                continue
            try:
                poller = select.poll()
                poller.register(ended, select.POLLIN)
                if not poller.poll(None if timeout is None else max(0, timeout) * 1000):
                    raise subprocess.TimeoutExpired("python -m", timeout or 0)
            finally:
                os.close(ended)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)


class WarmProcess(ManagedProcess):
    """A web node, worker or beat that is forked with its libraries."""

    def __init__(
        self, spec: ProcessSpec, *, log: RotatingLog, starter: WarmStarter, guard: Guard | None = None
    ) -> None:
        super().__init__(spec, log=log, guard=guard)
        self._starter = starter

    def _begin(self) -> WarmChild:
        reader, writer = os.pipe()
        try:
            pid = self._starter.start(
                tuple(self.spec.argv[2:]),
                environment=self.environment,
                directory=self.spec.directory,
                output=writer,
            )
        finally:
            os.close(writer)
        return WarmChild(pid, os.fdopen(reader, "rb", buffering=0))


class WarmSandbox(Sandbox):
    """A sandbox whose web nodes, workers and beats begin with their libraries."""

    def __init__(self) -> None:
        super().__init__()
        self._starter = WarmStarter()

    def _managed(self, spec: ProcessSpec, log: RotatingLog) -> ManagedProcess:
        if not _can_be_warm(spec):
            return super()._managed(spec, log)
        return WarmProcess(spec, log=log, guard=self._guard, starter=self._starter)

    def stop(self) -> None:
        super().stop()
        self._starter.stop()


def _can_be_warm(spec: ProcessSpec) -> bool:
    program, *words = spec.argv
    is_ours = program == sys.executable and words[:1] == ["-m"] and words[1] in MODULES
    return sys.platform == "linux" and is_ours and spec.user is None
