"""The journal of the autoscaler on a topic's page."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from launch.services import beat_spec
from scalable.models import Decision
from tests.api.peers import ask
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


HELD: dict[str, Any] = {
    "guard": "LOAD_UNKNOWN",
    "rule": "load",
    "segmentIds": [],
    "current": None,
    "threshold": None,
    "nextEligibleAtMs": None,
    "detail": "since 2026-11-28T10:00:00+00:00",
}
MOST = 1_000
LINES = "() => document.querySelectorAll('#journal li').length"


def keep(incarnation: int, number: int) -> None:
    """Put so many decisions into the journal of a topic, more than the service would keep."""
    first = datetime(2026, 11, 28, 11, tzinfo=UTC)
    Decision.objects.bulk_create(
        Decision(
            topic_id=incarnation,
            at=first + timedelta(seconds=each),
            rule="LOAD_UNKNOWN",
            explanation={"heldBy": [HELD]},
        )
        for each in range(number)
    )


async def test_a_journal_of_any_length_is_shown_up_to_a_bound_and_says_so(console: Console) -> None:
    page = console.page
    console.call("PUT", "scalable/public/default/judged")
    await ask(keep, console.topic("judged")["incarnation"], MOST + 150)
    await console.open_topic("judged")
    await page.click(".journal summary")
    await page.wait_for_function(f"() => ({LINES})() === 20")
    while await page.is_visible("#journal-more"):
        shown = await page.evaluate(LINES)
        await page.click("#journal-more")
        await page.wait_for_function(f"shown => ({LINES})() > shown", arg=shown)
    assert await page.evaluate(LINES) == MOST
    told = await page.inner_text("#journal-bound")
    assert told.startswith("The newest 1,000 are shown.")
    before = int(told.rpartition("=")[2])
    older = console.call("GET", f"scalable/public/default/judged/decisions?before={before}&limit=500")
    assert len(older["decisions"]) == 150
    assert older["decisions"][0]["id"] == before - 1


async def test_no_instant_is_shown_as_programs_write_it(console: Console) -> None:
    page = console.page
    console.call("PUT", "scalable/public/default/judged")
    await ask(keep, console.topic("judged")["incarnation"], 1)
    await console.open_topic("judged")
    await page.click(".journal summary")
    await page.wait_for_selector("#journal li")
    for place in ("#decision", "#journal"):
        told = await page.inner_text(place)
        assert re.search(r"load unknown, since Nov 28, 2026, \d\d:00:00", told), told
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d", await page.inner_text("main"))


async def test_an_unknown_load_is_told_in_words_that_hold_before_any_report_and_behind_an_old_one(
    console: Console,
) -> None:
    console.call("PUT", "scalable/public/default/unreported")
    for reported in (False, True):
        if reported:
            body = {"reporter": "test", "watermarkMs": int(time.time() * 1000) - 3_600_000, "loads": []}
            console.call("POST", "scalable-load/reports", body, role="system")
        await console.open_topic("unreported")
        told = await console.page.inner_text("#decision")
        assert "there is no recent load report" in told
        assert "fallen behind" not in told
