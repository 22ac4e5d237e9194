"""Ctrl-C while a command is only being loaded ends it: no traceback, and no import takes it."""

import os
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launch.process import ROOT

INTERRUPTING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

if {name!r} == "sitecustomize":  # before anything of the command
    os.kill(os.getpid(), signal.SIGINT)
else:
    sys.meta_path.insert(0, Finder())
"""


def python(*arguments: str, path: Path = ROOT, held_back: bool = False) -> subprocess.CompletedProcess[str]:
    def before() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if held_back:  # as by `./run`
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=f"{path}:{ROOT}"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=before,
    )


@pytest.mark.parametrize(
    "name", ["sitecustomize", "argparse", "launch.commands", "launch.soak", "django.http.request", "replay"]
)
def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(name=name))
    ended = python("-m", "launch", "up", "--help", path=tmp_path, held_back=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_an_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    (tmp_path / "sitecustomize.py").write_text(ignoring + INTERRUPTING.format(name="launch.soak"))
    assert python("-m", "launch", "up", "--help", path=tmp_path).returncode == 0


def test_run_holds_ctrl_c_back_for_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = SourceFileLoader("run_script", str(ROOT / "run"))
    run: Any = ModuleType(loader.name)
    run.__file__ = str(ROOT / "run")
    loader.exec_module(run)
    held_back: list[set[int]] = []
    monkeypatch.setattr(run, "set_up", lambda command: None)
    monkeypatch.setattr(
        run.os, "execve", lambda *given: held_back.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    )
    try:
        run.main(["up"])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert held_back == [{signal.SIGINT}]
