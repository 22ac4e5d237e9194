"""The command in this process, with what it prints and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scalable.cli.command import run
from tests.processes import LiveNode


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def body(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)


Command = Callable[..., Result]


@pytest.fixture
def offline_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Run `scalable-topics` where no node is, and nobody has a token."""
    monkeypatch.setenv("SCALABLE_URL", "http://127.0.0.1:1")
    for name in ("SCALABLE_TOKEN", "SCALABLE_TOKEN_FILE", "SCALABLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        status = run(arguments)
        printed = capsys.readouterr()
        return Result(status, printed.out, printed.err)

    return call


@pytest.fixture
def command(offline_command: Command, live_node: LiveNode, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `scalable-topics` as the superuser against a live node."""
    monkeypatch.setenv("SCALABLE_URL", live_node.url)
    monkeypatch.setenv("SCALABLE_TOKEN", live_node.admin_token)
    return offline_command
