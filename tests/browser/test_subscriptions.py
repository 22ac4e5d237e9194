"""The subscriptions of a topic on its page: what is left, what waits, and actions that ask first."""

import asyncio
import itertools
import re

from scalable.client import KeySharedConsumer, Producer, StreamConsumer
from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW

ROOT = "scalable/public/default"
MESSAGES = 40
FOCUSED = "() => document.activeElement.getAttribute('aria-labelledby')"


async def send_all(producer: Producer, value: bytes) -> None:
    """Send together, so that a slow disk is waited for once and not once a message."""
    await asyncio.gather(*(producer.send(f"key {number}", value) for number in range(MESSAGES)))


async def fill(console: Console, topic: str, *, split: bool) -> None:
    """Make a topic with messages, sealed ones too."""
    console.call("PUT", f"{ROOT}/{topic}")
    name = f"topic://public/default/{topic}"
    async with Producer(console.node.url, name, console.node.admin_token) as producer:
        await send_all(producer, b"value")
    if split:
        console.call("POST", f"{ROOT}/{topic}/split/0")


def subscribe(console: Console, topic: str, subscription: str, query: str = "") -> None:
    """Make a subscription."""
    console.call("PUT", f"{ROOT}/{topic}/subscriptions/{subscription}?{query}")


async def wait_for_backlog(console: Console, subscription: str, shown: str) -> None:
    """Wait until the panel shows this backlog."""
    await console.page.wait_for_function(
        "([name, shown]) => [...document.querySelectorAll('#subscription-rows tr')].some(row =>"
        " row.dataset.subscription === name"
        " && row.querySelector('[data-role=backlog]').textContent === shown)",
        arg=[subscription, shown],
    )


async def test_backlog_and_waits_are_shown_and_follow_changes(working: Console) -> None:
    page = working.page
    await fill(working, "followed", split=False)
    subscribe(working, "followed", "bill")
    await working.open_topic("followed")
    await wait_for_backlog(working, "bill", str(MESSAGES))
    working.call("POST", f"{ROOT}/followed/split/0")
    name = "topic://public/default/followed"
    async with Producer(working.node.url, name, working.node.admin_token) as producer:
        await send_all(producer, b"later")
    await wait_for_backlog(working, "bill", str(2 * MESSAGES))
    row = '[data-subscription="bill"]'
    assert f"1 waits for 0, {MESSAGES} unacknowledged" in await page.inner_text(row)
    await page.click(f'{row} [data-role="toggle"]')
    details = await page.inner_text("#subscription-rows .details")
    assert f"2 waits for 0, {MESSAGES} unacknowledged" in details
    working.call("POST", f"{ROOT}/followed/subscriptions/bill/skip?count={MESSAGES}")
    await wait_for_backlog(working, "bill", str(MESSAGES))
    assert "waits for" not in await page.inner_text(row)


async def test_consumers_are_shown_with_what_they_read(console: Console) -> None:
    page = console.page
    await fill(console, "attended", split=False)
    name, row = "topic://public/default/attended", '[data-subscription="bill"]'
    members = [
        StreamConsumer(console.node.url, name, "bill", console.node.admin_token, name=each)
        for each in ("anna", "ben")
    ]
    async with members[0], members[1]:
        await console.open_topic("attended")
        await page.select_option("#subscriptions-interval", "1000")
        await page.wait_for_selector(f'{row} >> text="2 connected, 1 standing by"')
        await page.click(f'{row} [data-role="toggle"]')
        told = await page.inner_text("#subscription-rows .details")
        assert "anna connected, reads 0" in told
        assert "ben connected, standing by" in told
    await page.wait_for_selector(f'{row} >> text="none"')


async def test_consumers_that_share_a_segment_are_shown_with_their_entry_buckets(console: Console) -> None:
    page = console.page
    await fill(console, "shared", split=False)
    name, row = "topic://public/default/shared", '[data-subscription="bill"]'
    members = [
        KeySharedConsumer(console.node.url, name, "bill", console.node.admin_token, name=each)
        for each in ("anna", "ben")
    ]
    async with members[0]:
        await console.open_topic("shared")
        await page.select_option("#subscriptions-interval", "1000")
        await page.wait_for_selector(f'{row} >> text="1 connected"')
        await page.click(f'{row} [data-role="toggle"]')
        assert "anna connected, reads 0\n" in await page.inner_text("#subscription-rows .details") + "\n"
        async with members[1]:
            both = "/ben connected, reads 0 .entry buckets [^,]+, [^,]+[)]/"  # they come one by one
            await page.wait_for_selector(f"#subscription-rows .details >> text={both}")
            told = (await page.inner_text("#subscription-rows .details")).splitlines()
            shown = {line.split()[0]: re.findall(r"[0-9a-f]{4}-[0-9a-f]{4}", line) for line in told[-2:]}
            assert {name: len(ranges) for name, ranges in shown.items()} == {"anna": 2, "ben": 2}
            assert len({*shown["anna"], *shown["ben"]}) == 4


async def test_a_seek_is_previewed_before_it_is_done(console: Console) -> None:
    page = console.page
    await fill(console, "sought", split=False)
    subscribe(console, "sought", "bill", "initialPosition=latest")
    await console.open_topic("sought")
    await wait_for_backlog(console, "bill", "0")
    await page.click('[data-subscription="bill"] [data-role="seek"]')
    await page.check("#seek-dialog [value=beginning]")
    await page.click("#seek-go")
    await page.wait_for_selector("#seek-preview td")
    cells = await page.locator("#seek-preview tbody td").all_inner_texts()
    assert cells == ["0", str(MESSAGES), "0", "0", str(MESSAGES)]
    assert console.call("GET", f"{ROOT}/sought/subscriptions/bill")["msgBacklog"] == 0
    await page.check("#seek-dialog [value=time]")  # another start wants another preview
    assert await page.inner_text("#seek-go") == "Preview"
    await page.check("#seek-dialog [value=beginning]")
    await page.click("#seek-go")
    await page.wait_for_selector("#seek-preview td")
    await page.click("#seek-go")
    await wait_for_backlog(console, "bill", str(MESSAGES))
    assert not await page.locator("#seek-dialog").is_visible()


async def test_clear_and_delete_ask_and_are_done_by_keyboard(console: Console) -> None:
    page = console.page
    await fill(console, "cleared", split=False)
    subscribe(console, "cleared", "bill")
    await console.open_topic("cleared")
    await wait_for_backlog(console, "bill", str(MESSAGES))
    await page.focus('[data-subscription="bill"] [data-role="clear"]')
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#confirm[open]")
    assert f"{MESSAGES} messages will never be received" in await page.inner_text("#confirm-body")
    await page.focus("#confirm-go")
    await page.keyboard.press("Enter")
    await wait_for_backlog(console, "bill", "0")
    await page.focus('[data-subscription="bill"] [data-role="delete"]')
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#confirm[open]")
    await page.click("#confirm [value=cancel]")
    assert console.call("GET", f"{ROOT}/cleared/subscriptions")["subscriptions"]
    await page.focus('[data-subscription="bill"] [data-role="delete"]')
    await page.keyboard.press("Enter")
    await page.focus("#confirm-go")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#subscriptions-empty:not([hidden])")
    assert console.call("GET", f"{ROOT}/cleared/subscriptions")["subscriptions"] == []
    await page.wait_for_selector("#confirm:not([open])", state="hidden")
    assert await page.evaluate(FOCUSED) == "subscriptions-title"


async def test_none_is_told_and_a_refusal_is_shown_in_the_dialog(console: Console) -> None:
    page = console.page
    console.call("PUT", f"{ROOT}/refused")
    await console.open_topic("refused")
    await page.wait_for_selector("#subscriptions-empty:not([hidden])")
    assert await page.locator("#subscriptions").is_hidden()
    subscribe(console, "refused", "bill")
    await page.click("#subscriptions-refresh")
    await wait_for_backlog(console, "bill", "0")
    await page.click('[data-subscription="bill"] [data-role="delete"]')
    console.call("DELETE", f"{ROOT}/refused/subscriptions/bill")
    await page.click("#confirm-go")
    await page.wait_for_selector("#confirm .banner:not([hidden])")
    assert "does not exist" in await page.inner_text("#confirm .banner")


async def test_a_full_panel_fits_narrow_and_wide_screens_in_both_themes(console: Console) -> None:
    page = console.page
    await fill(console, "full", split=False)
    for number, kind in enumerate(("STREAM", "QUEUE", "CHECKPOINT")):
        subscribe(console, "full", f"a-rather-long-name-of-a-subscription-{number}", f"type={kind}")
    await console.open_topic("full")
    await page.wait_for_selector("#subscription-rows tr")
    await page.click('#subscription-rows tr [data-role="toggle"]')
    for scheme, width in itertools.product(("light", "dark"), (390, 1400)):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": 900})
        assert await page.evaluate(OVERFLOW) <= 0
        await page.click('#subscription-rows tr [data-role="seek"]')
        await page.click("#seek-go")
        await page.wait_for_selector("#seek-preview p")
        box = await page.locator("#seek-go").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        await page.click("#seek-dialog [value=cancel]")
