"""`manage.py mint_token` refuses to print what no node would accept."""

import os
import subprocess
import sys

import pytest

from launch.process import ROOT
from launch.sandbox import TOKEN_SECRET


def mint(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    kept = {name: value for name, value in os.environ.items() if name != "SCALABLE_TOKEN_SECRET"}
    return subprocess.run(
        [sys.executable, "manage.py", "mint_token", "admin"],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("given", [True, False])
def test_a_token_wants_the_secret_of_the_instance(given: bool) -> None:
    run = mint(SCALABLE_TOKEN_SECRET=TOKEN_SECRET) if given else mint()
    assert (run.returncode == 0) == given
    assert run.stdout.count(".") == 2 if given else "SCALABLE_TOKEN_SECRET" in run.stderr
