"""The page of batch jobs: rows are shown as they change, and the page starts and cancels."""

from pathlib import Path

from scalable.domain.jobs import Counts, JobState
from scalable.services import jobs
from tests.api.peers import ask
from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW

RUNNER = "a test"


async def test_jobs_are_started_followed_and_cancelled(console: Console) -> None:
    page = console.page
    await console.open("/jobs")
    await page.wait_for_selector("#empty:not([hidden])")
    await page.select_option("[name=kind]", "policy_replay")
    await page.fill("[name=day]", "2026-11-27")
    await page.fill("[name=policy]", '{"maxSegments": 8}')
    await page.click("#go")
    await page.wait_for_selector('#rows .state >> text="queued"')
    (job,) = console.call("GET", "jobs")["jobs"]
    assert job["options"] == {"day": "2026-11-27", "policies": {"page": {"maxSegments": 8}}}
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
