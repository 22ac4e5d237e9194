"""Standard streams that are closed or full end a command in order, with a status and without a traceback."""

import json
import os
import subprocess
import sys

import pytest

from tests.tidy.sources import ROOT

OFFLINE = {**os.environ, "SCALABLE_URL": "http://127.0.0.1:1"}


def _run(words: str, redirection: str) -> subprocess.CompletedProcess[str]:
    shell = f"{sys.executable} -m scalable.cli {words} {redirection}"
    return subprocess.run(
        shell, shell=True, env=OFFLINE, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_told(redirection: str) -> None:
    done = _run("-o json --help", redirection)
    assert (done.returncode, json.loads(done.stderr)["code"]) == (1, "failed")
    people = _run("--help", redirection)
    assert (people.returncode, "cannot be written" in people.stderr) == (1, True)
    assert "Traceback" not in people.stderr


@pytest.mark.parametrize("what", ["delete a/b/c", "subscriptions delete a/b/c -s s", "namespaces delete a/b"])
def test_without_an_input_nothing_is_confirmed(what: str) -> None:
    done = _run(what, "<&-")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_a_closed_error_stream_leaves_the_status() -> None:
    assert _run("list public/default", "2>&-").returncode == 3
    assert _run("list public/default", "<&- >&- 2>&-").returncode == 3
