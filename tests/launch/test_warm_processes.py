"""What the tests fork is a child as any other, with output, environment, signals and exit code of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.logs import RotatingLog
from launch.process import ManagedProcess, ProcessSpec
from tests.warm_processes import WarmProcess, WarmStarter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts as only Linux can")
WAIT_SECONDS = 60
Program = Callable[..., ManagedProcess]
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
def program(starter: WarmStarter, tmp_path: Path) -> Program:
    """Make a program with its words; it sleeps when it is told to, and is not started."""
    (tmp_path / "program.py").write_text(PROGRAM)

    def make(*words: str) -> ManagedProcess:
        spec = ProcessSpec(
            name="program",
            argv=(sys.executable, "-m", "program", *words),
            environment={"COLOUR": "red"},
            withheld=("HOME",),
            directory=tmp_path,
        )
        return WarmProcess(spec, log=RotatingLog(tmp_path / "log", name="program"), starter=starter)

    return make


def test_it_runs_with_its_own_words_and_environment_and_its_exit_code_is_known(program: Program) -> None:
    child = program("one", "two")
    child.spawn()
    assert child.wait(WAIT_SECONDS) == 7
    child.stop()
    assert "one two red False True" in child.log.tail()


def test_it_can_be_waited_for_in_vain_and_is_ended_by_signals(program: Program) -> None:
    child = program("sleep")
    child.spawn()
    assert child.wait(0.1) is None
    child.send_signal(signal.SIGKILL)
    assert child.wait(WAIT_SECONDS) == child.returncode == -signal.SIGKILL
    child.stop()


def test_it_outlives_whoever_forked_it_and_is_reaped(program: Program, starter: WarmStarter) -> None:
    child = program("sleep")
    child.spawn()
    starter.stop()
    assert child.wait(0) is None
    child.stop()
    assert child.wait(0) == -signal.SIGTERM
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_its_waits_end_as_those_of_subprocess_do(program: Program) -> None:
    child = program("sleep")
    child.spawn()
    assert child._process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        child._process.wait(timeout=0)
    child.stop()
