"""How a batch job ends: told to at every moment of its life, deaf to it, and on a disk that takes nothing."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from spark.jobs import END_SECONDS
from tests.spark.recorded import DAY, endless_minutes, minute, record
from tests.spark.waiting import wait_for

START_SECONDS = 600
"""A machine that is ten times slower may take so long to begin."""
ENDS_WITHIN_SECONDS = 2 * END_SECONDS
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * START_SECONDS)]

DEAF = """
import argparse, sys, threading
from pathlib import Path
from spark import jobs

def work(session):
    try:
        threading.Event().wait()
    except jobs.Cancelled:  # as a callback of a library would lose it
        threading.Event().wait()

history, directory = sys.argv[1:]
sys.exit(jobs.run_job("deaf", argparse.Namespace(
    history=history, directory=Path(directory), master="local[1]", conf=[], with_parent=False), work))
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history of a day that takes minutes to be replayed."""
    return record(tmp_path / "history", endless_minutes())


@pytest.fixture
def start(java: dict[str, str]) -> Iterator[Start]:
    """Starts jobs; what is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **java},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(job)
        return job

    yield begin
    for job in started:
        job.kill()
        job.communicate(timeout=ENDS_WITHIN_SECONDS)  # a JVM that outlives its job keeps the pipe


def replay(history: Path, *more: str) -> list[str]:
    """The command of a replay that takes minutes."""
    return [
        *("-m", "spark.policy_replay", "--day", str(DAY), "--master", "local[1]", "--history", str(history)),
        *("--directory", str(history.parent), "--output", str(history.parent / "out"), *more),
    ]


def state_in(status: Path) -> str:
    """What a status file says."""
    return str(json.loads(status.read_text())["state"]) if status.exists() else ""


def end(job: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    """Tell a job to end, twice, as an impatient user does; give what it said."""
    job.send_signal(number)
    job.send_signal(number)
    _, said = job.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert job.returncode == 143, said
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["STARTING", "RUNNING", "TASKS"])
def test_a_job_that_is_told_to_end_says_so(
    start: Start, history: Path, number: signal.Signals, moment: str
) -> None:
    """Spark has a handler of its own for what a terminal sends; the job's comes before it."""
    status = history.parent / "policy_replay.json"
    job = start(*replay(history))

    def has_come() -> bool:
        if moment != "TASKS":
            return state_in(status) == moment
        return status.exists() and json.loads(status.read_text()).get("tasks", {}).get("total", 0) > 0

    wait_for(has_come, moment, seconds=START_SECONDS)
    java = psutil.Process(job.pid).children(recursive=True)
    said = end(job, number)
    assert "Traceback" not in said
    assert state_in(status) == "CANCELLED"
    psutil.wait_procs(java, timeout=ENDS_WITHIN_SECONDS)
    assert not any(each.is_running() for each in java)


def test_one_that_waits_for_another_ends_without_a_word_about_that(start: Start, history: Path) -> None:
    lock = history.parent / "policy_replay.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        job = start(*replay(history, "--with-parent"))
        process = psutil.Process(job.pid)
        wait_for(
            lambda: any(each.path == str(lock) for each in process.open_files()),
            "the job to wait",
            seconds=START_SECONDS,
        )
        assert end(job) == ""
    assert not (history.parent / "policy_replay.json").exists()


def test_one_to_which_the_word_does_not_come_ends_all_the_same(start: Start, history: Path) -> None:
    job = start("-c", DEAF, str(history), str(history.parent))
    wait_for(lambda: state_in(history.parent / "deaf.json") == "RUNNING", "it to run", seconds=START_SECONDS)
    end(job)


def test_a_job_whose_status_cannot_be_written_works_and_says_that_its_result_is_lost(
    start: Start, history: Path
) -> None:
    (history.parent / "compact.json").mkdir()  # nothing can be put in its place
    record(history, *([minute("public/default/t", 0, number, 1.0)] for number in range(3)))
    job = start(
        *("-m", "spark.compact", "--master", "local[1]", "--history", str(history)),
        *("--directory", str(history.parent)),
    )
    _, said = job.communicate(timeout=START_SECONDS)
    assert job.returncode == 1
    assert said.count("the progress is not written") == 1, said
    assert "Traceback" not in said
    assert len(list(history.glob("day=*/*.parquet"))) == 1, "compacted"
