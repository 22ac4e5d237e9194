"""What the tests fork is a child as any other, with output, environment, signals and exit code of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.logs import RotatingLog
from launch.process import ManagedProcess, ProcessSpec
from tests.warm_processes import WarmProcess, WarmStarter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts as only Linux can")
WAIT_SECONDS = 60
PROGRAM = """
import os, sys, time
print(*sys.argv[1:], os.environ["COLOUR"], "HOME" in os.environ, os.getpgid(0) == os.getpid(), flush=True)
if "sleep" in sys.argv:
    time.sleep(600)
sys.exit(7)
"""


@pytest.fixture
def starter() -> Iterator[WarmStarter]:
    made = WarmStarter()
    yield made
    made.stop()


@pytest.fixture
def child(starter: WarmStarter, tmp_path: Path) -> ManagedProcess:
    """A program that sleeps when it is told to; it is not started."""
    (tmp_path / "program.py").write_text(PROGRAM)
    spec = ProcessSpec(
        name="program",
        argv=(sys.executable, "-m", "program", "one", "sleep"),
        environment={"COLOUR": "red"},
        withheld=("HOME",),
        directory=tmp_path,
    )
    process = WarmProcess(spec, log=RotatingLog(tmp_path / "log", name="program"))
    process.starter = starter
    return process


def words(child: ManagedProcess, argv: str) -> ManagedProcess:
    """Change the words it is started with."""
    object.__setattr__(child.spec, "argv", (sys.executable, "-m", "program", *argv.split()))
    return child


def test_it_runs_with_its_own_words_and_environment_and_its_exit_code_is_known(child: ManagedProcess) -> None:
    words(child, "one two").spawn()
    assert child.wait(WAIT_SECONDS) == 7
    child.stop()
    assert "one two red False True" in child.log.tail()


def test_it_can_be_waited_for_in_vain_and_is_ended_by_signals(child: ManagedProcess) -> None:
    child.spawn()
    assert child.wait(0.1) is None
    child.send_signal(signal.SIGKILL)
    assert child.wait(WAIT_SECONDS) == child.returncode == -signal.SIGKILL
    child.stop()


def test_it_outlives_whoever_forked_it_and_is_reaped(child: ManagedProcess, starter: WarmStarter) -> None:
    child.spawn()
    starter.stop()
    assert child.wait(0) is None
    child.stop()
    assert child.wait(0) == -signal.SIGTERM
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_its_waits_end_as_those_of_subprocess_do(child: ManagedProcess) -> None:
    child.spawn()
    assert child._process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        child._process.wait(timeout=0)
    child.stop()
