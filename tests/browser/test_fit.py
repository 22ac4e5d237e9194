"""Every page keeps to its width, whatever the names; a topic of many segments is still a picture."""

from urllib.parse import quote

from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW

NAME = "w" * 255
SUBSCRIPTION = "a-long-subscription-" * 12
ROOT = "scalable/public/default"
TOPIC = f"/topics/public/default/{NAME}"
PAGES = {
    "/topics": "#rows a",
    f"/topics?namespace={NAME}/{NAME}": "#empty:not([hidden]), #banner:not([hidden])",
    TOPIC: "#subscription-rows tr",
    "/topics/public/default/unknown": "#live.gone",
    "/nodes": "#rows tr",
    "/jobs": "#empty:not([hidden])",
    "/no/such/page": "main h1",
}
WIDTHS = (320, 390, 1400)
# Strokes as parts of the heights of what they surround, and how the table scrolls.
CROWDED = """() => { const table = document.querySelector('#segments').parentElement;
  return { strokes: Math.max(...[...document.querySelectorAll('.segment')].map(one =>
      2 * parseFloat(getComputedStyle(one).strokeWidth) / Number(one.getAttribute('height')))),
    hidden: table.scrollHeight - table.clientHeight,
    head: getComputedStyle(table.querySelector('th')).position }; }"""


async def overflowing(console: Console) -> list[tuple[str, int]]:
    """Give the pages that are wider than the window, after looking at all of them."""
    page, found = console.page, []
    for path, drawn in PAGES.items():
        await page.goto(console.node.url + path)
        await page.wait_for_selector(drawn)
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            if await page.evaluate(OVERFLOW) > 0:
                found.append((path[:60], width))
    return found


async def test_no_page_is_wider_than_its_window_whatever_the_names(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/{NAME}?numInitialSegments=2")
    console.call("PUT", f"{ROOT}/{NAME}/subscriptions/{quote(SUBSCRIPTION)}")
    await page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    await page.goto(f"{console.node.url}/login")
    assert await page.evaluate(OVERFLOW) <= 0
    await console.open("/topics")
    assert await overflowing(console) == []
    await page.goto(console.node.url + TOPIC)
    for control in ("toggle", "delete"):
        await page.click(f'#subscription-rows [data-role="{control}"]')
        assert await page.evaluate(OVERFLOW) <= 0
    await page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    box = await page.locator("#confirm").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= WIDTHS[0]


async def test_two_hundred_segments_are_a_picture_and_a_table_of_bounded_height(console: Console) -> None:
    console.call("PUT", f"{ROOT}/crowded?numInitialSegments=200")
    await console.open_topic("crowded")
    await console.wait_for_segments(*range(200))
    found = await console.page.evaluate(CROWDED)
    assert found["strokes"] < 0.75
    assert found["hidden"] > 1000
    assert found["head"] == "sticky"


async def test_the_chosen_theme_is_there_before_anything_is_drawn(console: Console) -> None:
    page = console.page
    await page.add_init_script("""localStorage.setItem('theme', 'dark'); window.early = [];
      new MutationObserver(() => window.early.push([document.documentElement?.dataset.theme, !document.body]))
        .observe(document, { subtree: true, attributes: true, attributeFilter: ['data-theme'] });""")
    await page.goto(f"{console.node.url}/login")
    assert (await page.evaluate("() => window.early"))[0] == ["dark", True]
    assert await page.inner_text("#theme") == "Theme: dark"


async def test_a_path_where_nothing_is_leads_a_person_back_and_tells_a_program(console: Console) -> None:
    page = console.page
    await console.open("/topics")
    answer = await page.goto(f"{console.node.url}/no/such/page")
    assert answer is not None
    assert answer.status == 404
    await page.click("main a[href='/topics']")
    await page.wait_for_url("**/topics")
    told = await page.request.get(f"{console.node.url}/no/such/page", headers={"Accept": "*/*"})
    assert (told.status, (await told.json())["code"]) == (404, "unknown_path")
