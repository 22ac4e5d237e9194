"""`./run` sets up with nothing but a bare Python, and says in one line what is missing."""

import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from launch import commands
from launch.process import ROOT

RUN = ROOT / "run"


@pytest.fixture
def run() -> Any:
    """The file `run`, loaded as a module."""
    loader = SourceFileLoader("run_script", str(RUN))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Without site-packages: it must work before anything is installed.
    command = [sys.executable, "-I", "-S", str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_needs_no_environment() -> None:
    result = call("help")
    assert result.returncode == 0
    assert "./run [command]" in result.stdout


@pytest.mark.parametrize("command", ["up", "demo", "soak"])
def test_the_help_names_every_option_of_a_command(
    run: Any, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        commands.COMMANDS[command](["--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    named = set(re.findall(r"--[a-z][a-z-]+", run.HELP)) | {"--tls-cert", "--tls-key", "--tls-client-ca"}
    assert options
    assert options <= named


def test_an_unknown_command_is_refused_with_the_help() -> None:
    result = call("dance")
    assert result.returncode == 2
    assert result.stderr.startswith("error: no command 'dance'")
    assert "hint:" not in result.stderr


def test_an_option_without_a_command_is_told_its_place() -> None:
    result = call("--port", "21300")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "error: no command '--port'\nhint: options stand behind a command: ./run up --port"
    )


def test_an_old_python_is_told_what_it_lacks(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 6))
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    with pytest.raises(run.SetupError, match=r"Python 3\.11 or newer is needed") as caught:
        run.python_for_environment()
    assert "python3-venv" in caught.value.hint


def test_an_old_python_uses_a_newer_one_beside_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 6))
    monkeypatch.setattr(run.shutil, "which", lambda name: "/opt/python3.12" if name == "python3.12" else None)
    assert run.python_for_environment() == "/opt/python3.12"


def test_a_python_without_ensurepip_is_told_what_to_install(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(command: list[str], **options: Any) -> bytes:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(run, "VENV", tmp_path / "venv")
    monkeypatch.setattr(run, "PYTHON", tmp_path / "venv" / "bin" / "python")
    monkeypatch.setattr(run.subprocess, "check_output", fails)
    with pytest.raises(run.SetupError, match="cannot make virtual environments") as caught:
        run.make_environment(None, needs_pip=False)
    assert "apt-get install python3-venv" in caught.value.hint


def test_uv_tries_the_certificates_of_the_system_when_its_own_do_not_do(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    monkeypatch.setattr(run.os, "environ", dict(os.environ))
    tried = tmp_path / "tried"
    script = f'echo "certs:$UV_SYSTEM_CERTS" >> {tried}; test -n "$UV_SYSTEM_CERTS"'

    def call_with_its_environment(command: list[str], **options: Any) -> int:
        return subprocess.run(command, check=False, env=run.os.environ).returncode

    monkeypatch.setattr(run.subprocess, "call", call_with_its_environment)
    run.install_packages(["sh", "-c", script], "/usr/bin/uv")
    assert tried.read_text().split() == ["certs:", "certs:1"]
    with pytest.raises(run.SetupError, match="installing failed"):
        run.install_packages(["sh", "-c", "false"], "/usr/bin/uv")


def test_a_changed_requirement_is_installed_anew(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "VENV", tmp_path)
    assert not run.is_installed(developer=False)
    run.stamp(developer=True).touch()
    assert run.is_installed(developer=True)
    assert run.is_installed(developer=False)
    (tmp_path / "constraints.txt").write_text("another")
    assert not run.is_installed(developer=False)


def test_the_environment_of_a_broken_interpreter_is_made_again(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to("/nowhere/python")
    monkeypatch.setattr(run, "VENV", venv)
    monkeypatch.setattr(run, "PYTHON", venv / "bin" / "python")
    run.make_environment(None, needs_pip=False)
    assert subprocess.check_output([venv / "bin" / "python", "-c", "print('ok')"], text=True) == "ok\n"


@pytest.mark.parametrize("needs_pip", [True, False])
def test_an_environment_without_pip_is_made_again_where_pip_is_needed(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs_pip: bool
) -> None:
    venv = tmp_path / "venv"
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    (begun,) = venv.glob("lib/python*/site-packages")
    (begun / "pip").mkdir()
    (begun / "pip" / "__init__.py").write_text("")
    monkeypatch.setattr(run, "VENV", venv)
    monkeypatch.setattr(run, "PYTHON", venv / "bin" / "python")
    run.make_environment(None, needs_pip=needs_pip)
    found = (
        subprocess.call([venv / "bin" / "python", "-c", "import pip._internal"], stderr=subprocess.DEVNULL)
        == 0
    )
    assert found is needs_pip


def test_a_link_to_an_environment_that_is_gone_is_replaced(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    venv.symlink_to("/nowhere/venv")
    monkeypatch.setattr(run, "VENV", venv)
    monkeypatch.setattr(run, "PYTHON", venv / "bin" / "python")
    run.make_environment(None, needs_pip=False)
    assert subprocess.check_output([venv / "bin" / "python", "-c", "print('ok')"], text=True) == "ok\n"


def test_an_environment_of_another_account_is_one_line(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(command: list[str], **options: Any) -> int:
        raise PermissionError(13, "Permission denied", command[0])

    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(run.subprocess, "call", refuse)
    with pytest.raises(run.SetupError, match="may not run"):
        run.make_environment(None, needs_pip=False)
