"""Policies on pages of topics and namespaces: what holds and who set it, edited by keyboard, tried first."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from playwright.async_api import Page

from scalable.domain.access import Scope
from scalable.services import grants
from tests.api.peers import ask
from tests.browser.conftest import PASSWORD, Console
from tests.browser.test_pages import OVERFLOW

TOPIC = "scalable/public/default/ruled"
OWN = f"{TOPIC}/autoScalePolicy"
NAMESPACE = "namespaces/public/default/scalableTopicAutoScalePolicy"
OTHER = "() => [...document.querySelectorAll('#policy-fields legend')].map(one => one.textContent)"


async def rule(console: Console, policy: dict[str, Any]) -> Page:
    """Open the page of a topic with a policy of its own."""
    console.call("PUT", TOPIC)
    console.call("POST", OWN, policy)
    await console.open_topic("ruled")
    await console.page.wait_for_selector('#policy-rows tr[data-field="profile"]')
    return console.page


async def edit(page: Page) -> None:
    """Open the dialog by keyboard."""
    await page.focus("#policy-edit")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#policy-dialog[open]")


def row(name: str) -> str:
    """Select the line of a field."""
    return f'#policy-rows tr[data-field="{name}"]'


async def test_what_holds_is_shown_with_its_source(console: Console) -> None:
    console.call("POST", NAMESPACE, {"minSegments": 3})
    page = await rule(console, {"profile": "recommended", "maxSegments": 8})
    told = {
        name: (await page.locator(row(name)).locator("td").all_inner_texts())[1:]
        for name in ("profile", "maxSegments", "minSegments", "enabled", "splitMsgRateInThreshold")
    }
    assert told == {
        "profile": ["recommended", "topic"],
        "maxSegments": ["8", "topic"],
        "minSegments": ["3", "namespace"],
        "enabled": ["yes", "default"],
        "splitMsgRateInThreshold": ["11,500 messages/s", "profile"],
    }
    effective = console.call("GET", f"{OWN}/effective")
    await page.check("#policy-all")
    names = await page.locator("#policy-rows tr").evaluate_all("all => all.map(one => one.dataset.field)")
    assert sorted(names) == sorted(effective["policy"])


async def test_an_edit_is_tried_first_then_saved_by_keyboard_and_taken_back(console: Console) -> None:
    page = await rule(console, {"maxSegments": 8})
    await edit(page)
    assert await page.evaluate("() => document.activeElement.name") == "profile"
    assert "Other" not in await page.evaluate(OTHER)
    await page.select_option("#policy-field-profile", "recommended")
    await page.wait_for_selector("#policy-field-splitMsgRateInThreshold[placeholder='11,500']")
    await page.select_option("#policy-field-enabled", "false")
    await page.wait_for_selector("#policy-preview :text('disabled')")
    assert console.call("GET", OWN) == {"maxSegments": 8}
    await page.focus("#policy-field-minSegments")
    await page.keyboard.type("2")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#policy-dialog", state="hidden")
    saved = {"profile": "recommended", "enabled": False, "minSegments": 2, "maxSegments": 8}
    assert console.call("GET", OWN) == saved
    await page.wait_for_selector(f'{row("enabled")} >> text="no"')
    await edit(page)
    await page.focus('[data-field="maxSegments"] [data-role=inherit]')
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#policy-field-maxSegments[placeholder='64']")
    await page.click("#policy-save")
    await page.wait_for_selector(f'{row("maxSegments")} >> text="64"')
    del saved["maxSegments"]
    assert console.call("GET", OWN) == saved
    await edit(page)
    await page.click("#policy-inherit")
    await page.click("#policy-save")
    await page.wait_for_selector('#policy-summary >> text="profile pip-483, nothing set here"')
    assert console.call("GET", OWN) is None


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("maxSegments", "1", "maxSegments (1) is below minSegments (2)"),
        ("maxSegments", "many", "maxSegments cannot be 'many': it must be a whole number"),
        ("splitMsgRateInThreshold", "900", "(900) is not above mergeMsgRateInThreshold (1000)"),
    ],
)
async def test_what_is_refused_is_told_with_its_values_and_marked(
    console: Console, field: str, typed: str, said: str
) -> None:
    page = await rule(console, {"minSegments": 2})
    await edit(page)
    await page.fill(f"#policy-field-{field}", typed)
    await page.wait_for_selector("#policy-preview .banner.error")
    assert said in await page.inner_text("#policy-preview")
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog form > .banner:not([hidden])")
    assert said in await page.inner_text("#policy-dialog form > .banner")
    assert await page.get_attribute(f"#policy-field-{field}", "aria-invalid") == "true"
    assert await page.get_attribute("#policy-field-maxDagDepth", "aria-invalid") == "false"
    assert console.call("GET", OWN) == {"minSegments": 2}


async def test_who_was_overtaken_is_told_before_anything_is_replaced(working: Console) -> None:
    page = await rule(working, {"maxSegments": 8})
    await edit(page)
    await page.wait_for_selector("#policy-preview p")
    await page.fill("#policy-field-maxSegments", "16")
    working.call("POST", OWN, {"maxSegments": 9})
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog form > .banner:not([hidden])")
    assert "maxSegments was 8, is now 9" in await page.inner_text("#policy-dialog form > .banner")
    assert working.call("GET", OWN) == {"maxSegments": 9}
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog", state="hidden")
    assert working.call("GET", OWN) == {"maxSegments": 16}
    # The layout moves on under what was shown: refused once, told, and sent again with what is shown now.
    await edit(page)
    await page.wait_for_selector("#policy-preview p")
    working.call("POST", f"{TOPIC}/split/0")
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog form > .banner:not([hidden])")
    assert "epoch" in await page.inner_text("#policy-dialog form > .banner")
    await page.wait_for_function("() => document.getElementById('figure-epoch').textContent === '1'")
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog", state="hidden")


async def test_a_namespace_sets_policy_retention_and_grace(console: Console) -> None:
    page = console.page
    await console.open("/topics")
    await page.click("text=Policy and retention")
    await page.wait_for_url("**/namespaces/public/default")
    await page.wait_for_selector(row("profile"))
    await edit(page)
    assert await page.is_hidden("#policy-preview")
    await page.select_option("#policy-field-profile", "recommended")
    await page.fill("#policy-field-maxSegments", "0")
    await page.click("#policy-save")
    await page.wait_for_selector("#policy-dialog form > .banner:not([hidden])")
    assert "maxSegments (0) is below minSegments (1)" in await page.inner_text(
        "#policy-dialog form > .banner"
    )
    await page.fill("#policy-field-maxSegments", "12")
    await page.click("#policy-save")
    await page.wait_for_selector('#policy-summary >> text="profile recommended, 2 set here"')
    assert console.call("GET", NAMESPACE) == {"profile": "recommended", "maxSegments": 12}
    await page.click("#lifetimes-edit")
    await page.fill("[name=retentionSeconds]", "soon")
    await page.click("#lifetimes-dialog .primary")
    await page.wait_for_selector("#lifetimes-dialog .banner:not([hidden])")
    await page.fill("[name=retentionSeconds]", "3600")
    await page.click("#lifetimes-dialog .primary")
    await page.wait_for_selector('[data-field=retentionSeconds]:has-text("3,600 s (60 min), set here")')
    assert console.call("GET", "namespaces/public/default/lifetimes")["retentionSeconds"] == 3600
    console.call("PUT", TOPIC)
    await console.open_topic("ruled")
    await page.wait_for_selector('[data-field=retentionSeconds]:has-text("set by its namespace")')
    assert (await page.locator(row("maxSegments")).inner_text()).split() == ["maxSegments", "12", "namespace"]


async def test_who_has_no_right_looks_and_changes_nothing(console: Console) -> None:
    page = await rule(console, {"maxSegments": 8})
    await ask(_let_look, "looker")
    await page.context.clear_cookies()
    await page.goto(f"{console.node.url}/topics/public/default/ruled")
    await page.fill("[name=username]", "looker")
    await page.fill("[name=password]", PASSWORD)
    await page.click("button.primary")
    await page.wait_for_selector(row("maxSegments"))
    for control in ("#policy-edit", "#lifetimes-edit", "#delete-topic", "[data-role=split]"):
        await page.wait_for_selector(f"{control}[title]")
        assert await page.is_disabled(control), control
        assert "“admin”" in str(await page.get_attribute(control, "title")), control
    assert await page.locator("nav.places a").all_inner_texts() == ["Topics", "API"]
    await page.goto(f"{console.node.url}/namespaces/public/default")
    await page.wait_for_selector(row("profile"))
    assert await page.is_disabled("#policy-edit")


async def test_the_dialog_fits_narrow_and_wide_screens(console: Console) -> None:
    page = await rule(console, {"profile": "recommended"})
    for width in (320, 390, 1400):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate(OVERFLOW) <= 0
        await edit(page)
        await page.wait_for_selector("#policy-preview p")
        for part in ("#policy-dialog", "#policy-field-splitVsRebucketMinMsgRateInThreshold", "#policy-save"):
            await page.locator(part).scroll_into_view_if_needed()
            box = await page.locator(part).bounding_box()
            assert box is not None
            assert box["x"] >= 0, part
            assert box["x"] + box["width"] <= width, part
        await page.keyboard.press("Escape")


def _let_look(name: str) -> None:
    get_user_model().objects.create_user(name, password=PASSWORD)
    scope = Scope("public", "default")
    grants.grant(scope=scope, role=f"user:{name}", actions=["lookup"], actor="test")
