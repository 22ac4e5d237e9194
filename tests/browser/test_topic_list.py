"""The list of topics: sorted and filtered by the server, kept in the address, and honest about its age."""

import time

import pytest
from playwright.async_api import Page, Route

from tests.browser.conftest import Console

ROOT = "scalable/public/default"
NAMES = "() => [...document.querySelectorAll('#rows a')].map(one => one.textContent).join(' ')"
PAGE = 50


async def wait_for_names(page: Page, *names: str) -> None:
    """Wait until the list shows just these, in this order."""
    await page.wait_for_function(f"names => ({NAMES})() === names", arg=" ".join(names))


def make(console: Console) -> None:
    """Make three topics that each order sorts differently."""
    for name, segments, rate in (("beta", 3, 10.0), ("alpha", 1, 250.0), ("gamma", 2, 90.0)):
        console.call("PUT", f"{ROOT}/{name}?numInitialSegments={segments}", {"owner": name[0], "kind": "x"})
        report = {
            "topic": f"topic://public/default/{name}",
            "incarnation": console.topic(name)["incarnation"],
            "segmentId": 0,
            "msgRateIn": rate,
            "bytesRateIn": 1.0,
            "msgRateOut": 1.0,
            "bytesRateOut": 1.0,
        }
        body = {"reporter": "spark", "watermarkMs": round(time.time() * 1000), "loads": [report]}
        console.call("POST", "scalable-load/reports", body, role="system")


async def test_headers_sort_and_the_way_back_leads_back(console: Console) -> None:
    page = console.page
    make(console)
    await console.open("/topics")
    await wait_for_names(page, "alpha", "beta", "gamma")
    cells = await page.locator("#rows tr").first.locator("td").all_inner_texts()
    assert cells[1:3] == ["1", "250"]
    await page.get_by_role("button", name="Messages in /s").click()
    await wait_for_names(page, "alpha", "gamma", "beta")
    assert await page.get_attribute("[data-sort=rate]", "aria-sort") == "descending"
    assert await page.locator("[aria-sort]").count() == 1
    await page.focus("[data-sort=segments] button")
    await page.keyboard.press("Enter")
    await wait_for_names(page, "beta", "gamma", "alpha")
    await page.keyboard.press("Enter")
    await wait_for_names(page, "alpha", "gamma", "beta")
    assert await page.get_attribute("[data-sort=segments]", "aria-sort") == "ascending"
    await page.go_back()
    await wait_for_names(page, "beta", "gamma", "alpha")
    await page.go_back()
    await wait_for_names(page, "alpha", "gamma", "beta")
    await page.reload()
    await page.wait_for_selector("[data-sort=rate][aria-sort=descending]")
    await wait_for_names(page, "alpha", "gamma", "beta")
    await page.goto(f"{console.node.url}/topics?sort=constructor&offset=-3")
    await wait_for_names(page, "alpha", "beta", "gamma")


async def test_topics_are_found_by_their_properties(console: Console) -> None:
    page = console.page
    make(console)
    await console.open("/topics")
    await page.fill("[name=property]", "owner=b")
    await page.keyboard.press("Enter")
    await wait_for_names(page, "beta")
    assert "property=owner%3Db" in page.url
    await page.click('#chosen button:has-text("owner=b")')
    await wait_for_names(page, "alpha", "beta", "gamma")
    await page.click('#rows tr:has(a:text-is("gamma")) button:text-is("owner=g")')
    await wait_for_names(page, "gamma")
    await page.fill("[name=search]", "alp")
    await page.wait_for_selector('#empty:has-text("“alp” in its name and owner=g")')
    await page.go_back()
    await wait_for_names(page, "gamma")
    assert await page.input_value("[name=search]") == ""


async def test_a_long_property_is_cut_in_its_row_and_found_whole(console: Console) -> None:
    page, long = console.page, "\U0001f600" * 1_000
    console.call("PUT", f"{ROOT}/long", {"owner": long})
    await console.open("/topics")
    chip = page.locator("#rows button.chip")
    await chip.wait_for()
    box = await page.locator("#rows tr").bounding_box()
    assert box is not None
    assert box["height"] < 150
    assert await chip.inner_text() == f"owner={long[:114]}…"
    await chip.click()
    await wait_for_names(page, "long")
    assert await page.locator("#chosen button").get_attribute("aria-label") == f"Without owner={long}"


async def test_what_is_refused_leaves_no_rows_that_look_like_an_answer(console: Console) -> None:
    page = console.page
    make(console)
    await console.open("/topics?property=nonsense")
    await page.wait_for_selector("#banner:not([hidden])")
    assert "key=value" in await page.inner_text("#banner")
    assert await page.locator("#rows tr").count() == 0
    await page.click("#chosen button")
    await wait_for_names(page, "alpha", "beta", "gamma")
    assert await page.is_hidden("#banner")


async def test_a_thousand_topics_are_paged_in_the_address(console: Console) -> None:
    page = console.page
    names = [f"t{number:03}" for number in range(PAGE + 2)]
    for name in names:
        console.call("PUT", f"{ROOT}/{name}")
    await console.open("/topics")
    await wait_for_names(page, *names[:PAGE])
    await page.click("#next")
    await wait_for_names(page, *names[PAGE:])
    assert "offset=50" in page.url
    assert await page.inner_text("#page") == "51–52 of 52"
    await page.go_back()
    await wait_for_names(page, *names[:PAGE])


async def unavailable(route: Route) -> None:
    """Answer as a node does whose database is away."""
    body = {"code": "unavailable", "reason": "The database is out of reach.", "hint": ""}
    await route.fulfill(status=503, json=body)


@pytest.mark.parametrize(
    ("path", "door"),
    [
        ("/topics", "**/admin/v2/scalable-topics/**"),
        ("/nodes", "**/admin/v2/nodes?*"),
        ("/jobs", "**/admin/v2/jobs?*"),
        ("/namespaces/public/default", "**/scalableTopicAutoScalePolicy/effective"),
    ],
)
async def test_an_old_list_says_that_it_is_old_and_of_when(console: Console, path: str, door: str) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/alpha")
    console.call("POST", "jobs", {"kind": "compact"})
    await console.open(path)
    await page.wait_for_selector('#as-of:has-text("as of")')
    rows = await page.locator("table.list tbody tr").count()
    assert rows
    await page.route(door, unavailable)
    await page.wait_for_selector("#banner:not([hidden])")
    told = await page.inner_text("#banner")
    assert "What you see is old, of " in told
    assert "The database is out of reach." in told
    assert (await page.inner_text("#as-of")).startswith("old, of ")
    assert await page.locator("table.list tbody tr").count() == rows
    await page.unroute(door)
    await page.wait_for_selector('#as-of:has-text("as of")')
    assert await page.is_hidden("#banner")


async def test_a_live_watch_does_not_hide_that_the_database_is_away(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/quiet")
    await console.open_topic("quiet")
    await page.select_option("#subscriptions-interval", "1000")
    await page.route("**/admin/v2/scalable/public/default/quiet/stats", unavailable)
    await page.wait_for_selector("#live.lost")
    async with page.expect_response("**/quiet/tiles?*") as tiles:
        await page.select_option("#span", index=1)
    assert (await tiles.value).ok
    await page.evaluate("() => new Promise(requestAnimationFrame)")
    # What can be read beside it does not hide it either.
    assert (await page.inner_text("#live")).startswith("old, of ")
    assert "The database is out of reach." in await page.inner_text("#banner")
    await page.unroute("**/admin/v2/scalable/public/default/quiet/stats")
    await page.wait_for_selector("#live.live")
    assert await page.is_hidden("#banner")
