"""Standard streams that are closed or full end a command in order, with a status and without a traceback."""

import json
import os
import subprocess
import sys
import termios

import pytest

from scalable.client import Admin
from tests.processes import LiveNode
from tests.tidy.sources import ROOT

OFFLINE = {**os.environ, "SCALABLE_URL": "http://127.0.0.1:1"}


def _run(words: str, redirection: str, setting: str = "") -> subprocess.CompletedProcess[str]:
    shell = f"{setting} {sys.executable} -m scalable.cli {words} {redirection}"
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


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_an_error_stream_that_takes_nothing_leaves_the_status(redirection: str, encoding: str) -> None:
    named = f"PYTHONIOENCODING={encoding}"
    for words, status in (("list public/default", 3), ("no-such-command", 2), ("--version", 0)):
        assert _run(words, redirection, named).returncode == status
    assert _run("-o json --help", f">/dev/full {redirection}", named).returncode == 1


def test_closed_streams_leave_the_status() -> None:
    assert _run("list public/default", "<&- >&- 2>&-").returncode == 3


def test_help_is_as_wide_as_the_terminal() -> None:
    terminal, side = os.openpty()
    termios.tcsetwinsize(side, (40, 120))
    environment = {name: value for name, value in OFFLINE.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "scalable.cli", "--help"], stdout=side, env=environment, cwd=ROOT
    ) as helping:
        os.close(side)
        lines = _all_of(terminal).splitlines()
    assert helping.returncode == 0
    assert 78 < max(map(len, lines)) <= 100, "80 columns is what is taken where no terminal can be asked"


def _all_of(terminal: int) -> str:
    with open(terminal, "rb", buffering=0) as output:
        read = b""
        try:
            while piece := output.read(4096):
                read += piece
        except OSError:  # the other side is closed: it ended
            pass
    return read.decode()


def _as_superuser(node: LiveNode) -> dict[str, str]:
    return {**OFFLINE, "SCALABLE_URL": node.url, "SCALABLE_TOKEN": node.admin_token}


@pytest.mark.parametrize("what", ["watch-topics public/default", "watch public/default/full"])
def test_what_goes_on_ends_when_its_output_is_full(live_node: LiveNode, what: str) -> None:
    with Admin(live_node.url, live_node.admin_token) as admin:
        admin.create_topic("topic://public/default/full")
        done = subprocess.run(
            f"{sys.executable} -m scalable.cli -o json {what} --for 5m >/dev/full",
            shell=True,
            env=_as_superuser(live_node),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        admin.delete_topic("topic://public/default/full")
    assert (done.returncode, json.loads(done.stderr)["code"]) == (1, "failed")


def test_the_topics_of_a_namespace_end_with_their_reader(live_node: LiveNode) -> None:
    """As `watch-topics ... | head -1`, with the next change."""
    words = [sys.executable, "-m", "scalable.cli", "-o", "json", "watch-topics", "public/default"]
    with (
        Admin(live_node.url, live_node.admin_token) as admin,
        subprocess.Popen(
            words, env=_as_superuser(live_node), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as watching,
    ):
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "added" in json.loads(watching.stdout.readline())
        watching.stdout.close()
        admin.create_topic("topic://public/default/nobody-reads-of-it")
        try:
            assert watching.wait(timeout=30) == 1
        finally:
            watching.kill()
            admin.delete_topic("topic://public/default/nobody-reads-of-it")
        assert watching.stderr.read() == b"", "whoever has read enough knows it"


def test_an_error_of_a_file_is_none_of_the_output() -> None:
    done = _run("-o json produce public/default/t --file /proc/self/mem", "")
    error = json.loads(done.stderr)
    assert (done.returncode, error["code"], "written" in error["reason"]) == (1, "failed", False)


INTERRUPTED_AT_AN_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

signal.signal(signal.SIGINT, signal.{handler})  # whatever these tests inherited

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from scalable.cli.app import main
main()
"""


@pytest.mark.parametrize(
    "name", ["click", "scalable.client", "websockets", "rich.live", "scalable.cli.watch"]
)
def test_ctrl_c_while_it_is_being_imported_ends_it_without_a_word(name: str) -> None:
    program = INTERRUPTED_AT_AN_IMPORT.format(name=name, handler="default_int_handler")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_whoever_has_ctrl_c_ignored_is_left_alone() -> None:
    program = INTERRUPTED_AT_AN_IMPORT.format(name="scalable.client", handler="SIG_IGN")
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_who_finds_nobody_is_told_what_it_may_lack() -> None:
    done = _run("-o json list public/default", "")
    hint = json.loads(done.stderr)["hint"]
    tls = ("SCALABLE_TLS_CA", "SCALABLE_TLS_CERT", "SCALABLE_TLS_KEY")
    assert all(name in hint for name in ("SCALABLE_URL", *tls))
