"""A short soak with real processes: consumers, workers and nodes die while clients work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from launch.process import ROOT
from tests.launch.children import environment_of_a_user

LIMIT_SECONDS = 780
"""A soak bounds its phases itself; this is far more than they take, for a machine that is very slow."""
STOP_SECONDS = 60


def soak(folder: Path, *options: str) -> tuple[str, str, int]:
    """Run a soak; one that hangs is interrupted as by Ctrl-C, then killed, and shows what it wrote."""
    with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "launch", "soak", *options],
            cwd=ROOT,
            env=environment_of_a_user(),
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            run.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                run.wait(STOP_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # its guard stops what has a session of its own
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return (folder / "output").read_text(), (folder / "errors").read_text(), run.returncode


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 2 * STOP_SECONDS)
def test_whatever_dies_nothing_is_lost_reordered_or_doubled_and_no_assignment_is_wrong(
    tmp_path: Path,
) -> None:
    output, errors, status = soak(tmp_path, "--minutes", "0.75", "--seed", "7", "--json")
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
