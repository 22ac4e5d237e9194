"""The frame around every page: the login that was tried too often, the header, the theme in time."""

import re

import pytest
from playwright.async_api import Page, Response

from tests.browser.conftest import Console
from tests.browser.test_pages import OVERFLOW
from tests.processes import ProcessFactory

EARLY = """localStorage.setItem('theme', 'dark'); window.early = [];
  new MutationObserver(() => window.early.push([document.documentElement?.className, !document.body]))
    .observe(document, { subtree: true, attributes: true, attributeFilter: ['class'] });"""
# The heights at which the parts of the header stand, those that are only spoken left out.
LINES = """() => new Set([...document.querySelectorAll('.bar > *')].filter(one => one.offsetHeight)
  .map(one => one.getBoundingClientRect())
  .map(box => Math.round((box.top + box.bottom) / 2 / 12))).size"""


async def attempt(page: Page) -> Response:
    """Log in as `admin` with a wrong password."""
    await page.fill("[name=username]", "admin")
    await page.fill("[name=password]", "wrong")
    async with page.expect_navigation(), page.expect_response(re.compile("/login")) as answered:
        await page.click("#enter")
    return await answered.value


async def test_too_many_logins_lead_to_the_login_which_counts_down(
    console: Console, processes: ProcessFactory
) -> None:
    node = processes.node(SCALABLE_LOGIN_ATTEMPTS="1", SCALABLE_LOGIN_WINDOW_SECONDS="3600")
    page = console.page
    await page.clock.install()
    await page.goto(f"{node.url}/login?next=/topics")
    assert (await attempt(page)).status == 200
    answer = await attempt(page)
    assert answer.status == 429
    wait_seconds = int(answer.headers["retry-after"])
    assert 3000 < wait_seconds <= 3600
    told = await page.inner_text("#wait")
    assert re.fullmatch(r"Too many attempts to log in\. Try again in (5\d|60) min \d+ s\.", told)
    assert await page.input_value("[name=username]") == "admin"
    assert await page.is_disabled("#enter")
    await page.clock.fast_forward(1000 * (wait_seconds - 60))
    await page.wait_for_function(
        "() => /in [0-9]+ seconds?[.]|in 1 min 0 s/.test(document.getElementById('wait').textContent)"
    )
    assert await page.is_disabled("#enter")
    await page.clock.fast_forward(61_000)
    await page.wait_for_selector('#wait >> text="You can try again now."')
    assert await page.is_enabled("#enter")


async def test_without_script_the_login_says_how_long(console: Console, processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_LOGIN_ATTEMPTS="1")
    browser = console.page.context.browser
    assert browser is not None
    page = await browser.new_page(java_script_enabled=False)
    await page.goto(f"{node.url}/login")
    assert [(await attempt(page)).status for _ in range(2)] == [200, 429]
    assert " seconds." in await page.inner_text("#wait")
    assert await page.is_enabled("#enter")


async def test_a_program_is_told_in_a_line(console: Console, processes: ProcessFactory) -> None:
    strict = processes.node(SCALABLE_LOGIN_ATTEMPTS="1")
    request = console.page.request
    await request.get(f"{strict.url}/login")
    token = next(one["value"] for one in await console.page.context.cookies() if one["name"] == "csrftoken")
    form: dict[str, str | float | bool] = {"username": "a", "password": "b", "csrfmiddlewaretoken": token}
    for _ in range(2):
        told = await request.post(f"{strict.url}/login", form=form, headers={"Accept": "*/*"})
    assert told.status == 429
    assert (await told.text()).startswith("Too many attempts to log in. Try again in ")


@pytest.mark.parametrize("width", [320, 390])
async def test_the_header_takes_two_lines_at_most_and_is_walked_in_order(
    console: Console, width: int
) -> None:
    page = console.page
    console.call("PUT", "scalable/public/default/narrow")
    await console.open("/topics")
    await page.set_viewport_size({"width": width, "height": 800})
    for path in ("/topics", "/topics/public/default/narrow", "/namespaces/public/default", "/jobs"):
        await page.goto(console.node.url + path)
        assert await page.evaluate(LINES) <= 2, path
        assert await page.evaluate(OVERFLOW) <= 0
    places, walked = page.locator(".bar a, .bar button"), []
    for index in range(await places.count()):
        box = await places.nth(index).bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 22, await places.nth(index).inner_text()
    await page.focus(".brand")
    for _ in range(await places.count() - 1):
        await page.keyboard.press("Tab")
        walked.append(
            await page.evaluate(
                "() => { const box = document.activeElement.getBoundingClientRect();"
                " return [Math.round(box.top / 24), box.left]; }"
            )
        )
    assert walked == sorted(walked)
    assert await page.get_by_role("button", name="Theme: auto").count() == 1
    assert await page.get_by_role("button", name="Log out admin").count() == 1


async def test_the_pages_of_rest_are_dark_before_anything_is_drawn(console: Console) -> None:
    page = console.page
    await console.open("/topics")
    await page.add_init_script(EARLY)
    await page.goto(f"{console.node.url}/docs")
    assert (await page.evaluate("() => window.early"))[0] == ["dark-mode", True]
    assert await page.inner_text("#theme") == "Theme: dark"
    await page.click("#theme")
    assert await page.inner_text("#theme") == "Theme: auto"
