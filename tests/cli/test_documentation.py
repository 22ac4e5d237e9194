"""Every command of `docs/cli.md`, run in its order against a real node, prints what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from launch.process import ManagedProcess
from tests.cli.conftest import Command

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
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
