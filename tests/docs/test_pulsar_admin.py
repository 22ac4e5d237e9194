"""The examples of pulsar-admin in docs/rest.md, as curl, answer what the table says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.process import ManagedProcess
from tests.processes import LiveNode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rest.md"
HEADING = "## pulsar-admin, translated"
EXAMPLE = re.compile(r"^\| (?P<title>.+?) \| `(?P<curl>curl .+)` \| (?P<status>\d{3}) \|$", re.MULTILINE)
COMMANDS = (
    *("create", "list", "get-metadata", "stats", "segment-stats", "delete", "migrate", "seek"),
    *("clear-backlog", "split-segment", "merge-segments"),
)


def examples() -> list[tuple[str, str, str]]:
    """Title, command and status of each row of the table."""
    section = PAGE.read_text().split(HEADING)[1].split("\n## ")[0]
    found = [(match["title"], match["curl"], match["status"]) for match in EXAMPLE.finditer(section)]
    assert len(found) == section.count("curl -")
    return found


def test_every_command_of_scalable_topics_is_translated() -> None:
    titles = [title for title, _, _ in examples()]
    for command in COMMANDS:
        assert any(f"scalable-topics {command} " in title for title in titles), command


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are lines of curl")
def test_the_examples_answer_as_documented(
    live_node: LiveNode, celery_worker_process: ManagedProcess
) -> None:
    environment = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "ADMIN": f"{live_node.url}/admin/v2",
        "AUTH": f"Authorization: Bearer {live_node.admin_token}",
    }
    for title, curl, status in examples():
        command = curl.replace("curl ", "curl -sS --noproxy '*' -w '\\n%{http_code}' ", 1)
        ran = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        body, _, answered = ran.stdout.rpartition("\n")
        assert answered == status, (title, body, ran.stderr)
