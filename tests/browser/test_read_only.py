"""The dashboard of a node that changes nothing, and of one without scalable topics."""

from dataclasses import replace

from tests.browser.conftest import Console
from tests.browser.test_subscriptions import MESSAGES, fill, subscribe, wait_for_backlog
from tests.processes import ProcessFactory

REASON = "The server is in read-only mode"


async def test_in_read_only_mode_what_changes_is_disabled_and_says_why(
    console: Console, processes: ProcessFactory
) -> None:
    await fill(console, "shown", split=False)
    subscribe(console, "shown", "bill")
    watched = replace(console, node=processes.node(SCALABLE_READ_ONLY="true"))
    page = watched.page
    await watched.open_topic("shown")
    assert "read-only mode" in await page.inner_text("#read-only")
    await wait_for_backlog(watched, "bill", str(MESSAGES))
    for control in ("#merge", *(f"[data-role={role}]" for role in ("split", "rebucket", "clear", "delete"))):
        assert await page.is_disabled(control), control
        assert await page.get_attribute(control, "title") == REASON, control
    await page.click("[data-role=seek]")
    await page.check("[name=from][value=beginning]")
    await page.click("#seek-go")
    await page.wait_for_selector("#seek-preview *")
    assert await page.inner_text("#seek-go") == "Preview"
    await watched.open("/topics")
    await page.wait_for_selector("#rows tr")
    assert await page.is_disabled("#create")


async def test_without_scalable_topics_their_pages_say_so(
    console: Console, processes: ProcessFactory
) -> None:
    without = replace(console, node=processes.node(SCALABLE_TOPICS_ENABLED="false"))
    await without.open("/nodes")
    await without.page.wait_for_selector("[data-role=toggle]")
    for path, status in (("/topics", 404), ("/topics/public/default/orders", 404), ("/", 200)):
        answer = await without.page.goto(without.node.url + path)
        assert answer is not None
        assert answer.status == status
        assert "switched off" in await without.page.inner_text("main h1")
