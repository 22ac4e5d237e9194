"""`docs/deployment.md`: what it has people run is run here, as it stands there, but for names and places."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest

from launch.java import java_environment
from launch.logs import RotatingLog
from launch.ports import free_port
from launch.process import ROOT, Guard, ManagedProcess, ProcessSpec
from launch.services import beat_spec, node_argv, serves, worker_spec
from launch.tls import Tls
from scalable.client import Admin, Producer
from tests.docs import deployment as pages
from tests.launch.children import wait_until
from tests.launch.test_tls import LOCAL, Authority
from tests.processes import Sandbox

TOPIC = "topic://public/default/deployed"
ADDRESSES_AND_NAMES = {
    "--host",
    "--port",
    "--hostname",
    "--schedule",
    "--url",
    "--ssl-certfile",
    "--ssl-keyfile",
}
START_SECONDS = 120
SPARK_SECONDS = 300


def without_places(words: list[str]) -> list[str]:
    """Leave out the values that name machines and folders."""
    pairs = zip(["", *words], words, strict=False)
    return sorted(word for before, word in pairs if before not in ADDRESSES_AND_NAMES)


@pytest.mark.parametrize("process", ["node", "worker", "beat"])
def test_processes_are_started_as_the_launcher_starts_them(process: str) -> None:
    tls = Tls(Path("node.pem"), Path("node.key"))
    environment = {"REDIS_URL": "redis://localhost"}
    ours = {
        "node": node_argv(port=1, tls=tls),
        "worker": worker_spec(environment=environment).argv,
        "beat": beat_spec(environment=environment, schedule=Path("beat-schedule")).argv,
    }
    assert without_places(pages.command_of_page(process)) == without_places(list(ours[process][1:]))


@pytest.mark.parametrize("process", pages.PROCESSES)
def test_units_start_what_the_page_starts(process: str) -> None:
    page = " ".join(pages.command_of_page(process)).replace("$SCALABLE_DATA_DIR", "${SCALABLE_DATA_DIR}")
    unit = pages.unit_of(process)
    started = " ".join(pages.words_of(unit["ExecStart"]))
    assert started.replace("%%h", "%h").replace("%i", "1") == page
    told = (pages.UNITS / next(pages.UNITS.glob(f"scalable-topics-{process}*")).name).read_text()
    assert ("servers.env" in told) == ("servers.env" in pages.block_of(process))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_units_are_good_systemd(tmp_path: Path) -> None:
    copies = []
    for path in sorted(pages.UNITS.glob("*.service")):
        copies.append(tmp_path / path.name.replace("@", "@1"))
        copies[-1].write_text(
            path.read_text().replace("/opt/scalable-topics/.venv/bin/python", sys.executable)
        )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, copies)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if "scalable-topics" in line]
    assert not complaints


@pytest.mark.parametrize("process", ["node", "worker", "beat"])
def test_containers_start_what_the_page_starts(process: str) -> None:
    command = pages.words_of(" ".join(f"'{word}'" for word in pages.service_of(process)["command"]))
    places = {"8443": "8080", "$SCALABLE_DATA_DIR/beat-schedule": "/srv/scalable-topics/beat-schedule"}
    page = [places.get(word, word) for word in pages.command_of_page(process)]
    page = [word for word in page if "ssl" not in word and "/node." not in word]  # a proxy encrypts
    assert pages.as_options(command) == pages.as_options(page)


def test_a_container_that_reports_load_is_told_no_server() -> None:
    assert "environment" not in pages.service_of("load-report")


def test_an_image_is_made_of_what_is_there() -> None:
    containerfile = pages.COMPOSE.with_name("Containerfile")
    copied = pages.files_copied(containerfile)
    assert [name for name in copied if not (ROOT / name.strip("./")).exists() and name != "./"] == []
    let_in = {
        line[1:]
        for line in containerfile.with_suffix(".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert let_in == set(copied)


def test_what_is_installed_is_what_run_installs() -> None:
    (install,) = [text for text in pages.blocks("bash") if "pip install" in text]
    named = re.findall(r"-[rc] (\S+)", install)
    assert named == ["requirements.txt", "constraints.txt"]
    assert all((ROOT / name).exists() for name in named)
    assert "--no-deps -e ." in install


class Installation:
    """What the page makes, with names and places of this test."""

    def __init__(self, folder: Path, servers: dict[str, str], authority: Authority) -> None:
        self.ports = {"node-1": free_port(), "node-2": free_port()}
        self._folder, self._authority = folder, authority
        self._guard = Guard()
        self._processes: list[ManagedProcess] = []
        self._places = {
            "/etc/scalable-topics": str(folder / "etc"),
            "/srv/scalable-topics": str(folder / "data"),
            "postgresql://topics:password@database.example:5432/topics": servers["DATABASE_URL"],
            "redis://:password@redis.example:6379/0": servers["REDIS_URL"],
            "0.0.0.0": "127.0.0.1",
        }
        self._nodes = {f"{name}.example:8443": f"localhost:{port}" for name, port in self.ports.items()}
        self.data = folder / "data"
        java = java_environment() or {}
        bare = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {**bare, **java, "SCALABLE_TLS_CA": str(authority.file)}
        # Nothing of the tests' own environment is there: what processes know, the page has told them.
        self._shell = (
            "env",
            "-i",
            *(f"{name}={value}" for name, value in environment.items()),
            "bash",
            "-euc",
        )

    def in_place(self, text: str, *, number: int = 1) -> str:
        """Write a block of the page with this test's names."""
        text = text.replace("node-1", f"node-{number}") if "uvicorn" in text else text
        # A command that is no process calls no node: `check` asks about the names that others have.
        names = self._nodes if "exec " in text else {}
        for name, place in {**self._places, **names}.items():
            text = text.replace(name, place)
        return re.sub(r"--port 8443", f"--port {self.ports[f'node-{number}']}", text)

    def configure(self) -> None:
        """Write the files of settings and the certificate."""
        (self._folder / "etc").mkdir()
        for block in pages.blocks("ini"):
            head, _, content = self.in_place(block).partition("\n")
            Path(head.removeprefix("# ")).write_text(content)
        issued = self._authority.issue("node", *LOCAL)
        for name, file in (("node.pem", issued.cert), ("node.key", issued.key)):
            shutil.copy(file, self._folder / "etc" / name)

    def run(self, text: str) -> str:
        """Run a block to its end, and give what it printed."""
        ran = subprocess.run(
            [*self._shell, self.in_place(text)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, (text, ran.stdout, ran.stderr)
        return ran.stdout + ran.stderr

    def start(self, process: str, *, number: int = 1) -> ManagedProcess:
        """Start a process as its block says."""
        text = self.in_place(pages.block_of(process), number=number)
        spec = ProcessSpec(name=f"{process}-{number}", argv=(*self._shell, text), stop_timeout_seconds=45)
        log = RotatingLog(self._folder / f"{spec.name}-{len(self._processes)}.log", name=spec.name)
        started = ManagedProcess(spec, log=log, guard=self._guard)
        started.start()
        self._processes.append(started)
        return started

    def url(self, number: int) -> str:
        return f"https://localhost:{self.ports[f'node-{number}']}"

    def await_ready(self, number: int) -> None:
        """Wait until a node can work, as a balancer asks."""
        tls = Tls(self._folder / "etc" / "node.pem", self._folder / "etc" / "node.key")
        wait_until(lambda: serves(f"{self.url(number)}/readyz", tls), seconds=START_SECONDS)

    def restart_node(self, number: int) -> None:
        """End a node in order, and start it again where it was."""
        (former,) = [each for each in self.running() if each.spec.name == f"node-{number}"]
        former.send_signal(signal.SIGTERM)
        assert former.wait(30) is not None
        self.start("node", number=number)
        self.await_ready(number)

    def running(self) -> list[ManagedProcess]:
        return [process for process in self._processes if process.returncode is None]

    def token(self, role: str) -> str:
        return (self.data / f"{role}-token").read_text().strip()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()
        self._guard.close()

    def logs(self) -> str:
        return "\n".join(f"{each.log.path.name}:\n{each.log.tail(30)}" for each in self._processes)


@pytest.fixture
def database_url(sandbox: Sandbox) -> Iterator[str]:
    """A database of its own, in which nothing is yet."""
    server = sandbox.environment()["DATABASE_URL"]
    name = f"deployed_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield server.rpartition("/")[0] + f"/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def installation(
    tmp_path: Path, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("SCALABLE_TLS_CA", str(authority.file))  # this process is a client
    made = Installation(tmp_path, servers, authority)
    yield made
    made.stop()
    sys.stdout.write(made.logs())


def one_off(word: str) -> str:
    """Give the block that has a word in it and starts no process."""
    (found,) = [text for text in pages.blocks("bash") if word in text and "exec " not in text]
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_installation_as_the_page_has_it_works_and_is_restarted_node_by_node(
    installation: Installation,
) -> None:
    await asyncio.to_thread(start_all, installation)
    with Admin(",".join(map(installation.url, (1, 2))), installation.token("admin")) as admin:
        await asyncio.to_thread(look_at_all, installation, admin)
        await restart_nodes_under_load(installation, admin)
    for process in installation.running():
        process.send_signal(signal.SIGTERM)
    for process in installation.running():
        status = await asyncio.to_thread(process.wait, 60)
        assert status in {0, -signal.SIGTERM}, (process.spec.name, status)


def start_all(installation: Installation) -> None:
    """Do what the page has in its order."""
    installation.configure()
    installation.run(one_off("token_urlsafe"))
    assert "no issues" in installation.run(one_off("launch.prepare"))
    for name in ("admin-token", "system-token", "admin-password"):
        assert stat.S_IMODE((installation.data / name).stat().st_mode) == 0o600
    for number in (1, 2):
        installation.start("node", number=number)
    for process in ("worker", "beat"):
        installation.start(process)
    for number in (1, 2):
        installation.await_ready(number)


def look_at_all(installation: Installation, admin: Admin) -> None:
    """See each process do its part."""
    admin.create_topic(TOPIC)
    admin.split(TOPIC, 0)  # by the worker, whose log greets nobody
    (worker,) = [each for each in installation.running() if each.spec.name == "worker-1"]
    assert "***" not in worker.log.path.read_text()
    urls = {node["url"] for node in admin.nodes()}
    assert urls == {installation.url(1), installation.url(2)}
    wait_until(lambda: admin.decisions(TOPIC) != [], seconds=60)  # by a worker, which beat told


def metric(admin: Admin, name: str) -> float | None:
    """Give a figure of the installation."""
    found = re.search(rf"^{name} (\S+)$", admin.metrics(), re.MULTILINE)
    return float(found[1]) if found else None


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(java_environment() is None, reason="no Java 17 or newer: the load report cannot run")
def test_the_load_report_of_the_page_reports_and_is_told_no_server(installation: Installation) -> None:
    start_all(installation)
    reporter = installation.start("load-report")
    with Admin(installation.url(1), installation.token("admin")) as admin:
        admin.create_topic(TOPIC)
        # A micro-batch that is done has reported; nodes keep figures for a while before they read them again.
        done = installation.data / "spark" / "load-report" / "status.json"
        wait_until(done.exists, seconds=SPARK_SECONDS)
        seen = partial(metric, admin, "scalable_load_pipeline_seen")
        wait_until(lambda: seen() == 1, seconds=START_SECONDS)
    known = psutil.Process(reporter.pid).environ()
    assert "SCALABLE_DATA_DIR" in known
    assert not {"DATABASE_URL", "REDIS_URL", "SCALABLE_TOKEN_SECRET_FILE"} & set(known)


async def restart_nodes_under_load(installation: Installation, admin: Admin) -> None:
    """Restart one node after the other while messages are sent: each is stored, and once."""
    over, sent = asyncio.Event(), 0
    urls = [installation.url(number) for number in (1, 2)]
    async with Producer(urls, TOPIC, token=installation.token("admin")) as producer:

        async def produce() -> int:
            count = 0
            while not over.is_set():
                await producer.send(f"key-{count % 7}", b"value")
                count += 1
            return count

        producing = asyncio.create_task(produce())
        for number in (1, 2):
            await asyncio.to_thread(installation.restart_node, number)
        over.set()
        sent = await producing
    assert sent > 0
    stored = sum(
        each["endOffset"] - each["startOffset"] for each in admin.positions(TOPIC)["segments"].values()
    )
    assert stored == sent
