"""Blocks of `docs/cli.md` that a shell runs: those that take an id from an answer."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import LiveNode

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

OF_THE_DEVELOPER = frozenset({"SCALABLE_TOKEN", "SCALABLE_TOKEN_FILE", "SCALABLE_CONFIG"})


def block_of(group: str) -> str:
    """Give the block that takes ids from a group of commands."""
    (found,) = [
        block
        for block in BLOCK.findall(PAGE.read_text())
        if f"id=$(scalable-topics -o json {group} " in block
    ]
    return str(found)


def run_block(
    block: str, node: LiveNode, *, folder: Path, token_file: Path, timeout_seconds: float = 480.0
) -> str:
    """Run a block as a user would who pastes it, and give what it prints; no command of it may fail.

    The time is to be less than the test's own. What whoever runs the tests has set is left out.
    """
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    token_file.write_text(node.admin_token + "\n")
    token_file.chmod(0o600)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name not in OF_THE_DEVELOPER},
            "PATH": path,
            "XDG_CONFIG_HOME": str(token_file.parent / "none"),
            "SCALABLE_URL": node.url,
            "SCALABLE_TOKEN_FILE": str(token_file),
        },
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr
