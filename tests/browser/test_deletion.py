"""What destroys looks so and is not done by Enter alone; a topic goes only after its name was typed."""

import pytest

from scalable.client import StreamConsumer
from tests.browser.conftest import Console
from tests.browser.test_subscriptions import subscribe

ROOT = "scalable/public/default"
# The contrast of a button's text with its ground, as WCAG counts it.
CONTRAST = """selector => { const looks = getComputedStyle(document.querySelector(selector));
  const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(one => one / 255)
      .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const [high, low] = [light(looks.color), light(looks.backgroundColor)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05); }"""
GROUND = "selector => getComputedStyle(document.querySelector(selector)).backgroundColor"
FOCUSED = "() => document.activeElement.value ?? document.activeElement.textContent"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_what_destroys_is_told_from_what_does_not(console: Console, scheme: str) -> None:
    page = console.page
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    console.call("PUT", f"{ROOT}/loved?numInitialSegments=2")
    subscribe(console, "loved", "bill")
    await console.open_topic("loved")
    await page.click("#segment-rows [data-role=split] >> nth=0")
    harmless = await page.evaluate(GROUND, "#confirm-go")
    await page.keyboard.press("Escape")
    for control in ("[data-role=clear]", "[data-role=delete]", "#delete-topic"):
        await page.click(control)
        await page.wait_for_selector("#confirm[open]")
        assert await page.evaluate(GROUND, "#confirm-go") != harmless, control
        assert await page.evaluate(CONTRAST, "#confirm-go") >= 4.5, control
        assert await page.evaluate(FOCUSED) == "cancel", control
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#confirm", state="hidden")
    assert len(console.call("GET", f"{ROOT}/loved/subscriptions")["subscriptions"]) == 1
    await page.click("#segment-rows [data-role=split] >> nth=0")
    assert await page.evaluate(GROUND, "#confirm-go") == harmless


async def test_a_topic_is_deleted_by_typing_its_name(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/doomed?numInitialSegments=3")
    topic = "topic://public/default/doomed"
    async with StreamConsumer(console.node.url, topic, "bill", console.node.admin_token):
        await console.open_topic("doomed")
        await page.wait_for_selector('[data-subscription="bill"] >> text="1 connected"')
        await page.click("#delete-topic")
        told = await page.inner_text("#confirm-body")
        assert "3 active segments" in told
        assert "1 subscription loses what was not received; 1 consumer will be disconnected." in told
        assert await page.is_hidden("#confirm [name=force]")
        await page.fill("#confirm [name=name]", "doom")
        assert await page.is_disabled("#confirm-go")
        await page.fill("#confirm [name=name]", "doomed")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topics?namespace=public/default")
    await page.wait_for_selector("#empty:not([hidden])")


async def test_a_split_under_way_holds_a_deletion_unless_it_is_forced(console: Console) -> None:
    page = console.page  # without a worker a split stays under way
    console.call("PUT", f"{ROOT}/held")
    await console.open_topic("held")
    await page.click("#segment-rows [data-role=split]")
    await page.click("#confirm-go")
    await page.wait_for_selector(".operation")
    await page.click("#delete-topic")
    await page.fill("#confirm [name=name]", "held")
    await page.check("#confirm [name=force]")
    await page.click("#confirm-go")
    await page.wait_for_url("**/topics?namespace=public/default")
    await page.wait_for_selector("#empty:not([hidden])")


async def test_the_page_of_a_deleted_topic_leaves_the_next_one_of_the_name_alone(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/reborn?numInitialSegments=2")
    await console.open_topic("reborn")
    await page.click("#segment-rows [data-role=split] >> nth=0")
    console.call("DELETE", f"{ROOT}/reborn")
    console.call("PUT", f"{ROOT}/reborn?numInitialSegments=2")
    await page.wait_for_selector("#live.gone")
    await page.click("#confirm-go")
    assert "deleted" in await page.inner_text("#confirm .banner")
    await page.keyboard.press("Escape")
    await page.click("#delete-topic")
    await page.fill("#confirm [name=name]", "reborn")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#confirm .banner")
    assert console.call("GET", f"{ROOT}/reborn/operations")["operations"] == []
    assert console.topic("reborn")["epoch"] == 0
