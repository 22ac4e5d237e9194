"""The journal of the autoscaler on a topic's page."""

from pathlib import Path

import pytest

from launch.services import beat_spec
from tests.browser.conftest import Console
from tests.processes import ProcessFactory


@pytest.mark.slow
async def test_the_journal_says_what_was_decided_and_why_and_follows(
    working: Console, processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    page = working.page
    processes.run(beat_spec(environment=service_environment, schedule=tmp_path / "beat"))
    working.call("PUT", "scalable/public/default/judged")
    policy = "scalable/public/default/judged/autoScalePolicy"
    working.call("POST", policy, {"enabled": False})
    await working.open_topic("judged")
    await page.wait_for_selector("#decision :text('disabled')", timeout=60_000)
    await page.click(".journal summary")
    await page.wait_for_selector("#journal li:has-text('disabled')")
    working.call("POST", policy, {"minSegments": 2, "maxSegments": 2})
    await page.wait_for_function("() => document.querySelectorAll('#journal li').length >= 2", timeout=60_000)
    assert "no change" in await page.inner_text("#journal li >> nth=0")
