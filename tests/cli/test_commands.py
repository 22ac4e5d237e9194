"""The command line against a real node: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import combinations, count
from pathlib import Path

import pytest

from launch.process import ManagedProcess
from scalable.cli.command import command as root
from scalable.cli.session import find_token
from tests.cli.conftest import Command
from tests.processes import LiveNode, token

_numbers = count(1)
ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name("scalable-topics")
NO_FILE = "/dev/null/file"
"""A path that not even root can make a file at."""


@pytest.fixture
def topic(command: Command) -> str:
    name = f"public/default/cli-{next(_numbers)}"
    assert command("create", name).status == 0
    assert command("policies", "set", name, "enabled=false").status == 0
    return name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_console_script_completes_in_each_shell(shell: str) -> None:
    environment = {**os.environ, "COMP_WORDS": "scalable-topics pol", "COMP_CWORD": "1"}
    if shell == "fish":  # it names the word that is begun
        environment["COMP_CWORD"] = "pol"
    printed = [
        subprocess.run(
            [SCRIPT],
            env={**environment, "_SCALABLE_TOPICS_COMPLETE": f"{shell}_{what}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for what in ("source", "complete")
    ]
    assert "_SCALABLE_TOPICS_COMPLETE" in printed[0]
    assert "policies" in printed[1]


def test_the_console_script_is_installed() -> None:
    version = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout.startswith("scalable-topics")


@pytest.mark.parametrize("name", sorted(root.commands))
def test_each_command_explains_itself(offline_command: Command, name: str) -> None:
    result = offline_command(name, "--help")
    assert result.status == 0
    assert "Usage: scalable-topics" in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "public"),
        ("list", "public/default", "-p", "novalue"),
        ("list", "public/default", "--limit", "0"),
        ("create", "public/default"),
        ("create", "public/default/../x"),
        ("create", "public/default/x", "-p", "a=1", "-p", "a=2"),
        ("seek", "public/default/x", "-s", "sub"),
        ("seek", "public/default/x", "-s", "sub", "-t", "yesterday"),
        ("seek", "public/default/x", "-s", "sub", "-t", "2026-01-01T00:00:00"),
        ("seek", "public/default/x", "-s", "sub", "--checkpoint", "earliest"),
        ("merge-segments", "public/default/x", "--segment-id-1", "0"),
        ("produce", "public/default/x"),
        ("policies", "set", "public/default/x"),
        ("policies", "set", "public/default/x", "--json", "[1]"),
        ("policies", "set", "public/default/x", "--json", "{"),
        ("policies", "set", "public/default/x", "--json", '{"maxSegments": NaN}'),
        ("policies", "set", "public/default/x", "maxSegments=8", "maxSegments=9"),
        ("consume", "public/default/x", "-s", "s", "--type", "checkpoint", "--no-ack"),
        ("consume", "-s", "s"),
        ("consume", "public/default/x", "-s", "s", "--namespace", "public/default"),
        ("consume", "public/default/x", "-s", "s", "-p", "a=b"),
        ("consume", "-s", "s", "--namespace", "public/default", "--type", "key-shared"),
        ("watch-topics", "public"),
        ("lifetimes", "set", "public/default", "--retention", "1d", "--forever"),
        ("lifetimes", "set", "public/default/x"),
        ("lifetimes", "get", "public"),
        ("properties", "set", "public/default/x"),
        ("properties", "set", "public/default/x", "a=b", "--clear"),
        ("tenants", "update", "acme"),
        ("tenants", "update", "acme", "-r", "boss", "--no-admin-roles"),
        ("permissions", "grant", "public/default/x/y", "role", "consume"),
        ("permissions", "grant", "public", "role"),
        ("permissions", "grant", "public", "role", "everything"),
        ("tokens", "issue", "worker", "--ttl", "soon"),
        ("tokens", "issue", "worker", "--file", NO_FILE),
        ("audit", "list", "--from", "yesterday"),
        ("audit", "export", "--file", NO_FILE),
        ("locate", "public/default/x", "key", "--at", "2026-01-01T00:00:00"),
        ("--config", NO_FILE, "list", "public/default"),
        ("--token-file", NO_FILE, "list", "public/default"),
        *(
            ("--url", url, "list", "public/default")
            for url in (
                "nonsense",
                "ftp://a",
                "http://",
                "http://[",
                "http://a:x",
                "http://a:99999",
                "http://a,b",
                "http://me:pa55word@a",
                "http://a?b",
                "http://a#b",
            )
        ),
        *(("--token", token, "list", "public/default") for token in ("a\nb", "a b", "\u00e9", "a\x00")),
        *(
            ("--timeout", seconds, "list", "public/default")
            for seconds in ("-1", "0", "nan", "inf", "1e12", "soon")
        ),
        ("no-such-command",),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    offline_command: Command, arguments: tuple[str, ...]
) -> None:
    result = offline_command(*arguments)
    assert result.status == 2, result
    assert not result.out
    for_scripts = offline_command("-o", "json", *arguments)
    assert (for_scripts.status, for_scripts.out, for_scripts.error["code"]) == (2, "", "usage")
    assert set(for_scripts.error) == {"code", "reason", "fields", "hint"}
    assert for_scripts.error["reason"]
    assert "pa55word" not in result.err + for_scripts.err


@pytest.mark.parametrize("words", [("-ojson",), ("-o", "json"), ("--output", "json"), ("--output=json",)])
def test_scripts_may_ask_for_json_in_each_spelling(offline_command: Command, words: tuple[str, ...]) -> None:
    assert offline_command(*words, "no-such-command").error["code"] == "usage"
    assert offline_command(*words, "list", "public/default").error["code"] == "unreachable"


def test_errors_are_those_of_rest_with_a_status_of_their_own(command: Command, topic: str) -> None:
    refused = command("-o", "json", "create", topic)
    assert (refused.status, refused.error["code"]) == (1, "topic_exists")
    assert set(refused.error) == {"code", "reason", "fields", "hint"}
    absent = command("get-metadata", "public/default/absent")
    assert absent.status == 1
    assert "[topic_not_found]" in absent.err
    no_token = command("--token", "x", "-o", "json", "list", "public/default")
    assert (no_token.status, no_token.error["code"]) == (4, "unauthenticated")
    nobody = command("--url", "http://127.0.0.1:1", "-o", "json", "list", "public/default")
    assert (nobody.status, nobody.error["code"]) == (3, "unreachable")


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "public/default/quiet", "-m", "a"),
        ("consume", "--namespace", "public/default", "-s", "quiet"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_error_for_scripts_stands_alone(command: Command, arguments: tuple[str, ...]) -> None:
    """What the client logs about it does not stand beside it; only another process shows that."""
    command("create", "public/default/quiet")
    command("permissions", "grant", "public/default", "onlooker", "lookup")
    environment = {**os.environ, "SCALABLE_TOKEN": token("onlooker")}
    run = [sys.executable, "-m", "scalable.cli", "-o", "json", *arguments]
    done = subprocess.run(
        run, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, json.loads(done.stderr)["code"]) == (4, "forbidden")


def test_nothing_is_deleted_without_a_yes(
    command: Command, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert command("delete", topic).status == 130
    assert command("get-metadata", topic).status == 0
    assert command("delete", topic, "--yes").status == 0
    assert command("get-metadata", topic).status == 1


def test_a_config_file_says_where_and_who(
    command: Command, live_node: LiveNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SCALABLE_TOKEN")
    monkeypatch.delenv("SCALABLE_URL")
    config = tmp_path / "config.toml"
    config.write_text(f'url = "{live_node.url}"\ntoken = "{live_node.admin_token}"\n')
    config.chmod(0o644)
    open_to_all = command("--config", str(config), "list", "public/default")
    assert (open_to_all.status, "chmod 600" in open_to_all.err) == (2, True)
    config.chmod(0o600)
    assert command("--config", str(config), "list", "public/default").status == 0
    config.write_text('unknown = "1"\n')
    assert command("--config", str(config), "list", "public/default").status == 2


class Where:
    """The places that a token may come from, each with one of its own, which no node is asked about."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._environment = folder, monkeypatch
        monkeypatch.delenv("SCALABLE_TOKEN", raising=False)
        monkeypatch.delenv("SCALABLE_TOKEN_FILE", raising=False)

    def file(self, name: str, content: str = "", *, mode: int = 0o600) -> str:
        path = self._folder / name
        path.write_text(content or f"{name}\n")
        path.chmod(mode)
        return str(path)

    def given(self, place: str) -> tuple[str | None, str | None, dict[str, str]]:
        """Put a token there, and give what `find_token` is told of it."""
        if place == "SCALABLE_TOKEN":
            self._environment.setenv(place, place)
        if place == "SCALABLE_TOKEN_FILE":
            self._environment.setenv(place, self.file(place))
        return (
            place if place == "--token" else None,
            self.file(place) if place == "--token-file" else None,
            {"token": place} if place == "token" else {},
        )


PLACES = ("--token", "--token-file", "SCALABLE_TOKEN", "SCALABLE_TOKEN_FILE", "token")


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in combinations(PLACES, 2) if pair != ("--token", "--token-file")]
)
def test_an_option_comes_before_the_environment_and_that_before_a_file_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    where = Where(tmp_path, monkeypatch)
    token, token_file, config = (
        one or other for one, other in zip(where.given(first), where.given(second), strict=True)
    )
    assert find_token(token, token_file, config) == first  # type: ignore[arg-type]


def test_two_options_that_name_a_token_are_refused(offline_command: Command) -> None:
    refused = offline_command("--token", "a", "--token-file", "b", "list", "public/default")
    assert (refused.status, "either --token or --token-file" in refused.err) == (2, True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
@pytest.mark.parametrize("place", ["--token-file", "SCALABLE_TOKEN_FILE", "token_file", "token"])
def test_a_file_that_holds_a_token_is_refused_while_others_may_read_it(
    offline_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, mode: int
) -> None:
    where = Where(tmp_path, monkeypatch)
    is_config = place == "token"
    file = where.file("held", 'token = "t"\n' if is_config else "t\n", mode=mode)
    settings = file if is_config else where.file("settings", f'token_file = "{file}"\n')
    options = {"--token-file": ("--token-file", file), "SCALABLE_TOKEN_FILE": ()}
    if place == "SCALABLE_TOKEN_FILE":
        monkeypatch.setenv(place, file)
    arguments = (*options.get(place, ("--config", settings)), "list", "public/default")
    refused = offline_command(*arguments)
    assert (refused.status, f"chmod 600 {file}" in refused.err) == (2, True)
    Path(file).chmod(0o600)
    assert offline_command(*arguments).status == 3  # no node is there


def test_a_token_comes_through_a_pipe(offline_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"token\n")
    os.close(writing)
    assert find_token(None, f"/dev/fd/{reading}", {}) == "token"
    os.close(reading)


def test_lines_are_sent_and_read_back(
    command: Command, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "lines"
    source.write_text("".join(f"key-{n % 3}:value {n}\n" for n in range(2_500)))
    sent = command("-o", "json", "produce", topic, "-f", str(source), "--key-separator", ":")
    assert sent.body["sent"] == 2_500
    read = command("-o", "json", "consume", topic, "-s", "reader", "-n", "2500")
    messages = [json.loads(line) for line in read.out.splitlines()]
    assert [each["value"] for each in messages if each["key"] == "key-0"] == [
        f"value {n}" for n in range(0, 2_500, 3)
    ]
    left = command("-o", "json", "subscriptions", "get", topic, "-s", "reader")
    assert left.body["msgBacklog"] == 0


def test_a_terminal_shows_how_much_of_a_file_is_sent(command: Command, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("one\ntwo\n")
    leader, terminal = os.openpty()
    run = [sys.executable, "-m", "scalable.cli", "produce", topic, "-f", str(source), "--repeat", "3"]
    with ThreadPoolExecutor(1) as threads:
        shown = threads.submit(_read_to_the_end, leader)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        subprocess.run(run, env=environment, cwd=ROOT, stderr=terminal, timeout=120, check=True)
        os.close(terminal)
        assert "6/6" in shown.result(60)
    left = command("-o", "json", "consume", topic, "-s", "reader", "-n", "6")
    assert [json.loads(line)["value"] for line in left.out.splitlines()] == ["one"] * 3 + ["two"] * 3


def _read_to_the_end(leader: int) -> str:
    """What a terminal showed until its last user closed it."""
    shown = b""
    with suppress(OSError):
        while chunk := os.read(leader, 4096):
            shown += chunk
    os.close(leader)
    return shown.decode()


def test_json_lines_carry_keys_and_properties(command: Command, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text('{"key": "k", "value": {"a": 1}, "properties": {"p": "q"}}\n{"value": "w"}\n')
    assert command("produce", topic, "-f", str(source), "--json-lines", "-k", "other").status == 0
    read = command("-o", "json", "consume", topic, "-s", "reader", "-n", "2")
    first, second = (json.loads(line) for line in read.out.splitlines())
    assert (first["key"], json.loads(first["value"]), first["properties"]) == ("k", {"a": 1}, {"p": "q"})
    assert (second["key"], second["value"]) == ("other", "w")
    source.write_text('{"value": "sent"}\nnothing\n')
    refused = command("produce", topic, "-f", str(source), "--json-lines")
    assert (refused.status, "line 2" in refused.err) == (2, True)


@pytest.mark.parametrize("kind", ["stream", "key-shared", "queue", "checkpoint"])
def test_each_type_of_consumer_reads_once(command: Command, topic: str, kind: str) -> None:
    command("produce", topic, "-m", "a", "-m", "b", "-k", "k")
    read = command("consume", topic, "-s", "group", "--type", kind, "-n", "2")
    assert [line.split("\t")[2] for line in read.out.splitlines()] == ["a", "b"]
    again = command("consume", topic, "-s", "group", "--type", kind, "--idle", "1s")
    assert (again.status, again.out) == (0, "")


def test_what_is_not_acknowledged_comes_again(command: Command, topic: str) -> None:
    command("produce", topic, "-m", "a")
    for _ in range(2):
        read = command("consume", topic, "-s", "s", "-n", "1", "--no-ack", "--name", "one")
        assert read.out.endswith("a\n")


def test_a_watch_follows_a_split(
    command: Command, topic: str, live_node: LiveNode, celery_worker_process: ManagedProcess
) -> None:
    environment = {**os.environ, "SCALABLE_URL": live_node.url, "SCALABLE_TOKEN": live_node.admin_token}
    command_line = [sys.executable, "-m", "scalable.cli", "-o", "json", "watch", topic]
    with subprocess.Popen(
        command_line, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        try:
            assert json.loads(watch.stdout.readline())["epoch"] == 0
            assert command("split-segment", topic, "-s", "0").status == 0
            layout = next(body for body in map(json.loads, watch.stdout) if body["epoch"] >= 1)
            assert {each["segmentId"] for each in layout["segments"]} >= {1, 2}
        finally:
            watch.terminate()


def test_reshaping_by_hand(command: Command, topic: str, celery_worker_process: ManagedProcess) -> None:
    assert command("split-segment", topic, "-s", "0", "--boundary", "100", "--boundary", "200").status == 0
    stale = command("-o", "json", "split-segment", topic, "-s", "1", "--expected-epoch", "0")
    assert (stale.status, stale.error["code"]) == (1, "epoch_moved")
    assert command("merge-segments", topic, "--segment-id-1", "1", "--segment-id-2", "2").status == 0
    started = command("-o", "json", "rebucket-segment", topic, "-s", "4", "--buckets", "8", "--no-wait")
    operation = command("-o", "json", "operations", "get", topic, started.body["operationId"])
    assert operation.body["kind"] == "REBUCKET"
    listed = command("-o", "json", "operations", "list", topic)
    assert [each["kind"] for each in listed.body][-2:] == ["MERGE", "SPLIT"]


def test_namespaces_come_and_go(command: Command) -> None:
    assert command("namespaces", "create", "public/cli").status == 0
    assert command("lifetimes", "set", "public/cli", "--retention", "7d").status == 0
    assert command("create", "public/cli/t").status == 0
    refused = command("-o", "json", "namespaces", "delete", "public/cli", "--yes")
    assert refused.error["code"] == "namespace_not_empty"
    assert command("namespaces", "delete", "public/cli", "--yes", "--force").status == 0
