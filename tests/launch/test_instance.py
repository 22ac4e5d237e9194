"""Whole instances, as a user starts, stops and kills them."""

import json
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from launch import commands
from launch.embedded import remove_postgres
from launch.ports import HOST, HeldPorts, is_free
from launch.process import ROOT
from scalable.client import Admin
from tests.launch.children import MARK, environment_of_a_user, kill_hard, marked, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
START_SECONDS = 90


class Launched:
    """One `./run up` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.mark = uuid.uuid4().hex
        self.output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = folder
        self.environment: dict[str, str] = {}

    def start(self, *options: str, without: str = "--no-spark") -> None:
        command = [sys.executable, "-m", "launch", "up", without, "--data-dir", str(self.data), *options]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env={**environment_of_a_user(), "PYTHONPATH": str(ROOT), MARK: self.mark, **self.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._settled, seconds=START_SECONDS)
        assert self.process.poll() is None, self.output.read_text()

    @property
    def admin_token(self) -> str:
        return (self.data / "admin-token").read_text().strip()

    def _settled(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or "Dashboard" in self.output.read_text()

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "services.json").read_text())["url"])

    @property
    def urls(self) -> list[str]:
        return [str(url) for url in json.loads((self.data / "services.json").read_text())["urls"]]

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the supervisor alone, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def children(self, *words: str) -> list[psutil.Process]:
        """Return the processes whose command line has all the words, oldest first."""
        found = [p for p in marked(self.mark) if all(word in command_line(p) for word in words)]
        return sorted(found, key=lambda process: float(process.create_time()))

    def child(self, *words: str) -> psutil.Process:
        """Return the child whose command line has all the words."""
        found = self.children(*words)
        assert found, f"no process with {words}"
        return found[0]

    def replaced(self, gone: psutil.Process, *words: str) -> bool:
        """Tell whether another process does the work of one that is gone."""
        pids = [process.pid for process in self.children(*words)]
        return gone.pid not in pids and pids != []

    def clean(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGTERM)
        remove_postgres(directory=self.data / "postgres")


def command_line(process: psutil.Process) -> str:
    """The words of a process; none when it ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    instance = Launched(tmp_path)
    yield instance
    instance.clean()


def serves(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/livez", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.spark
def test_an_instance_serves_and_leaves_nothing_after_sigterm(launched: Launched) -> None:
    launched.start(without="--no-demo")
    assert serves(launched.url)
    for name in ("admin-token", "system-token", "admin-password", "secret-key", "token-secret"):
        assert stat.S_IMODE((launched.data / name).stat().st_mode) == 0o600, name
    assert (launched.data / "admin-password").read_text().strip() in launched.output.read_text()
    secrets = {(launched.data / name).read_text().strip() for name in ("secret-key", "token-secret")}
    reporter = launched.child("spark.load_report").environ()
    assert secrets.isdisjoint(reporter.values())
    assert not {"DATABASE_URL", "REDIS_URL"} & set(reporter)
    assert launched.signal(signal.SIGTERM) == 0
    assert marked(launched.mark) == []


def test_ctrl_c_twice_still_stops_everything_in_order(launched: Launched) -> None:
    launched.start()
    assert launched.process is not None
    launched.process.send_signal(signal.SIGINT)
    assert launched.signal(signal.SIGINT) == 0
    assert launched.output.read_text().rstrip().endswith("stopped")
    assert marked(launched.mark) == []


def test_a_killed_supervisor_leaves_nothing_that_blocks_the_next_start(launched: Launched) -> None:
    launched.start()
    first_password = (launched.data / "admin-password").read_text()
    launched.signal(signal.SIGKILL)
    launched.start()  # at once: it waits for the guard of the killed one
    assert serves(launched.url)
    assert (launched.data / "admin-password").read_text() == first_password
    assert first_password.strip() not in launched.output.read_text()
    assert launched.signal(signal.SIGTERM) == 0
    assert marked(launched.mark) == []


def test_a_supervisor_killed_together_with_its_guard_blocks_nothing_either(launched: Launched) -> None:
    launched.start()
    guard = launched.child("guard.py")
    kill_hard(guard.pid)
    launched.signal(signal.SIGKILL)
    launched.start()
    assert serves(launched.url)
    assert launched.signal(signal.SIGTERM) == 0
    assert marked(launched.mark) == []


def test_whatever_dies_comes_back(launched: Launched) -> None:
    launched.start()
    for words in (("uvicorn",), ("celery", "worker"), ("celery", "beat"), ("valkey",), ("postgres", "-D")):
        before = launched.child(*words)
        kill_hard(before.pid)
        wait_until(partial(launched.replaced, before, *words), seconds=30)
    wait_until(lambda: serves(launched.url), seconds=30)


def test_each_of_several_nodes_and_workers_comes_back_alone_and_keeps_its_address(launched: Launched) -> None:
    launched.start("--nodes", "2", "--workers", "2")
    urls = launched.urls
    assert len(set(urls)) == 2
    assert all(serves(url) and url in launched.output.read_text() for url in urls)
    nodes, workers = launched.children("uvicorn"), launched.children("celery", "worker")
    assert (len(nodes), len(workers)) == (2, 2)
    port = urls[1].rpartition(":")[2]
    second = launched.child("uvicorn", port)
    kill_hard(second.pid)
    wait_until(partial(launched.replaced, second, "uvicorn", port), seconds=30)
    wait_until(lambda: serves(urls[1]), seconds=30)
    assert all(process.is_running() for process in (*nodes, *workers) if process.pid != second.pid)
    assert launched.signal(signal.SIGTERM) == 0
    launched.start("--nodes", "2")
    assert launched.urls == urls


@pytest.mark.parametrize("option", ["--nodes", "--workers"])
@pytest.mark.parametrize("number", ["0", "-1", "17", "two"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        commands.up([f"{option}={number}"])
    assert f"{number!r} is not a number between 1 and 16" in capsys.readouterr().err


def test_two_instances_start_at_once_and_live_side_by_side(launched: Launched, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = Launched(tmp_path / "second")
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(Launched.start, (launched, second)))
        for each in (launched, second):
            with Admin(each.url, each.admin_token) as admin:
                admin.create_topic("topic://public/default/mine")
        assert launched.url != second.url
        assert serves(launched.url)
        assert serves(second.url)
        assert launched.signal(signal.SIGTERM) == 0
        assert serves(second.url)
    finally:
        second.clean()
    assert marked(second.mark) == []


def test_a_port_is_kept_while_its_node_restarts(launched: Launched) -> None:
    launched.start()
    node, port = launched.child("uvicorn"), int(launched.url.rpartition(":")[2])
    others = HeldPorts(HOST)
    kill_hard(node.pid)
    wait_until(lambda: is_free(port))
    assert not others.take(port)
    wait_until(lambda: serves(launched.url), seconds=30)
    assert launched.signal(signal.SIGTERM) == 0
    assert others.take(port)
    others.release()


def test_a_port_that_was_asked_for_and_is_taken_is_one_line_and_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            [sys.executable, "-m", "launch", "up", "--port", port, "--data-dir", str(tmp_path / "data")],
            cwd=ROOT,
            env=environment_of_a_user(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"error: port {port} is taken, or this account may not use it",
        "hint: choose another one with --port",
    ]
