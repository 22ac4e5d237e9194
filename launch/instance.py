"""One whole instance: which processes it has, in which order, and what they are told."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from launch import prepare
from launch.addresses import HERE, Addresses
from launch.data_directory import DataDirectory, RunningServices
from launch.embedded import embedded_postgres, embedded_valkey
from launch.given import given_settings, reach_databases, reach_redis
from launch.java import java_environment
from launch.ports import HeldPorts, free_port
from launch.process import LaunchError, ManagedProcess, ProcessSpec
from launch.services import SETTINGS, beat_spec, reporter_spec, web_spec, worker_spec
from launch.supervisor import Report, Supervisor
from launch.tls import Tls

DEFAULT_PORT = 8080
SECRETS = {"SCALABLE_SECRET_KEY": "secret-key", "SCALABLE_TOKEN_SECRET": "token-secret"}
"""Signing keys, and the files of the data directory that keep them unless they are given."""
FILES = (
    *(f"{name}_FILE" for name in (*SECRETS, "SCALABLE_TOKEN_PUBLIC_KEY")),
    *("SCALABLE_TLS_CA", "SCALABLE_TLS_CERT", "SCALABLE_TLS_KEY"),
)
"""Settings that name files, in the caller's folder if they are relative; processes work in another one."""


class Instance:
    """The services of one data directory; as a context manager they run inside the block.

    `port` is the first web node's: one that was asked for must be free, else the last one or 8080 is
    preferred. Further nodes have their last ports again, or free ones. `addresses` tell where they listen
    and how others reach them; with addresses for others ports are the first one and those behind it.
    `settings` are added to the environment of the product's processes.
    """

    def __init__(
        self,
        data_directory: Path,
        *,
        port: int | None,
        report: Report,
        nodes: int = 1,
        workers: int = 1,
        with_spark: bool = True,
        echo: bool = False,
        settings: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        addresses: Addresses = HERE,
    ) -> None:
        addresses.check(nodes=nodes)
        given = given_settings()
        self._tls = tls
        self._place = addresses
        self._held = HeldPorts(addresses.host)
        for said in given["SCALABLE_IGNORED_NAMES"]:
            report(f"warning: {said}")
        self._settings = {**_files(), **(settings or {}), **(tls.environment() if tls else {})}
        self._nodes, self._workers = nodes, workers
        self._with_spark = with_spark and given["SCALABLE_TOPICS_ENABLED"]
        self._databases, self._redis_url = given["DATABASES"], given["SCALABLE_REDIS_URL"]
        self._directory = DataDirectory(data_directory)
        self._wanted_port = port
        self._report = report
        self._echo = echo
        self._services: RunningServices | None = None
        self.new_password: str | None = None
        self.can_change_topics: bool = given["SCALABLE_TOPICS_ENABLED"] and not given["SCALABLE_READ_ONLY"]

    @property
    def running(self) -> RunningServices:
        """Return where the services are, once they run."""
        if self._services is None:
            raise LaunchError("the instance does not run")
        return self._services

    @property
    def nodes(self) -> list[str]:
        """Return the names of the web nodes."""
        return _numbered("web", self._nodes)

    @property
    def workers(self) -> list[str]:
        """Return the names of the Celery workers."""
        return _numbered("worker", self._workers)

    def kill(self, name: str) -> bool:
        """Kill a process as a crash would; False when it does not run just now. It is started again."""
        process = self._supervisor.running(name)
        if process is None:
            return False
        process.kill_group()
        return True

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a process and its children; False when it does not run just now."""
        process = self._supervisor.running(name)
        if process is None:
            return False
        process.kill_group(number)
        return True

    @property
    def database_url(self) -> str:
        """Return where the database is, once the instance runs."""
        return self._database_url

    def __enter__(self) -> Self:
        self._supervisor = Supervisor(self._directory, report=self._report, echo=self._echo)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._report("stopped")

    def _stop(self) -> None:
        self._supervisor.stop()
        self._held.release()

    def _start(self) -> None:
        reach_databases(self._databases)
        reach_redis(self._redis_url)
        known = self._directory.ports()
        ports = self._web_ports(known)
        environment = {**self._settings, **self._addresses(known), **self._secrets(), **self._proxied()}
        urls = [self._place.local_url(port, self._tls) for port in ports.values()]
        public_urls = self._place.public_urls(urls)
        os.environ.update(self._tls.environment() if self._tls else {})  # this process calls the nodes, too
        self._directory.write_json("ports.json", {**known, **ports})
        self._database_url = environment["DATABASE_URL"]
        named = {**environment, "SCALABLE_NODE_URL": public_urls[0]}
        self._prepare(named)
        self._start_product(dict(zip(ports, public_urls, strict=True)), ports, named)
        if self._with_spark:
            self._start_reporter(urls if _is_local(os.environ.get("SPARK_MASTER", "")) else public_urls)
        self._supervisor.watch()
        for_callers = self._tls.environment() if self._tls else {}
        self._services = self._directory.publish(urls, for_callers, public_urls=public_urls)

    def _start_product(
        self, urls: Mapping[str, str], ports: Mapping[str, int], environment: dict[str, str]
    ) -> None:
        """Start nodes and workers side by side, then beat; workers start batch jobs, with this Java."""
        for_workers = {**environment, **((java_environment() or {}) if self._with_spark else {})}
        launched = [
            (name, self._launch_node(name, ports[name], url, environment)) for name, url in urls.items()
        ]
        launched += [
            (name, self._supervisor.launch(worker_spec(environment=for_workers, name=name)))
            for name in _numbered("worker", self._workers)
        ]
        for name, process in launched:
            self._supervisor.await_ready(process, label=name)
        schedule = self._directory.path / "beat-schedule"
        self._supervisor.start(beat_spec(environment=environment, schedule=schedule), label="beat")

    def _launch_node(self, name: str, port: int, url: str, environment: dict[str, str]) -> ManagedProcess:
        named = {**environment, "SCALABLE_NODE_URL": url}
        spec = web_spec(port=port, environment=named, name=name, tls=self._tls, addresses=self._place)
        return self._supervisor.launch(spec)

    def _web_ports(self, known: dict[str, int]) -> dict[str, int]:
        if self._place.urls:  # others know where the nodes are, a proxy say: ports do not move
            begin = self._wanted_port or DEFAULT_PORT
            return {name: self._this_port(begin + number) for number, name in enumerate(self.nodes)}
        first, *others = self.nodes
        ports = {first: self._first_port(known.get(first, DEFAULT_PORT))}
        return ports | {name: self._held.take_free(known.get(name, 0)) for name in others}

    def _first_port(self, preferred: int) -> int:
        if self._wanted_port is None:
            return self._held.take_free(preferred)
        return self._this_port(self._wanted_port)

    def _this_port(self, port: int) -> int:
        if not self._held.take(port):
            problem = f"port {port} is taken, or this account may not use it"
            raise LaunchError(problem, "choose another one with --port")
        return port

    def _addresses(self, known: dict[str, int]) -> dict[str, str]:
        """Start the embedded servers that no address in the environment replaces."""
        addresses = {}
        for variable, name, describe in (
            ("DATABASE_URL", "postgres", embedded_postgres),
            ("REDIS_URL", "valkey", embedded_valkey),
        ):
            if given := os.environ.get(variable):
                addresses[variable] = given
                continue
            known[name] = free_port(known.get(name, 0))
            service = describe(directory=self._directory.path / name, port=known[name])
            self._supervisor.start(service.spec, label=name)
            addresses[variable] = service.url
        return addresses

    def _secrets(self) -> dict[str, str]:
        """Return the signing keys that are kept in the data directory: those that the caller did not give."""
        kept = {
            name: self._directory.secret(file)
            for name, file in SECRETS.items()
            if not (os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        }
        return {"SCALABLE_DATA_DIR": str(self._directory.path), **kept}

    def _proxied(self) -> dict[str, str]:
        """What nodes are told that a proxy encrypts: to believe it, and to leave sending people on to it.

        The instance's own processes come past the proxy, unencrypted.
        """
        if not self._place.ends_encryption_before(self._tls):
            return {}
        told = {"SCALABLE_BEHIND_PROXY": "true", "SCALABLE_REDIRECT_TO_HTTPS": "false"}
        return {name: os.environ.get(name) or value for name, value in told.items()}

    def _prepare(self, environment: dict[str, str]) -> None:
        password_file = self._directory.path / prepare.PASSWORD_FILE
        had_password = password_file.exists()
        spec = ProcessSpec(
            name="prepare",
            argv=(sys.executable, "-m", "launch.prepare", str(self._directory.path)),
            environment={**SETTINGS, **environment},
        )
        self._supervisor.run(spec, label="migration")
        if password_file.exists() and not had_password:
            self.new_password = password_file.read_text().strip()

    def _start_reporter(self, urls: Sequence[str]) -> None:
        java = java_environment()
        if java is None:
            self._report("no Java 17 or newer found: load is not reported, topics scale by consumers alone")
            return
        self._supervisor.launch(
            reporter_spec(urls=urls, directory=self._directory.path, java=java, tls=self._tls)
        )
        self._report("Spark load reporter started")


def _numbered(name: str, count: int) -> list[str]:
    """Name several processes of a kind: `web`, `web-2`, `web-3`."""
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]


def _is_local(master: str) -> bool:
    """Tell whether Spark's executors are on this machine, also where none is named."""
    return not master or master.startswith("local")


def _files() -> dict[str, str]:
    return {name: str(Path(os.environ[name]).resolve()) for name in FILES if os.environ.get(name)}
