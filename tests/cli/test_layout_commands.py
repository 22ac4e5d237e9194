"""The command line about layouts, settings and namespaces that are followed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest

from launch.process import ManagedProcess
from tests.cli.conftest import Command
from tests.processes import LiveNode, ProcessFactory, token

_numbers = count(1)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def topic(command: Command) -> str:
    name = f"public/default/layout-{next(_numbers)}"
    assert command("create", name, "-s", "2").status == 0
    assert command("policies", "set", name, "enabled=false").status == 0
    return name


@contextmanager
def running(live_node: LiveNode, *arguments: str) -> Iterator[IO[str]]:
    """Run the command in a process of its own and give what it prints."""
    environment = {**os.environ, "SCALABLE_URL": live_node.url, "SCALABLE_TOKEN": live_node.admin_token}
    command = [sys.executable, "-m", "scalable.cli", "-o", "json", *arguments]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()


def _body(command: Command, *arguments: str) -> Any:
    result = command("-o", "json", *arguments)
    assert result.status == 0, result
    return result.body


def test_previews_change_nothing(command: Command, topic: str) -> None:
    before = _body(command, "get-metadata", topic)
    split = _body(command, "split-segment", topic, "-s", "0", "--boundary", "100", "--preview")
    assert [each["hashRange"]["start"] for each in split["children"]] == [0, 100]
    merge = _body(command, "merge-segments", topic, "-s", "0", "-s", "1", "--preview")
    assert (merge["kind"], len(merge["children"])) == ("MERGE", 1)
    rebucket = _body(command, "rebucket-segment", topic, "-s", "1", "--buckets", "4", "--preview")
    assert len(rebucket["children"][0]["entryBucketSplits"]) == 3
    assert _body(command, "get-metadata", topic) == before
    assert "0000-0063" in command("split-segment", topic, "-s", "0", "--boundary", "100", "--preview").out
    stale = command("-o", "json", "merge-segments", topic, "-s", "0", "-s", "1", "--preview",
                    "--expected-epoch", "7")  # fmt: skip
    assert stale.error["code"] == "epoch_moved"


def test_a_key_is_found_now_and_then(
    command: Command, topic: str, celery_worker_process: ManagedProcess
) -> None:
    command("subscriptions", "create", topic, "-s", "reader")
    first = _body(command, "locate", topic, "key")["segment"]["segmentId"]
    created = _body(command, "get-metadata", topic)["createdAtMs"]
    assert command("split-segment", topic, "-s", str(first)).status == 0
    located = _body(command, "locate", topic, "key")
    assert located["segment"]["segmentId"] > 1
    assert located["lineage"][0]["segmentId"] == first
    assert set(located["subscriptions"]) == {"reader"}
    assert "reader" in command("locate", topic, "key").out
    long_ago = _body(command, "locate", topic, "key", "--at", "2020-01-01T00:00:00Z")
    assert long_ago["segment"] is None
    assert created > long_ago["atTimeMs"]
    lineage = _body(command, "lineage", topic)
    assert {(each["parentId"], each["childId"]) for each in lineage["edges"]} == {(first, 2), (first, 3)}
    assert command("lineage", topic).out.count("ACTIVE") == 3
    assert _body(command, "pruned-segments", topic) == []


def test_segments_and_loads_are_looked_at(command: Command, topic: str) -> None:
    command("produce", topic, "-m", "a", "-k", "key")
    segment = str(_body(command, "locate", topic, "key")["segment"]["segmentId"])
    assert _body(command, "segment-stats", topic, "-s", segment)["endOffset"] == 1
    name = _body(command, "segment-stats", topic, "-s", segment)["name"]
    assert _body(command, "segment-stats", name)["endOffset"] == 1
    former = command("-o", "json", "segment-stats", name.replace("ffff", "fffe").replace("7fff", "7ffe"))
    assert (former.status, former.error["code"]) == (1, "segment_not_found")
    for arguments in ((topic,), (name, "-s", segment), ("segment://public/default/x",)):
        assert command("segment-stats", *arguments).status == 2
    absent = command("-o", "json", "segment-stats", topic, "-s", "77")
    assert (absent.status, absent.error["code"]) == (1, "segment_not_found")
    assert _body(command, "positions", topic)["segments"]
    assert _body(command, "loads", topic)["known"] in (True, False)
    assert command("loads", topic).status == 0
    assert _body(command, "tiles", topic, "--last", "10m") == []


@pytest.mark.parametrize("scheme", ["", "topic://", "persistent://"])
def test_what_is_ordinary_cannot_be_migrated_yet(command: Command, topic: str, scheme: str) -> None:
    refused = command("-o", "json", "migrate", scheme + topic)
    assert (refused.status, refused.error["code"]) == (1, "not_supported")


@pytest.mark.parametrize(
    "schemes", ["persistent://topic://", "persistent://persistent://", "topic://persistent://"]
)
def test_a_name_has_one_scheme(command: Command, topic: str, schemes: str) -> None:
    refused = command("-o", "json", "migrate", schemes + topic)
    assert refused.status == 2


def test_an_aborted_operation_is_done_again(command: Command, topic: str) -> None:
    started = _body(command, "split-segment", topic, "-s", "0", "--no-wait")["operationId"]
    assert _body(command, "operations", "abort", topic, started)["outcome"] == "ABORTED"
    again = _body(command, "operations", "retry", topic, started, "--no-wait")
    assert again["kind"] == "SPLIT"
    assert again["operationId"] != started
    assert _body(command, "operations", "abort", topic, again["operationId"])["outcome"] == "ABORTED"
    assert _body(command, "operations", "list", topic, "--unfinished") == []


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "many", ""])
@pytest.mark.parametrize("words", [("policies", "set"), ("what-now",)], ids=" ".join)
def test_a_policy_of_what_is_no_number_is_refused(
    command: Command, topic: str, words: tuple[str, ...], value: str
) -> None:
    """Also of numbers that JSON has no sign for, which no request could carry."""
    refused = command(*words, topic, f"splitMsgRateInThreshold={value}")
    assert refused.status == 1
    assert "[policy_unreadable]" in refused.err


def test_settings_of_a_topic_and_of_its_namespace(command: Command, topic: str) -> None:
    namespace = "public/default"
    assert command("policies", "set", namespace, "maxSegments=9").status == 0
    assert _body(command, "policies", "get", namespace) == {"maxSegments": 9}
    assert _body(command, "policies", "effective", topic)["policy"]["maxSegments"] == 9
    assert command("policies", "set", namespace, "minSegments=2", "--merge").status == 0
    assert _body(command, "policies", "get", namespace) == {"maxSegments": 9, "minSegments": 2}
    assert command("policies", "remove", namespace).status == 0
    assert _body(command, "policies", "get", namespace) == {}
    for place in (namespace, topic):
        assert command("lifetimes", "set", place, "--retention", "1h").status == 0
        assert _body(command, "lifetimes", "get", place)["retentionSeconds"] == 3_600
        assert command("lifetimes", "remove", place).status == 0
        assert _body(command, "lifetimes", "get", place)["retentionSeconds"] is None
    assert command("lifetimes", "set", topic, "--forever").status == 0
    assert _body(command, "lifetimes", "get", topic)["effective"]["retentionSeconds"]["value"] == -1
    assert _body(command, "namespaces", "get", namespace)


@pytest.mark.parametrize(
    "change",
    [("delete", "--yes"), ("policies", "set", "maxSegments=8"), ("policies", "remove"),
     ("properties", "set", "team=sales"), ("split-segment", "-s", "0"),
     ("merge-segments", "-s", "0", "-s", "1"), ("rebucket-segment", "-s", "0", "--buckets", "8")],
)  # fmt: skip
def test_a_change_of_what_has_moved_on_is_refused(
    command: Command, topic: str, change: tuple[str, ...]
) -> None:
    before = _body(command, "get-metadata", topic)
    words = 2 if change[0] in {"policies", "properties"} else 1
    stale = command("-o", "json", *change[:words], topic, *change[words:], "--expected-epoch", "7")
    assert (stale.status, stale.error["code"]) == (1, "epoch_moved")
    assert _body(command, "get-metadata", topic) == before


def test_a_namespace_has_no_epoch(offline_command: Command) -> None:
    refused = offline_command("--token", "t", "policies", "remove", "public/default", "--expected-epoch", "1")
    assert refused.status == 2


def test_properties_are_replaced_and_found_by(command: Command, topic: str) -> None:
    assert command("properties", "set", topic, "team=sales", "tier=1").status == 0
    assert _body(command, "properties", "get", topic) == {"team": "sales", "tier": "1"}
    name = topic.rpartition("/")[2]
    found = _body(command, "find", "public/default", "-p", "team=sales", "--sort", "created")
    assert [each["name"] for each in found["topics"]] == [name]
    assert name in command("find", "public/default", "--search", name.upper()).out
    stale = command("-o", "json", "properties", "set", topic, "--clear", "--expected-epoch", "7")
    assert (stale.status, stale.error["code"]) == (1, "epoch_moved")
    assert command("properties", "set", topic, "--clear").status == 0
    assert _body(command, "properties", "get", topic) == {}


def test_the_nodes_are_told(command: Command, topic: str) -> None:
    command("produce", topic, "-m", "a")
    node = _body(command, "nodes", "list")[0]
    assert node["alive"]
    assert isinstance(_body(command, "nodes", "topics", node["nodeId"]), list)
    absent = command("-o", "json", "nodes", "topics", "00000000-0000-0000-0000-000000000000")
    assert (absent.status, absent.error["code"]) == (1, "node_not_found")
    assert "scalable_node_ready" in command("nodes", "metrics").out


def test_a_namespace_is_followed(command: Command, live_node: LiveNode) -> None:
    command("namespaces", "create", "public/followed")
    command("create", "public/followed/a", "-p", "team=sales")
    command("create", "public/followed/other")
    with running(live_node, "watch-topics", "public/followed", "-p", "team=sales") as printed:
        first = json.loads(printed.readline())
        assert first == {"removed": [], "added": ["topic://public/followed/a"]}
        command("create", "public/followed/b", "-p", "team=sales")
        assert json.loads(printed.readline()) == {"removed": [], "added": ["topic://public/followed/b"]}
        command("properties", "set", "public/followed/a", "team=legal")
        assert json.loads(printed.readline()) == {"removed": ["topic://public/followed/a"], "added": []}
    lines = command("watch-topics", "public/followed", "-p", "team=sales", "--for", "1s")
    assert (lines.status, lines.out) == (0, "+ topic://public/followed/b\n")
    absent = command("-o", "json", "watch-topics", "public/nowhere")
    assert (absent.status, absent.error["code"]) == (1, "namespace_not_found")


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_namespace_is_read_whole(command: Command, kind: str) -> None:
    command("namespaces", "create", "public/many")
    for name, team in (("a", "sales"), ("b", "sales"), ("c", "legal")):
        command("create", f"public/many/{name}", "-p", f"team={team}")
        command("produce", f"public/many/{name}", "-m", f"of {name}")
    arguments = ("consume", "-s", "all", "--namespace", "public/many", "-p", "team=sales", "--type", kind)
    read = command("-o", "json", *arguments, "-n", "2")
    messages = [json.loads(line) for line in read.out.splitlines()]
    assert {(each["topic"], each["value"]) for each in messages} == {
        ("topic://public/many/a", "of a"),
        ("topic://public/many/b", "of b"),
    }
    command("produce", "public/many/b", "-m", "more", "-k", "key")
    line = command(*arguments, "-n", "1").out
    assert line.split("\t")[0] == "topic://public/many/b"
    assert line.split("\t")[2:] == ["key", "more\n"]
    refused = command(*arguments, "--from", "earliest", "-n", "1", "--idle", "1s")
    assert (refused.status, refused.out) == (0, "")


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_namespace_of_which_nothing_may_be_read_is_refused(
    command: Command, kind: str, processes: ProcessFactory
) -> None:
    """It would wait for messages that never come, and with --idle end as if all were well."""
    command("namespaces", "create", "public/shut")
    command("create", "public/shut/a")
    command("create", "public/shut/b")
    command("permissions", "grant", "public/shut", "looker", "lookup")
    arguments = ("consume", "-s", "all", "--namespace", "public/shut", "--type", kind)
    refused = command("--token", token("looker"), "-o", "json", *arguments)
    assert (refused.status, refused.error["code"]) == (4, "forbidden")
    read_only = processes.node(SCALABLE_READ_ONLY="true")
    for options in ((), ("-n", "1"), ("--idle", "1s")):
        refused = command("--url", read_only.url, "-o", "json", *arguments, *options)
        assert (refused.status, refused.out, refused.error["code"]) == (1, "", "read_only")


def test_a_topic_that_cannot_be_read_is_told_at_the_end(command: Command) -> None:
    """Another type of subscription stands in one of two topics."""
    command("namespaces", "create", "public/mixed")
    for name in "ab":
        command("create", f"public/mixed/{name}")
        command("produce", f"public/mixed/{name}", "-m", f"of {name}")
    command("subscriptions", "create", "public/mixed/b", "-s", "all", "--type", "queue")
    read = command("-o", "json", "consume", "-s", "all", "--namespace", "public/mixed", "--idle", "2s")
    assert [json.loads(line)["value"] for line in read.out.splitlines()] == ["of a"]
    assert (read.status, read.error["code"]) == (1, "subscription_type_mismatch")
