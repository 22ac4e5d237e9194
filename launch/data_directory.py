"""The data directory of one instance: its lock, secrets, ports, logs, and what other commands read of it."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.embedded.service import kept_secret, private_file
from launch.guard import has_ended
from launch.process import LaunchError

CLEAN_UP_SECONDS = 90
LOCK_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class RunningServices:
    """What a program of this machine needs to talk to a running instance through its public doors."""

    urls: tuple[str, ...]
    data_directory: Path
    admin_token: str
    system_token: str
    public_urls: tuple[str, ...] = ()
    """Where others reach the web nodes; none: where this machine does."""

    @property
    def url(self) -> str:
        """The first web node, for programs of this machine."""
        return self.urls[0]

    @property
    def shown(self) -> tuple[str, ...]:
        """The web nodes, as prints and links name them."""
        return self.public_urls or self.urls


class DataDirectory:
    """Paths and small files of one instance; `acquire` makes this process its only owner."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock_descriptor: int | None = None

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def lock_descriptor(self) -> int:
        """Descriptor of the held lock: whoever inherits it keeps the directory locked."""
        if self._lock_descriptor is None:
            raise LaunchError(f"{self.path} is not locked")
        return self._lock_descriptor

    def acquire(self, report: Callable[[str], None]) -> None:
        """Lock the directory. Raises LaunchError when another instance runs in it, or it cannot be written.

        The guard of a killed supervisor holds the lock until it has stopped what was left, so it is waited
        for.
        """
        descriptor = self._open_lock()
        deadline, told = time.monotonic() + CLEAN_UP_SECONDS, False
        while not _try_lock(descriptor):
            owner = os.pread(descriptor, 32, 0).decode().strip()
            if _alive(owner) or time.monotonic() > deadline:
                os.close(descriptor)
                raise LaunchError(
                    f"an instance runs in {self.path} already (process {owner or 'unknown'})",
                    "stop it with Ctrl-C or SIGTERM, or choose another folder with --data-dir",
                )
            if not told:
                report("waiting for the guard of a killed instance to finish its cleaning")
                told = True
            time.sleep(LOCK_POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock_descriptor = descriptor

    def _open_lock(self) -> int:
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LaunchError(
                f"the data directory {self.path} cannot be used ({error.strerror})",
                "choose another folder with --data-dir, or the account that made this one",
            ) from None

    def release(self) -> None:
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def secret(self, name: str) -> str:
        """Return a secret that is made once per directory."""
        return kept_secret(self.path / name)

    def read_json(self, name: str) -> Any:
        """Return the content of a small file, or None."""
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None

    def write_json(self, name: str, value: Any) -> None:
        private_file(self.path / name, json.dumps(value) + "\n")

    def ports(self) -> dict[str, int]:
        """Return the ports of the last start, by name of the service; they are taken again where free."""
        known = self.read_json("ports.json")
        return {str(name): int(port) for name, port in known.items()} if isinstance(known, dict) else {}

    def publish(
        self,
        urls: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        public_urls: Sequence[str] = (),
    ) -> RunningServices:
        """Tell other commands where the web nodes of the instance that runs here can be reached.

        `environment` is what a process needs that calls them.
        """
        told = {
            "url": urls[0],
            "urls": list(urls),
            "publicUrls": list(public_urls),
            "environment": dict(environment or {}),
            "pid": os.getpid(),
        }
        self.write_json("services.json", told)
        return self._services(urls, public_urls)

    def withdraw(self) -> None:
        (self.path / "services.json").unlink(missing_ok=True)

    def running(self) -> RunningServices | None:
        """Return the services of the instance that runs in this directory, or None."""
        known = self.read_json("services.json")
        if not isinstance(known, dict) or not self._locked_by_another():
            return None
        os.environ.update(known.get("environment") or {})
        return self._services(known.get("urls") or [str(known["url"])], known.get("publicUrls") or [])

    def _services(self, urls: Sequence[str], public_urls: Sequence[str]) -> RunningServices:
        admin, system = ((self.path / f"{role}-token").read_text().strip() for role in ("admin", "system"))
        return RunningServices(tuple(urls), self.path, admin, system, tuple(public_urls))

    def _locked_by_another(self) -> bool:
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            return not _try_lock(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def alone(path: Path, what: str, hint: str) -> Iterator[None]:
    """Do something that one process at a time does; the lock goes with the process. Raises LaunchError."""
    with path.open("w") as lock:
        if not _try_lock(lock.fileno()):
            raise LaunchError(f"{what} goes on already", hint)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(pid: str) -> bool:
    return pid.isdigit() and not has_ended(int(pid))
