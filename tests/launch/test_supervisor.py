"""The supervisor restarts what dies, stops in reverse order, and is alone in its data directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.data_directory import DataDirectory
from launch.leftovers import notes, stop_leftovers
from launch.process import LaunchError
from launch.restarts import LONGEST_DELAY_SECONDS, STEADY_SECONDS, Backoff
from launch.supervisor import Supervisor
from tests.launch.children import alive, child, kill_hard, spec, wait_until

SLEEPER = "import time; time.sleep(600)"


@pytest.fixture
def lines() -> list[str]:
    """What the supervisor reported."""
    return []


@pytest.fixture
def supervisor(tmp_path: Path, lines: list[str]) -> Iterator[Supervisor]:
    running = Supervisor(DataDirectory(tmp_path / "data"), report=lines.append)
    yield running
    running.stop()


def starts(counter: Path) -> str:
    """Return a script that leaves a line per start and then sleeps."""
    return f"import time; open({str(counter)!r}, 'a').write('x\\n'); time.sleep(600)"


def test_what_dies_is_started_again(supervisor: Supervisor, tmp_path: Path, lines: list[str]) -> None:
    counter = tmp_path / "starts"
    process = supervisor.launch(spec(starts(counter)))
    supervisor.watch()
    wait_until(lambda: counter.exists() and counter.read_text() == "x\n")
    kill_hard(process.pid)
    wait_until(lambda: counter.read_text() == "x\nx\n")
    assert any("child ended with status -9; again in 0.5 s" in line for line in lines)


def test_stop_leaves_no_child_while_another_waits_for_its_restart(
    supervisor: Supervisor, tmp_path: Path, lines: list[str]
) -> None:
    supervisor.launch(spec("raise SystemExit(3)", name="broken"))
    steady = supervisor.launch(spec(SLEEPER, name="steady"))
    supervisor.watch()
    wait_until(lambda: any(line.startswith("broken ended with status 3") for line in lines))
    supervisor.stop()
    assert not alive(steady.pid)
    assert not (tmp_path / "data" / "processes.json").exists()


def test_stop_goes_backwards(supervisor: Supervisor, lines: list[str]) -> None:
    for name in ("first", "second", "third"):
        supervisor.launch(spec(SLEEPER, name=name))
    supervisor.stop()
    assert lines == ["stopping third", "stopping second", "stopping first"]


def test_a_step_that_fails_is_reported_with_its_log(supervisor: Supervisor) -> None:
    with pytest.raises(LaunchError, match="migration ended with status 1") as caught:
        supervisor.run(spec("raise SystemExit('no such column')", name="prepare"), label="migration")
    assert "no such column" in caught.value.hint


def test_a_second_instance_in_the_same_folder_is_refused(supervisor: Supervisor, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from launch.data_directory import DataDirectory\n"
        "DataDirectory(Path(sys.argv[1])).acquire(print)\n"
    )
    second = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert second.returncode != 0
    assert f"already (process {os.getpid()})" in second.stderr


def test_a_killed_owner_that_nobody_reaped_is_no_running_instance(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys; from pathlib import Path\n"
        "from launch.data_directory import DataDirectory\n"
        "directory = DataDirectory(Path(sys.argv[1]))\n"
        "directory.acquire(print)\n"
        "subprocess.Popen(['sleep', '1'], pass_fds=[directory.lock_descriptor])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "data")]) as owner:
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        directory = DataDirectory(tmp_path / "data")
        directory.acquire(lines.append)
        directory.release()
    assert lines == ["waiting for the guard of a killed instance to finish its cleaning"]


def test_the_folder_is_free_after_the_stop(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.stop()
    Supervisor(DataDirectory(tmp_path / "data"), report=print).stop()


def test_leftovers_of_a_killed_guard_are_stopped_and_strangers_are_not(tmp_path: Path) -> None:
    with child(spec(SLEEPER), tmp_path) as ours, child(spec(SLEEPER + " "), tmp_path) as stranger:
        left = notes([ours])
        reused = {**left[0], "pid": stranger.pid}
        assert stop_leftovers([*left, reused]) == [Path(sys.executable).name]
        assert not alive(ours.pid)
        assert alive(stranger.pid)


@pytest.mark.parametrize("noted", [None, {}, []])
def test_no_leftovers_no_trouble(noted: object) -> None:
    assert stop_leftovers(noted) == []


def test_backoff_doubles_up_to_its_bound_and_forgets_after_a_steady_run() -> None:
    backoff, delays = Backoff(), []
    for _ in range(10):
        backoff = backoff.after_run(1)
        delays.append(backoff.delay_seconds)
    assert delays[:4] == [0.5, 1, 2, 4]
    assert delays[-1] == LONGEST_DELAY_SECONDS
    assert backoff.after_run(STEADY_SECONDS).delay_seconds == 0.5
