"""What nests too deep is refused with a sentence, wherever the command line reads what somebody wrote."""

import base64
from pathlib import Path

import pytest

from tests.cli.conftest import Command

TOPIC = "public/default/nested"
DEPTHS = (101, 940, 960, 980, 1_000, 60_000)
"""More than may be; what Python reads and cannot write, or not from everywhere; what it cannot read."""


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "words",
    [
        ("policies", "set", TOPIC, "maxSegments={nested}"),
        ("policies", "set", TOPIC, "--json", '{"maxSegments": {nested}}'),
        ("what-now", TOPIC, "maxSegments={nested}"),
        ("jobs", "policy-replay", "--policy", "{file}"),
        ("seek", TOPIC, "-s", "reader", "--checkpoint", '{"version": 1, "positions": {nested}}'),
        ("tokens", "rotate", "{token}"),
        ("--config", "{config}", "list", "public/default"),
    ],
    ids=lambda words: words[0],
)
def test_what_nests_too_deep_is_refused(
    offline_command: Command, tmp_path: Path, words: tuple[str, ...], depth: int
) -> None:
    text = nested(depth)
    claims = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    files = {"file": text, "token": f"a.{claims}.c", "config": f"url = {text}"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        words = tuple(word.replace(f"{{{name}}}", str(tmp_path / name)) for word in words)
    words = tuple(word.replace("{nested}", text) for word in words)
    refused = offline_command("-o", "json", *words)
    assert (refused.status, refused.error["code"]) == (2, "usage")
    assert offline_command(*words).err.startswith(("Error:", "Usage:"))


@pytest.mark.parametrize("depth", [1_000, 60_000])
def test_a_line_that_nests_too_deep_is_named(command: Command, tmp_path: Path, depth: int) -> None:
    command("create", TOPIC)
    source = tmp_path / "lines"
    source.write_text(f'{{"value": "a"}}\n{{"value": {nested(depth)}}}\n')
    refused = command("-o", "json", "produce", TOPIC, "-f", str(source), "--json-lines")
    assert (refused.status, refused.error["code"], "line 2" in refused.error["reason"]) == (2, "usage", True)


def test_a_line_as_deep_as_python_reads_is_sent_or_named(command: Command, tmp_path: Path) -> None:
    command("create", TOPIC)
    source = tmp_path / "lines"
    for depth in range(900, 1_000, 2):
        source.write_text(f'{{"value": {nested(depth)}}}\n')
        sent = command("produce", TOPIC, "-f", str(source), "--json-lines")
        assert sent.status == 0 or (sent.status, "line 1" in sent.err) == (2, True)
