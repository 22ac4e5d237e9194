"""What is no text is sent as it is where bytes are wanted, and refused with a line elsewhere."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scalable.cli.produce import WINDOW, WINDOW_BYTES, Outgoing, _window
from tests.cli.conftest import Command
from tests.cli.test_commands import ROOT

TOPIC = "public/default/bytes"
HALF = "\udcff"  # how Python shows a byte of the command line that is no UTF-8


@pytest.mark.parametrize(
    "words",
    [
        ("produce", TOPIC, "-m", HALF),
        ("produce", TOPIC, "-m", "a", "-k", HALF),
        ("create", TOPIC, "-p", f"a={HALF}"),
        ("list", HALF),
        (HALF,),
    ],
)
def test_words_that_are_no_text_are_refused(offline_command: Command, words: tuple[str, ...]) -> None:
    refused = offline_command("-o", "json", *words)
    assert (refused.status, refused.error["code"], "UTF-8" in refused.error["reason"]) == (2, "usage", True)
    assert offline_command(*words).err.startswith("Error: word")


def test_lines_that_are_no_text_are_values_as_they_are(command: Command, tmp_path: Path) -> None:
    command("create", TOPIC)
    source = tmp_path / "lines"
    source.write_bytes(b"k:a\r\nk:\xff\xfe\nk:\xc3\xa9:b\n")
    assert command("produce", TOPIC, "-f", str(source), "--key-separator", ":").status == 0
    read = command("-o", "json", "consume", TOPIC, "-s", "reader", "-n", "3")
    messages = [json.loads(line) for line in read.out.splitlines()]
    values = [
        base64.b64decode(each["valueBase64"]) if "valueBase64" in each else each["value"].encode()
        for each in messages
    ]
    assert values == [b"a", b"\xff\xfe", b"\xc3\xa9:b"]


def test_one_end_of_line_is_taken_off_and_no_more(command: Command, tmp_path: Path) -> None:
    topic = "public/default/ends"
    command("create", topic)
    source = tmp_path / "lines"
    lines = {b"a\n": "a", b"b\r\n": "b", b"c\r\r\n": "c\r", b"d\r\r\r\n": "d\r\r", b"\r\n": "", b"e": "e"}
    source.write_bytes(b"".join(lines))
    assert command("produce", topic, "-f", str(source), "-k", "one").status == 0
    read = command("-o", "json", "consume", topic, "-s", "ends", "-n", str(len(lines)))
    assert [json.loads(line)["value"] for line in read.out.splitlines()] == list(lines.values())


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (b"\xff:a", ("--key-separator", ":")),
        (b'{"value": "\xff"}', ("--json-lines",)),
        (b'{"value": "\\ud800"}', ("--json-lines",)),
        (b'{"value": "a", "key": "\\ud800"}', ("--json-lines",)),
        (b'{"value": "a", "properties": {"\\ud800": "a"}}', ("--json-lines",)),
        (b'{"value": "a", "properties": {"a": "\\udfff"}}', ("--json-lines",)),
    ],
)
def test_a_line_that_must_be_text_and_is_none_is_named(
    command: Command, tmp_path: Path, line: bytes, options: tuple[str, ...]
) -> None:
    command("create", TOPIC)
    source = tmp_path / "lines"
    source.write_bytes(b'{"value": "k:a"}\n' + line + b"\n")
    refused = command("-o", "json", "produce", TOPIC, "-f", str(source), *options)
    assert (refused.status, refused.error["code"], "line 2" in refused.error["reason"]) == (2, "usage", True)


def test_an_endless_line_is_refused_and_not_read(command: Command) -> None:
    """A limit on the process's memory tells; what comes before it is not sent twice."""
    command("create", TOPIC)
    limited = 'ulimit -v 1500000; exec "$0" -m scalable.cli -o json produce "$1" -f /dev/zero'
    run = ["sh", "-c", limited, sys.executable, TOPIC]
    refused = subprocess.run(run, cwd=ROOT, capture_output=True, timeout=120, check=False)
    told = json.loads(refused.stderr.splitlines()[-1])
    assert (refused.returncode, told["code"]) == (2, "usage"), refused.stderr[-500:]
    assert "line 1 is longer than 67,108,864 bytes" in told["reason"]


def test_few_large_lines_are_in_work_at_once() -> None:
    half = WINDOW_BYTES // 2
    small = Outgoing(None, b"")
    for large in (
        Outgoing(None, bytes(half)),
        Outgoing("k" * half, b""),
        Outgoing(None, b"", {"p": "v" * half}),
    ):
        left = iter([*[small] * WINDOW, large, small, large, large])
        assert [len(_window(left)) for _ in range(4)] == [WINDOW, 3, 1, 0]
