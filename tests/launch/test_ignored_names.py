"""A setting whose name has a slip of the pen is told of by all that start, and stops none of them."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch.services import beat_spec
from tests.launch.children import environment_of_a_user, wait_until
from tests.processes import ProcessFactory
from tests.tidy.sources import ROOT

SLIP = {"SCALABLE_READONLY": "hunter2"}
TOLD = "SCALABLE_READONLY is set, is no setting, and is ignored; was SCALABLE_READ_ONLY meant?"


def test_nodes_workers_and_beat_tell_of_it(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    beat = beat_spec(environment={**service_environment, **SLIP}, schedule=tmp_path / "beat")
    worker = processes.worker(SCALABLE_READONLY="hunter2")
    for process in (processes.node(**SLIP).process, worker, processes.run(beat)):
        wait_until(lambda log=process.log: TOLD in log.tail(200), seconds=30)  # type: ignore[misc]
        log = process.log.path.read_text()
        assert log.count(TOLD) == 1, process.log.path.name
        assert "hunter2" not in log


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**environment_of_a_user(), **SLIP},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_instance_tells_of_it_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("-m", "launch", "up", "--port", port, "--data-dir", str(tmp_path / "data"))
    assert f"port {port} is taken" in refused.stderr
    assert refused.stdout.splitlines()[0].endswith(f"warning: {TOLD}")


@pytest.mark.parametrize("level", [(), ("--fail-level", "WARNING")])
def test_a_check_tells_of_it(level: tuple[str, ...]) -> None:
    checked = run("manage.py", "check", *level)
    assert f"(scalable.W004) {TOLD}" in checked.stderr
    assert (checked.returncode == 0) is not bool(level)
