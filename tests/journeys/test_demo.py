"""The whole journey with real processes: flights make a topic split and merge by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.embedded import remove_postgres
from launch.java import java_environment
from launch.ports import free_port
from launch.process import ROOT
from tests.browser.conftest import CHROMIUM
from tests.journeys.witness import watch_topic

EVENTS = 6_000
OF_THE_TESTS = {
    *("DATABASE_URL", "REDIS_URL", "SCALABLE_DATA_DIR", "SCALABLE_SECRET_KEY", "SCALABLE_TOKEN_SECRET"),
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(java_environment() is None, reason="no Java 17 or newer: the load pipeline cannot run")
def test_a_stream_of_flights_splits_and_merges_its_topic_while_a_browser_shows_it(tmp_path: Path) -> None:
    port = free_port()
    arguments = [
        "demo",
        "--events",
        str(EVENTS),
        "--json",
        "--data-dir",
        str(tmp_path),
        "--port",
        str(port),
    ]
    with (tmp_path / "progress").open("w+") as progress:
        run = subprocess.Popen(
            [sys.executable, "-m", "launch", *arguments],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in OF_THE_TESTS},
            stdout=subprocess.PIPE,
            stderr=progress,
            text=True,
        )
        seen = watch_topic(
            run, url=f"http://127.0.0.1:{port}", path="public/default/flights", data_directory=tmp_path
        )
        output, _ = run.communicate()
        remove_postgres(directory=tmp_path / "postgres")
        assert run.returncode == 0, (tmp_path / "progress").read_text()[-4_000:]
    (line,) = output.splitlines()
    result = json.loads(line)
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
    assert not (tmp_path / "services.json").exists(), "what it started, it stopped"
