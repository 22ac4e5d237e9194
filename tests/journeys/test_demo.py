"""The whole journey with real processes: flights make a topic split and merge by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest

from launch.embedded import remove_postgres
from launch.java import java_environment
from launch.ports import free_port
from launch.process import ROOT
from tests.browser.conftest import CHROMIUM
from tests.journeys.witness import watch_topic
from tests.launch.children import environment_of_a_user
from tests.launch.test_instance import Launched, launched
from tests.launch.test_tls import LOCAL, Authority

__all__ = ["launched"]

EVENTS = 6_000
FEW_EVENTS = 500
FEWER_EVENTS = 1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        java_environment() is None, reason="no Java 17 or newer: the load pipeline cannot run"
    ),
]


def start_demo(directory: Path, progress: TextIO, *options: str, events: int) -> subprocess.Popen[str]:
    """Start the demo in an instance of its own, whose addresses are nobody's but the given ones."""
    arguments = ["demo", "--events", str(events), "--json", "--data-dir", str(directory), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "launch", *arguments],
        cwd=ROOT,
        env=environment_of_a_user(),
        stdout=subprocess.PIPE,
        stderr=progress,
        text=True,
    )


def end_of(run: subprocess.Popen[str], directory: Path) -> dict[str, Any]:
    """What the demo tells in its one line, once it has ended well and left nothing behind."""
    output, _ = run.communicate()
    remove_postgres(directory=directory / "postgres")
    assert run.returncode == 0, (directory / "progress").read_text()[-4_000:]
    assert not (directory / "services.json").exists(), "what it started, it stopped"
    (line,) = output.splitlines()
    result: dict[str, Any] = json.loads(line)
    return result


def test_a_stream_of_flights_splits_and_merges_its_topic_while_a_browser_shows_it(tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "progress").open("w+") as progress:
        run = start_demo(tmp_path, progress, "--port", str(port), events=EVENTS)
        seen = watch_topic(
            run, url=f"http://127.0.0.1:{port}", path="public/default/flights", data_directory=tmp_path
        )
        result = end_of(run, tmp_path)
    assert list(result) == [
        *("produced", "consumed", "lost", "duplicated", "out_of_order", "splits", "merges"),
        *("epoch", "active_segments", "load_reports", "seconds"),
    ]
    assert result["produced"] == result["consumed"] == EVENTS
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["splits"] >= 3
    assert result["merges"] >= 1
    assert result["load_reports"] >= 1
    if CHROMIUM is not None:
        assert not seen.reloaded
        assert len(seen.segments) >= 1 + 2 * 3
        assert "split" in seen.marks


def test_a_short_run_where_spark_measures_already_has_a_report_of_its_own(launched: Launched) -> None:
    """The first run waits for Spark's start; the second is over before its topic was measured."""
    launched.start(without="--no-demo")
    for events in (FEW_EVENTS, FEWER_EVENTS):
        with (launched.data / "progress").open("w+") as progress:
            run = start_demo(launched.data, progress, events=events)
            output, _ = run.communicate()
            assert run.returncode == 0, (launched.data / "progress").read_text()[-4_000:]
        result = json.loads(output)
        assert result["produced"] == result["consumed"] == events
        assert result["load_reports"] >= 1


def test_everything_shows_an_encrypted_node_its_certificate(tmp_path: Path) -> None:
    """The producers and the group, the worker, and Spark with its load reports."""
    authority = Authority(tmp_path, "authority")
    node = authority.issue("node", *LOCAL)
    files = ("--tls-cert", str(node.cert), "--tls-key", str(node.key), "--tls-client-ca", str(authority.file))
    data = tmp_path / "data"
    data.mkdir()
    with (data / "progress").open("w+") as progress:
        port = free_port()
        run = start_demo(data, progress, "--port", str(port), *files, events=FEW_EVENTS)
        result = end_of(run, data)
    assert result["produced"] == result["consumed"] == FEW_EVENTS
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["load_reports"] >= 1
