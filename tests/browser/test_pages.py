"""The pages around the map: login, list, live changes, confirmed actions, refusals, themes, widths."""

import time

import pytest
from playwright.async_api import WebSocketRoute

from tests.browser.conftest import Console
from tests.processes import ProcessFactory

GROUND = "() => getComputedStyle(document.documentElement).backgroundColor"
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
TABLE_OVERFLOW = """() => { const place = document.querySelector("#segments").parentElement;
  return place.scrollWidth - place.clientWidth; }"""


async def test_login_says_when_it_fails_and_leads_back(console: Console) -> None:
    page = console.page
    await page.goto(f"{console.node.url}/topics/public/default/any")
    await page.fill("[name=username]", "admin")
    await page.fill("[name=password]", "wrong")
    await page.click("button.primary")
    assert "do not belong together" in await page.inner_text("[role=alert]")
    await console.open("/topics/public/default/any")
    assert page.url.endswith("/topics/public/default/any")


async def test_an_empty_list_says_what_to_do(console: Console) -> None:
    await console.open("/topics")
    await console.page.wait_for_selector('#empty:has-text("no topics yet")')


async def test_the_pages_of_rest_and_of_access_draw_under_their_policies(console: Console) -> None:
    page = console.page
    await console.open("/docs")
    await page.wait_for_selector(".opblock")
    for scheme, ground in (("dark", "rgb(28, 32, 34)"), ("light", "rgba(0, 0, 0, 0)")):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.wait_for_function(f"() => ({GROUND})() === '{ground}'")
    await page.goto(f"{console.node.url}/manage/")
    assert "Grants" in await page.inner_text("#content")
    await page.click("#content-main a[href='/manage/scalable/grant/add/']")
    await page.fill("#id_tenant", "public")
    await page.fill("#id_role", "worker")
    await page.select_option("#id_actions", ["consume"])
    await page.click("input[name=_save]")
    assert "was added successfully" in await page.inner_text(".messagelist")


async def test_topics_are_created_listed_and_found(console: Console) -> None:
    page = console.page
    for name in ("orders", "payments"):
        console.call("PUT", f"scalable/public/default/{name}?numInitialSegments=3")
    await console.open("/topics")
    await page.wait_for_selector("#rows tr:nth-child(2)")
    await page.fill("[name=search]", "PAY")
    await page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 1")
    assert (await page.inner_text("#rows tr")).split()[:2] == ["payments", "3"]
    await page.click("#create")
    await page.fill("#create-dialog [name=name]", "orders")
    await page.click("#create-dialog .primary")
    await page.wait_for_selector("#create-dialog .banner:not([hidden])")
    await page.fill("#create-dialog [name=name]", "shipments/éü")
    await page.fill("#create-dialog [name=name]", "shipments éü")
    await page.click("#create-dialog .primary")
    await page.wait_for_selector("#live.live")
    assert await page.inner_text("h1") == "shipments éü"


async def test_the_step_under_way_is_the_next_one_and_no_other(console: Console) -> None:
    console.call("PUT", "scalable/public/default/waiting")
    console.call("POST", "scalable/public/default/waiting/split/0", prefer="respond-async")
    await console.open_topic("waiting")
    steps = console.page.locator("#operations .steps li")
    await steps.first.wait_for()
    classes = [
        (await each.inner_text(), await each.get_attribute("class") or "") for each in await steps.all()
    ]
    assert [(text.split()[0], state) for text, state in classes] == [
        *(("planned", "done"), ("committed", "now"), ("notified", "")),
    ]


async def test_a_split_by_button_shows_without_reload(working: Console) -> None:
    page = working.page
    working.call("PUT", "scalable/public/default/clicked")
    await working.open_topic("clicked")
    await page.evaluate("() => { window.untouched = true; }")
    await page.click('#segment-rows tr[data-segment="0"] [data-role="split"]')
    assert "0000–7fff and 8000–ffff" in await page.inner_text("#confirm-body")
    await page.click("#confirm-go")
    await working.wait_for_segments(0, 1, 2)
    await page.wait_for_selector(".operation .outcome.SUCCEEDED")
    assert "Split 0 → 1, 2" in await page.inner_text("#operations")
    assert "notified" in await page.inner_text("#operations .steps")
    await page.check('#segment-rows tr[data-segment="1"] input')
    await page.check('#segment-rows tr[data-segment="2"] input')
    await page.click("#merge")
    await page.click("#confirm-go")
    await working.wait_for_segments(0, 1, 2, 3)
    assert await page.inner_text("#figure-active") == "1"
    assert await page.evaluate("() => window.untouched")


async def test_a_change_by_rest_shows_without_reload(working: Console) -> None:
    working.call("PUT", "scalable/public/default/remote")
    await working.open_topic("remote")
    await working.page.evaluate("() => { window.untouched = true; }")
    working.call("POST", "scalable/public/default/remote/split/0")
    await working.wait_for_segments(0, 1, 2)
    assert await working.page.inner_text("#figure-epoch") == "1"
    assert await working.page.evaluate("() => window.untouched")


async def test_an_action_on_an_old_picture_is_refused_in_the_dialog(working: Console) -> None:
    page = working.page
    working.call("PUT", "scalable/public/default/stale?numInitialSegments=2")
    await working.open_topic("stale")
    await page.click('#segment-rows tr[data-segment="0"] [data-role="split"]')
    working.call("POST", "scalable/public/default/stale/split/1")
    await page.click("#confirm-go")
    await page.wait_for_selector("#confirm .banner:not([hidden])")
    assert "epoch" in await page.inner_text("#confirm .banner")
    assert working.topic("stale")["epoch"] == 1
    await page.click("#confirm [value=cancel]")
    assert not await page.locator("#confirm").is_visible()


async def test_the_last_decision_and_its_reasons_are_shown(
    working: Console, processes: ProcessFactory
) -> None:
    processes.beat()
    working.call("PUT", "scalable/public/default/decided")
    policy = {"autoScaleIntervalSeconds": 1}
    working.call("POST", "scalable/public/default/decided/autoScalePolicy", policy)
    await working.open_topic("decided")
    await working.page.wait_for_selector("#decision .guards li", timeout=30_000)
    shown = await working.page.inner_text("#decision")
    decision = working.call("GET", "scalable/public/default/decided/decisions")["decisions"][0]
    assert (decision["action"], decision["rule"]) == (None, "LOAD_UNKNOWN")
    assert "No change · held by load unknown" in shown


async def test_a_deleted_topic_says_so_and_an_unknown_one_too(console: Console) -> None:
    console.call("PUT", "scalable/public/default/gone")
    await console.open_topic("gone")
    console.call("DELETE", "scalable/public/default/gone")
    await console.page.wait_for_selector("#live.gone")
    assert "deleted" in await console.page.inner_text("#banner")
    await console.open("/topics/public/default/never")
    await console.page.wait_for_selector("#live.gone")
    assert await console.page.locator("#banner").is_visible()


async def test_a_lost_connection_is_seen_and_comes_back_by_itself(console: Console) -> None:
    page = console.page
    console.call("PUT", "scalable/public/default/cut")
    links: list[WebSocketRoute] = []

    def carry(link: WebSocketRoute) -> None:
        link.connect_to_server()
        links.append(link)

    await page.route_web_socket("**/lookup/**", carry)
    await console.open_topic("cut")
    await page.evaluate("""() => { window.states = []; new MutationObserver(() =>
      window.states.push(document.getElementById("live").className)).observe(
      document.getElementById("live"), {attributes: true}); }""")
    await links[0].close(code=1011)
    await page.wait_for_function(
        "() => window.states.includes('state lost') && window.states.at(-1) === 'state live'"
    )
    assert await page.locator("#banner").is_hidden()


async def test_an_ended_session_leads_to_the_login(console: Console) -> None:
    page = console.page
    console.call("PUT", "scalable/public/default/ended")
    links: list[WebSocketRoute] = []

    def carry(link: WebSocketRoute) -> None:
        link.connect_to_server()
        links.append(link)

    await page.route_web_socket("**/lookup/**", carry)
    await console.open_topic("ended")
    await page.context.clear_cookies()
    await links[0].close(code=1011)
    await page.wait_for_url("**/login?next=*")


async def test_every_column_of_a_busy_topic_fits_on_a_wide_screen(console: Console) -> None:
    console.call("PUT", "scalable/public/default/busy?numInitialSegments=3")
    report = {"topic": "topic://public/default/busy", "incarnation": console.topic("busy")["incarnation"]}
    rates = {
        "msgRateIn": 1_234.0,
        "bytesRateIn": 456_789.0,
        "msgRateOut": 12_345.0,
        "bytesRateOut": 4_567_890.0,
    }
    loads = [{**report, "segmentId": number, **rates} for number in range(3)]
    body = {"reporter": "spark", "watermarkMs": round(time.time() * 1000), "loads": loads}
    console.call("POST", "scalable-load/reports", body, role="system")
    await console.open_topic("busy")
    await console.page.wait_for_function("() => document.querySelector('#segment-rows .gauge')")
    assert await console.page.evaluate(TABLE_OVERFLOW) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_both_themes_on_narrow_and_wide_screens(console: Console, scheme: str) -> None:
    page = console.page
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    console.call("PUT", "scalable/public/default/themed?numInitialSegments=4")
    for width in (390, 1400):
        await page.set_viewport_size({"width": width, "height": 900})
        await console.open_topic("themed")
        await console.wait_for_segments(0, 1, 2, 3)
        assert await page.evaluate(OVERFLOW) <= 0
    ground = await page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in ground.removeprefix("rgb(").removesuffix(")").split(","))
    assert (brightness > 380) == (scheme == "light")
    await page.click("#theme")
    assert await page.inner_text("#theme") == "Theme: light"
