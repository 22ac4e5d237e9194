"""The page of nodes, and who leads a topic on its page: a real second node comes, leads and is killed."""

import signal

import pytest
from playwright.async_api import Page, Route

from scalable.client import StreamConsumer
from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW
from tests.processes import LiveNode, ProcessFactory

ROOT = "scalable/public/default"
TOPIC = "topic://public/default/led"
QUICK = {"SCALABLE_NODE_HEARTBEAT_SECONDS": "0.2", "SCALABLE_NODE_TIMEOUT_SECONDS": "5"}
LED_PAGE = 20


@pytest.fixture
def live_node(processes: ProcessFactory) -> LiveNode:
    """The node that is looked at: it takes others for dead after seconds."""
    return processes.node(**QUICK)


async def open_nodes(console: Console) -> Page:
    """Open the page, read every second."""
    page = console.page
    await console.open("/nodes")
    await page.select_option("#interval", "1000")
    return page


def row_of(console: Console, node: LiveNode) -> str:
    """Select the row of a node."""
    nodes = console.call("GET", "nodes")["nodes"]
    node_id = next(one["nodeId"] for one in nodes if one["url"] == node.url)
    return f'#rows tr[data-node="{node_id}"]'


async def test_nodes_are_alive_lead_and_die(console: Console, processes: ProcessFactory) -> None:
    second = processes.node(**QUICK)
    console.call("PUT", f"{ROOT}/led")
    page = await open_nodes(console)
    row = row_of(console, second)
    await page.wait_for_selector(f"{row} .state.live")
    assert second.url in await page.inner_text(row)
    assert "ago" in await page.inner_text(row)
    await page.focus(f'{row} [data-role="toggle"]')
    await page.keyboard.press("Enter")
    await page.wait_for_selector(
        f'{row}.details >> text="Leads no topic. One is led once a consumer asks for its leader."'
    )
    assert await page.evaluate("() => document.activeElement.getAttribute('aria-expanded')") == "true"
    async with StreamConsumer(second.url, TOPIC, "s", console.node.admin_token):
        await page.wait_for_selector(f"{row}.details a")
        cells = await page.locator(f"{row}.details tbody td").all_inner_texts()
        assert cells[:2] == ["public/default/led", "1"]
        assert ", for " in cells[2]
    second.process.send_signal(signal.SIGKILL)
    await page.wait_for_selector(f"{row} .state.gone")
    assert await page.inner_text("#summary") == "1 alive, 1 without a heartbeat"
    assert await page.evaluate(OVERFLOW) <= 0


async def test_a_topic_shows_its_leader_and_term(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/led")
    await console.open_topic("led")
    assert await page.inner_text("#figure-leader") == "none"
    async with StreamConsumer(console.node.url, TOPIC, "s", console.node.admin_token):
        await page.wait_for_selector(f'#figure-leader >> text="{console.node.url}"')
        assert await page.inner_text("#figure-term") == "1"


async def test_an_unreachable_node_is_told_and_an_empty_list_too(console: Console) -> None:
    page = await open_nodes(console)
    await page.wait_for_selector("#rows tr")

    async def refuse(route: Route) -> None:
        await route.abort()

    async def none(route: Route) -> None:
        await route.fulfill(json={"nodes": [], "total": 0, "timeoutMs": 5000})

    await page.route("**/admin/v2/nodes?*", refuse)
    await page.wait_for_selector("#banner:not([hidden])")
    assert "does not answer" in await page.inner_text("#banner")
    assert await page.locator("#rows tr").count() == 1
    await page.unroute("**/admin/v2/nodes?*")
    await page.wait_for_selector("#banner", state="hidden")
    await page.route("**/admin/v2/nodes?*", none)
    await page.wait_for_selector("#empty:not([hidden])")
    assert await page.locator("#nodes").is_hidden()


async def test_led_topics_are_paged(console: Console) -> None:
    names = [f"led-{number:02}" for number in range(LED_PAGE + 1)]
    for name in names:
        console.call("PUT", f"{ROOT}/{name}")
        topic = f"topic://public/default/{name}"
        async with StreamConsumer(console.node.url, topic, "s", console.node.admin_token):
            pass
    page = await open_nodes(console)
    row = row_of(console, console.node)
    await page.wait_for_selector("#rows tr")
    assert await page.locator("#rows tr td").last.inner_text() == str(len(names))
    await page.click(f'{row} [data-role="toggle"]')
    await page.wait_for_selector(f"{row}.details a")
    shown = await page.locator(f"{row}.details a").all_inner_texts()
    await page.click(f'{row} [data-role="on"]')
    await page.wait_for_selector(f'{row}.details >> text="{LED_PAGE + 1}–{LED_PAGE + 1}"')
    shown += await page.locator(f"{row}.details a").all_inner_texts()
    assert sorted(shown) == [f"public/default/{name}" for name in names]
    assert await page.locator(f'{row} [data-role="on"]').is_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_narrow_and_wide_screens(console: Console, scheme: str) -> None:
    page = await open_nodes(console)
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for width in (390, 1400):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.wait_for_selector("#rows tr")
        assert await page.evaluate(OVERFLOW) <= 0
    assert await page.locator('nav a[href="/nodes"]').get_attribute("aria-current") == "page"


async def test_a_rebucket_is_asked_for_in_the_segments_table(working: Console) -> None:
    page = working.page
    working.call("PUT", f"{ROOT}/led")
    await working.open_topic("led")
    await page.click('#segment-rows [data-role="rebucket"]')
    await page.fill("#confirm [name=bucketCount]", "3")
    await page.click("#confirm-go")
    await working.wait_for_segments(0, 1)
    assert await page.locator(".mark.rebucket").count() == 1
    assert len(working.topic("led")["segments"]["1"]["entryBucketSplits"]) == 2


async def test_the_icon_is_where_browsers_ask_for_it(console: Console) -> None:
    answer = await console.page.request.get(console.node.url + "/favicon.ico")
    assert (answer.status, answer.headers["content-type"]) == (200, "image/svg+xml")
