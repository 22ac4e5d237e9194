"""Every example of `docs/client.md`, run in its order against a real node, prints what the page says."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from launch.process import ManagedProcess
from tests.processes import LiveNode

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(PAGE.read_text())]


def test_every_example_prints_what_the_page_says(
    live_node: LiveNode, celery_worker_process: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALABLE_URL", live_node.url)
    monkeypatch.setenv("SCALABLE_TOKEN", live_node.admin_token)
    namespace: dict[str, Any] = {}
    printed, compared = "", 0
    for language, text in blocks():
        if language == "text":
            assert printed == text
            compared += 1
        else:
            output = io.StringIO()
            with redirect_stdout(output):
                exec(compile(text, str(PAGE), "exec"), namespace)
            printed = output.getvalue()
    assert compared >= 6
