"""`./run check`: formatting, lint, strict types, import contracts, migrations and the tidy test."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from launch.process import ROOT

TOOLS = Path(sys.executable).parent
# `makemigrations` warns that it cannot compare with a database: none runs here, and none is needed.
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("format", ("ruff", "format", "--check", "--quiet", ".")),
    ("lint", ("ruff", "check", "--quiet", ".")),
    ("types", ("mypy",)),
    ("imports", ("lint-imports", "--no-logo")),
    (
        "migrations",
        ("python", "-W", "ignore::RuntimeWarning", "manage.py", "makemigrations", "--check", "--dry-run"),
    ),
    ("tidy", ("pytest", "-q", "tests/tidy")),
)


def main(argv: Sequence[str]) -> int:
    """Run every step, or those that are named; exit status 1 when any fails."""
    chosen = [step for step in STEPS if not argv or step[0] in argv]
    return 1 if [name for name, command in chosen if not _passes(name, command)] else 0


def _passes(name: str, command: Sequence[str]) -> bool:
    begun = time.monotonic()
    print(f"{name} ...", flush=True)
    result = subprocess.run([TOOLS / command[0], *command[1:]], cwd=ROOT, check=False)
    state = "ok" if result.returncode == 0 else "FAILED"
    print(f"{name}: {state} ({time.monotonic() - begun:.1f} s)", flush=True)
    return result.returncode == 0
