"""The page of batch jobs: rows are shown as they change, and the page starts and cancels."""

import itertools
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scalable.domain.jobs import Counts, JobState
from scalable.job_models import SparkJob
from scalable.services import jobs
from tests.api.peers import ask
from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW

RUNNER = "a test"
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
SCROLLED = """() => { const place = document.querySelector("#jobs").parentElement;
  return place.scrollWidth - place.clientWidth; }"""


async def test_jobs_are_started_followed_and_cancelled(console: Console) -> None:
    page = console.page
    await console.open("/jobs")
    await page.wait_for_selector("#empty:not([hidden])")
    await page.select_option("[name=kind]", "policy_replay")
    await page.fill("[name=day]", str(YESTERDAY))
    await page.fill("[name=policy]", '{"maxSegments": 8}')
    await page.click("#go")
    await page.wait_for_selector('#rows .state >> text="queued"')
    (job,) = console.call("GET", "jobs")["jobs"]
    assert job["options"] == {"day": str(YESTERDAY), "policies": {"page": {"maxSegments": 8}}}
    await page.click("#go")
    await page.wait_for_selector("#banner:not([hidden])")
    assert job["jobId"] in await page.inner_text("#banner")
    await ask(_run_halfway, job["jobId"])
    await page.wait_for_selector('#rows [data-role=progress] >> text="3 of 8 tasks, 1 of 2 stages"')
    assert await page.inner_text("#summary") == "1 under way"
    await page.click("[data-role=cancel]")
    await page.wait_for_selector('#rows .state >> text="ending"')
    await ask(_end, job["jobId"], JobState.CANCELLED)
    await page.wait_for_selector('#rows .state >> text="cancelled"')
    assert await page.is_hidden("[data-role=cancel]")
    assert await page.evaluate(OVERFLOW) <= 0


async def test_a_report_opens_from_the_page(console: Console) -> None:
    job = console.call("POST", "jobs", {"kind": "daily_report"})
    await ask(_run_halfway, job["jobId"])
    await ask(_write_report, job["jobId"])
    await console.open("/jobs")
    async with console.page.expect_popup() as popup:
        await console.page.click('#rows a >> text="report.html"')
    report = await popup.value
    await report.wait_for_selector("h1")
    assert await report.inner_text("h1") == "Load"


async def test_two_hundred_ended_jobs_leave_the_running_one_in_sight(console: Console) -> None:
    page = console.page
    await ask(_end_many, 200)
    running = console.call(
        "POST",
        "jobs",
        {
            "kind": "policy_replay",
            "day": str(YESTERDAY - timedelta(days=7)),
            "lastDay": str(YESTERDAY),
        },
    )
    await ask(_run_halfway, running["jobId"])
    console.call("POST", "jobs", {"kind": "daily_report"})
    await console.open("/jobs")
    await page.wait_for_selector("#rows [data-role=cancel]:visible")
    assert await page.inner_text("#page") == "1–25"
    for width in (390, 1400):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate(OVERFLOW) <= 0
        assert await page.evaluate(SCROLLED) <= 0, width
        for part in ("[data-role=cancel]", "[data-role=state]", "progress"):
            box = await page.locator(f'#rows tr[data-job="{running["jobId"]}"] {part}').bounding_box()
            assert box is not None, part
            assert box["x"] + box["width"] <= width, part
    assert await page.locator("#rows progress:visible").count() == 1
    await page.click("#next")
    await page.wait_for_function("() => document.getElementById('page').textContent === '26–50'")


RESULTS = {
    "compaction": ({"days": 1, "files": 7, "unreadable": []}, "1 day, 7 files"),
    "compaction of nothing": ({"days": 0, "files": 0, "unreadable": []}, "0 days, 0 files"),
    "compaction beside damaged files": (
        {"days": 0, "files": 0, "unreadable": ["day=2026-11-19/a.parquet"]},
        "0 days, 0 files\n1 file could not be read",
    ),
    "daily_report": (
        {"report": "report.html", "files": ["report.html", "topics.csv"], "topics": 0, "unreadable": []},
        "report.html topics.csv",
    ),
    "policy_replay": (
        {
            "results": "here",
            "files": ["results.csv"],
            "policies": [
                {"policy": "a", "violation_percent": 0.5, "segments_over_clairvoyant": None, "actions": 3},
                {"policy": "b", "violation_percent": 0, "segments_over_clairvoyant": 1.5, "actions": 1},
            ],
            "unreadable": [],
        },
        "results.csv\na: violations 0.50 %, – times the least segments, 3 actions\n"
        "b: violations 0.00 %, 1.50 times the least segments, 1 action",
    ),
    "of a kind to come": ({"something": {"else": [None]}}, ""),
}
"""What jobs of each kind give, and what the page says of it."""


async def test_each_result_that_a_job_may_have_is_shown_and_none_breaks_the_page(console: Console) -> None:
    await ask(_succeed_with, [result for result, _ in RESULTS.values()])
    await console.open("/jobs")
    await console.page.wait_for_function(
        "count => document.querySelectorAll('#rows tr').length === count", arg=len(RESULTS)
    )
    shown = await console.page.locator("#rows [data-role=result]").all_inner_texts()
    assert [each.strip() for each in shown] == [text for _, text in RESULTS.values()]
    assert await console.page.is_hidden("#banner")
    assert await console.page.locator("[data-role=cancel]:visible").count() == 0


def _succeed_with(results: Sequence[object]) -> None:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    SparkJob.objects.bulk_create(
        SparkJob(
            id=uuid.uuid4(),
            kind="compact" if number < 3 else "daily_report",
            state="SUCCEEDED",
            options={},
            actor="somebody",
            created_at=at - timedelta(minutes=number),
            started_at=at,
            ended_at=at,
            result=result,
        )
        for number, result in enumerate(results)
    )


def _end_many(number: int) -> None:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    endings = itertools.cycle(
        [
            ("SUCCEEDED", {"files": ["report.html", "report.json"]}, ""),
            ("FAILED", None, "An error with a long name and a path /" + "x" * 300),
            ("CANCELLED", None, ""),
        ]
    )
    SparkJob.objects.bulk_create(
        SparkJob(
            id=uuid.uuid4(),
            kind="daily_report",
            state=state,
            options={"day": "2026-11-19", "namespace": "a-long-tenant/a-long-namespace"},
            actor="user:somebody-with-a-long-name@example.com",
            created_at=at + timedelta(minutes=each),
            started_at=at + timedelta(minutes=each),
            ended_at=at + timedelta(minutes=each, seconds=40),
            tasks_done=12,
            tasks_total=12,
            stages_done=3,
            stages_total=3,
            result=result,
            error=error,
        )
        for each, (state, result, error) in zip(range(number), endings, strict=False)
    )


def _run_halfway(job_id: str) -> None:
    assert jobs.claim_job(job_id=job_id, runner=RUNNER) is not None
    jobs.report_job(job_id=job_id, runner=RUNNER, counts=Counts(1, 2, 3, 8))


def _end(job_id: str, state: JobState) -> None:
    assert jobs.end_job(job_id=job_id, runner=RUNNER, state=state)


def _write_report(job_id: str) -> None:
    directory: Path = jobs.result_directory(job_id)
    directory.mkdir(parents=True)
    (directory / "report.html").write_text("<!doctype html><title>Load</title><h1>Load</h1>")
    result = {"files": ["report.html"]}
    assert jobs.end_job(job_id=job_id, runner=RUNNER, state=JobState.SUCCEEDED, result=result)
