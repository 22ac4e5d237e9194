"""`consume` that is ended by Ctrl-C, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.cli.conftest import Command
from tests.processes import LiveNode

ROOT = Path(__file__).parents[2]
KINDS = ("stream", "key-shared", "queue", "checkpoint")


def values(output: str) -> list[str]:
    return [line.split("\t")[2] for line in output.splitlines()]


def read_until_interrupted(
    node: LiveNode, *words: str, before: Callable[[], object] = lambda: None
) -> tuple[int, str, str]:
    """Interrupt a command when it has printed a line, and give its status, output and errors."""
    environment = {**os.environ, "SCALABLE_URL": node.url, "SCALABLE_TOKEN": node.admin_token}
    command = [sys.executable, "-m", "scalable.cli", *words]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        before()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    return process.returncode, (first + rest).decode(), errors.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_printed_before_ctrl_c_does_not_come_again_and_all_else_does(
    command: Command, live_node: LiveNode, tmp_path: Path, kind: str
) -> None:
    topic = f"topic://public/default/interrupted-{kind}"
    sent = [str(number) for number in range(2_000)]
    (lines := tmp_path / "lines").write_text("\n".join(sent))
    assert command("create", topic).status == 0
    assert command("policies", "set", topic, "enabled=false").status == 0
    assert command("produce", topic, "-k", "k", "-f", str(lines)).status == 0
    words = ("consume", topic, "-s", "group", "--type", kind, "--name", "one")
    status, printed, errors = read_until_interrupted(live_node, *words)
    assert (status, "Traceback" in errors) == (130, False)
    again = command(*words, "--idle", "1s")
    assert again.status == 0
    assert sorted(values(printed) + values(again.out), key=int) == sent


def test_ctrl_c_ends_consumers_that_no_node_answers(command: Command, live_node: LiveNode) -> None:
    topic = "topic://public/default/alone"
    assert command("create", topic).status == 0
    assert command("produce", topic, "-k", "k", "-m", "one").status == 0
    all_printed = Barrier(len(KINDS), action=live_node.process.kill_group)

    def interrupted(kind: str) -> tuple[int, str, str]:
        words = ("consume", topic, "-s", f"group-{kind}", "--type", kind)
        return read_until_interrupted(live_node, *words, before=lambda: all_printed.wait(60))

    with ThreadPoolExecutor(len(KINDS)) as pool:
        ends = dict(zip(KINDS, pool.map(interrupted, KINDS), strict=True))
    assert {kind: (status, values(printed)) for kind, (status, printed, _) in ends.items()} == {
        **dict.fromkeys(KINDS, (130, ["one"])),
        "checkpoint": (3, ["one"]),
    }
    assert "what was printed last will come again" in ends["checkpoint"][2]
    assert not any("Traceback" in errors for _, _, errors in ends.values())
