"""Old load is not shown as if it were present, and what was known stays; all of it follows the watch."""

import time
from datetime import timedelta

from asgiref.sync import sync_to_async
from django.utils import timezone

from scalable.models import LoadWatermark, Segment
from tests.browser.conftest import Console
from tests.browser.test_map import PAINTED, boxes_of, freeze
from tests.processes import ProcessFactory

ROOT = "scalable/public/default"
NAME = "silent"
MINUTE_MS = 60_000
Colours = set[tuple[int, ...]]
BUSY: Colours = {(253, 231, 37)}
IDLE: Colours = {(68, 1, 84)}
HATCH: Colours = {(138, 147, 163), (201, 206, 214)}
AGE = timedelta(minutes=10)
SILENCE = timedelta(minutes=5)
CELLS = "() => [...document.querySelectorAll('#segment-rows td')].map(one => one.innerText.trim())"
TITLES = "all => all.map(one => one.title)"
SHOWN = """wanted =>
  ['in', 'out'].every(one => document.getElementById(`figure-${one}`).textContent === wanted) &&
  document.querySelector('.segment').dataset.colour.startsWith(wanted === 'unknown' ? wanted : 'rgb')"""
RATES = ("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut")


def report(console: Console, *, age: timedelta) -> None:
    """Report, as of some time ago, that the topic is idle."""
    incarnation = console.topic(NAME)["incarnation"]
    place = {"topic": f"topic://public/default/{NAME}", "incarnation": incarnation, "segmentId": 0}
    load = {**place, **dict.fromkeys(RATES, 0.0)}
    watermark_ms = round((time.time() - age.total_seconds()) * 1000)
    body = {"reporter": "test", "watermarkMs": watermark_ms, "loads": [load]}
    console.call("POST", "scalable-load/reports", body, role="system")


def report_minute(console: Console) -> int:
    """Report a whole minute, two minutes after the beginning, in which the topic was busy; give its start."""
    topic = console.topic(NAME)
    minute_ms: int = topic["segments"]["0"]["createdAtMs"] // MINUTE_MS * MINUTE_MS + 2 * MINUTE_MS
    tile = {
        "topic": f"topic://public/default/{NAME}",
        "incarnation": topic["incarnation"],
        "segmentId": 0,
        "minuteMs": minute_ms,
        "mean": [10_000 / 32] * 32,
        "max": [10_000 / 32] * 32,
    }
    console.call("POST", "scalable-load/tiles", {"tiles": [tile]}, role="system")
    return minute_ms


def grow_old() -> None:
    """Let the segment have been made long ago."""
    Segment.objects.update(created_at=timezone.now() - AGE)


def fall_silent() -> None:
    """Let the last report have come long ago."""
    LoadWatermark.objects.update(watermark=timezone.now() - SILENCE)


async def painted(console: Console, at_ms: float) -> Colours:
    """Give the colours of a short line across the map at an instant of the frozen page."""
    box = (await boxes_of(console))[0]
    now_ms = await console.page.evaluate("Date.now()")
    born_ms = console.topic(NAME)["segments"]["0"]["createdAtMs"]
    x = box["x"] + box["width"] * (at_ms - born_ms) / (now_ms - born_ms)
    places = [[x, box["y"] + 20 + step] for step in range(17)]
    return {tuple(await console.page.evaluate(PAINTED, place)) for place in places}


async def wait_for_colours(console: Console, at_ms: float, wanted: Colours) -> None:
    """Wait until an instant is painted so, in full or hatched."""
    deadline = time.monotonic() + 30
    others = (BUSY | IDLE | HATCH) - wanted
    while not (found := await painted(console, at_ms)) & wanted or found & others:
        assert time.monotonic() < deadline, (found, wanted)
        await console.page.wait_for_timeout(200)


async def test_header_table_and_map_say_that_the_load_is_unknown_until_it_is_known(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/{NAME}")
    await sync_to_async(grow_old)()
    report(console, age=SILENCE)
    busy_ms = report_minute(console) + MINUTE_MS / 2
    await console.open_topic(NAME)
    await page.wait_for_function(SHOWN, arg="unknown")
    await freeze(console)
    now_ms = await page.evaluate("Date.now()")
    lately_ms, before_ms = now_ms - MINUTE_MS, now_ms - 6 * MINUTE_MS
    cells = await page.evaluate(CELLS)
    assert cells[4:9] == ["–", "–", "–", "–", "unknown"]
    for place in ("#figure-in", "#figure-out", "#segment-rows td:nth-child(n+5):nth-child(-n+9)"):
        titles = await page.eval_on_selector_all(place, TITLES)
        assert set(titles) == {"There is no recent load report"}
    assert "load unknown" in (await page.get_attribute(".segment", "aria-label") or "")
    await wait_for_colours(console, lately_ms, HATCH)
    await wait_for_colours(console, before_ms, IDLE)
    await wait_for_colours(console, busy_ms, BUSY)
    await page.focus(".segment")
    await page.keyboard.press("Enter")
    assert "load unknown" in await page.inner_text("#spoken")

    report(console, age=timedelta())  # the same rates: nothing but the watermark changes
    await page.wait_for_function(SHOWN, arg="0")
    cells = await page.evaluate(CELLS)
    assert (cells[4], cells[8]) == ("0", "0 %")
    await wait_for_colours(console, lately_ms, IDLE)
    assert set(await page.eval_on_selector_all("#figure-in, #segment-rows td", TITLES)) >= {""}
    assert "no recent load report" not in await page.inner_text("#decision")

    await sync_to_async(fall_silent)()
    await page.wait_for_function(SHOWN, arg="unknown")
    await wait_for_colours(console, lately_ms, HATCH)
    await wait_for_colours(console, before_ms, IDLE)


async def test_the_list_says_so_as_long_as_the_last_decision_does(
    working: Console, processes: ProcessFactory
) -> None:
    page = working.page
    processes.beat()
    working.call("PUT", f"{ROOT}/{NAME}")
    working.call("POST", f"{ROOT}/{NAME}/autoScalePolicy", {"autoScaleIntervalSeconds": 1})
    report(working, age=SILENCE)
    await working.open("/topics")
    await page.wait_for_selector('#rows td:nth-child(3)[title]:text-is("unknown")')
    assert "held by load unknown" in await page.inner_text("#rows td:nth-child(6)")
    report(working, age=timedelta())
    await page.wait_for_selector('#rows td:nth-child(3):not([title]):text-is("0")')
