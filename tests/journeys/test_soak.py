"""A short soak with real processes: consumers, workers and nodes die while clients work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from launch.process import ROOT
from tests.journeys.test_demo import OF_THE_TESTS

LIMIT_SECONDS = 500


def soak(*options: str) -> tuple[str, str, int]:
    """Run a soak; one that hangs is ended as by Ctrl-C, which stops its processes, and says where it was."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}
    with subprocess.Popen(
        [sys.executable, "-m", "launch", "soak", *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            output, errors = run.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
            output, errors = run.communicate(timeout=60)
        return output, errors, run.returncode


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_dies_nothing_is_lost_reordered_or_doubled_and_no_assignment_is_wrong() -> None:
    output, errors, status = soak("--minutes", "0.75", "--seed", "7", "--json")
    assert status == 0, errors[-6_000:]
    (line,) = output.splitlines()
    result = json.loads(line)
    assert list(result) == [
        *("produced", "lost", "reordered", "duplicated_beyond_window", "assignment_violations"),
        *("kills", "splits", "merges"),
    ]
    assert result["produced"] > 0
    assert (result["lost"], result["reordered"], result["duplicated_beyond_window"]) == (0, 0, 0)
    assert result["assignment_violations"] == 0
    assert result["kills"] > 0
    assert result["splits"] > 0
    assert result["merges"] > 0
