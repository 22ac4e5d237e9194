"""Every command of `docs/cli.md`, run in its order against a real node, prints what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.process import ManagedProcess
from scalable.cli import statuses
from tests.cli.conftest import Command
from tests.cli.shell import ID, PAGE, block_of, run_block
from tests.processes import LiveNode
from tests.tidy.sources import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ scalable-topics (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_every_command_prints_what_the_page_says(
    command: Command, celery_worker_process: ManagedProcess
) -> None:
    steps = [step for block in BLOCK.findall(PAGE.read_text()) for step in STEP.findall(block)]
    assert len(steps) > 15
    for line, expected in steps:
        result = command(*shlex.split(line))
        assert result.out + result.err == expected, line


def test_the_commands_for_tokens_can_be_pasted(
    live_node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALABLE_TOKEN", "of whoever runs the tests")
    monkeypatch.setenv("SCALABLE_CONFIG", "of-whoever-runs-the-tests.toml")
    (folder := tmp_path / "here").mkdir()
    printed = run_block(
        block_of("tokens"), live_node, folder=folder, token_file=tmp_path / "token", timeout_seconds=200
    )
    (revoked,) = re.findall(r"^revoked (\S+)$", printed, re.MULTILINE)
    holds = re.findall(r"^\S+ holds (\S+) for orders-app$", printed, re.MULTILINE)
    assert [revoked] == holds, "the newest of the role"
    assert (folder / "orders-app.token").exists()
    assert (folder / "audit.jsonl").exists()


def test_the_page_names_every_exit_status() -> None:
    named = {int(status) for status in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)}
    assert named == {0, *(value for value in vars(statuses).values() if isinstance(value, int))}


def test_an_exit_status_can_be_had_before_anything_is_loaded() -> None:
    program = "import sys; had = {*sys.modules}; import scalable.cli.statuses; print(*{*sys.modules} - had)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(loaded.stdout.split()) == {"scalable", "scalable.cli", "scalable.cli.statuses"}


def test_no_id_on_the_page_is_made_up() -> None:
    assert ID.findall(PAGE.read_text()) == []
