"""A short soak with real processes: consumers, workers and nodes die while clients work."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from launch.process import ROOT
from tests.journeys.test_demo import OF_THE_TESTS


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_dies_nothing_is_lost_reordered_or_doubled_and_no_assignment_is_wrong() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "launch", "soak", "--minutes", "0.75", "--seed", "7", "--json"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in OF_THE_TESTS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6_000:]
    (line,) = run.stdout.splitlines()
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
