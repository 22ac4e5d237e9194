"""Real servers and processes for tests and benches, in a temporary folder that goes away with them."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
import redis

from launch.embedded import embedded_postgres, embedded_valkey, postgres_url, remove_postgres, valkey_url
from launch.logs import RotatingLog
from launch.ports import free_port
from launch.process import Guard, LaunchError, ManagedProcess, ProcessSpec
from launch.services import beat_spec, web_spec, worker_spec

LAST_LINES = 60
"""How much of the log of a process is told that does not start."""
TOKEN_SECRET = "a token secret that only sandboxes know, of more than 32 bytes"


def token(role: str) -> str:
    """Return a bearer token of the role for processes that run in a sandbox."""
    return jwt.encode({"sub": role}, TOKEN_SECRET, algorithm="HS256")


class Sandbox:
    """PostgreSQL and Valkey of one pytest process.

    The addresses are fixed at once, because Django's settings want them; the servers start at the first
    test that needs them. A server that the environment names (DATABASE_URL, REDIS_URL) is used instead of
    an embedded one.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="scalable-sandbox-"))
        self.directory.chmod(0o755)  # ours alone, and PostgreSQL may run as another account
        self._durable = durable
        self._postgres_port = free_port()
        self._valkey_port = free_port()
        self._embeds_postgres = "DATABASE_URL" not in os.environ
        self._embeds_valkey = "REDIS_URL" not in os.environ
        self._running: list[ManagedProcess] = []
        self._guard: Guard | None = None
        self._log_count = 0

    def environment(self) -> dict[str, str]:
        """Return what settings and child processes need to find the servers."""
        postgres = postgres_url(directory=self.directory / "postgres", port=self._postgres_port)
        valkey = valkey_url(directory=self.directory / "valkey", port=self._valkey_port)
        return {
            "DJANGO_SETTINGS_MODULE": "scalable.settings",
            "DATABASE_URL": os.environ.get("DATABASE_URL", postgres),
            "REDIS_URL": os.environ.get("REDIS_URL", valkey),
            "SCALABLE_DATA_DIR": str(self.directory),
            "SCALABLE_SECRET_KEY": "a secret key that only sandboxes know, of more than fifty bytes",
            "SCALABLE_TOKEN_SECRET": TOKEN_SECRET,
        }

    def start(self) -> None:
        """Start what is embedded and does not run yet."""
        if self._guard is not None:
            return
        self._guard = Guard()
        if self._embeds_postgres:
            directory = self.directory / "postgres"
            self.run(
                embedded_postgres(directory=directory, port=self._postgres_port, durable=self._durable).spec
            )
        if self._embeds_valkey:
            directory = self.directory / "valkey"
            self.run(embedded_valkey(directory=directory, port=self._valkey_port, durable=self._durable).spec)

    def run(self, spec: ProcessSpec) -> ManagedProcess:
        """Start a process that is stopped with the sandbox at the latest."""
        self._log_count += 1
        log = RotatingLog(self.directory / "logs" / f"{spec.name}-{self._log_count}.log", name=spec.name)
        process = self._managed(spec, log)
        try:
            process.start()
        except LaunchError as error:  # its log goes with the sandbox, and is what tells why
            raise LaunchError(f"{error.message}\n{process.log.tail(LAST_LINES)}", error.hint) from None
        self._running.append(process)
        return process

    def _managed(self, spec: ProcessSpec, log: RotatingLog) -> ManagedProcess:
        return ManagedProcess(spec, log=log, guard=self._guard)

    def clear_redis(self) -> None:
        """Forget the queued tasks of earlier users; a server that is not ours is left alone."""
        if self._embeds_valkey:
            with redis.Redis.from_url(self.environment()["REDIS_URL"]) as client:
                client.flushall()

    def stop(self) -> None:
        """Stop everything, newest first, and delete its data."""
        for process in reversed(self._running):
            process.stop()
        if self._guard is not None:
            self._guard.close()
        remove_postgres(directory=self.directory / "postgres")
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass(frozen=True)
class LiveNode:
    """A web node, and the tokens that it accepts.

    `url` is like `http://127.0.0.1:4711`, `socket_url` the same for WebSockets.
    """

    url: str
    process: ManagedProcess
    admin_token: str
    system_token: str

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the superuser."""
        return {"Authorization": f"Bearer {self.admin_token}"}


class ProcessFactory:
    """Starts processes of the product in one environment; `stop` ends them all."""

    def __init__(self, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._environment = dict(environment)
        self.processes: list[ManagedProcess] = []

    def run(self, spec: ProcessSpec) -> ManagedProcess:
        """Start any process and wait until it is ready."""
        process = self._sandbox.run(spec)
        self.processes.append(process)
        return process

    def node(self, **environment: str) -> LiveNode:
        """Start a web node on a free port; keywords are added to its environment."""
        port = free_port()
        process = self.run(web_spec(port=port, environment={**self._environment, **environment}))
        return LiveNode(f"http://127.0.0.1:{port}", process, token("admin"), token("system"))

    def worker(self, *, concurrency: int = 4, **environment: str) -> ManagedProcess:
        """Start a Celery worker; keywords are added to its environment."""
        name = f"worker-{len(self.processes)}"
        merged = {**self._environment, **environment}
        return self.run(worker_spec(environment=merged, name=name, concurrency=concurrency))

    def beat(self) -> ManagedProcess:
        """Start Celery beat, which tells the workers what is due."""
        schedule = self._sandbox.directory / f"beat-{len(self.processes)}"
        return self.run(beat_spec(environment=self._environment, schedule=schedule))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()
