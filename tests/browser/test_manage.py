"""Django's admin in a browser: lists and forms of users draw and work, and no page complains."""

from tests.browser.conftest import Console


async def test_users_are_listed_made_and_changed(console: Console) -> None:
    page, root = console.page, f"{console.node.url}/manage/"
    page.on("console", lambda line: console.errors.append(line.text) if line.type == "error" else None)
    await console.open("/topics")
    await page.goto(f"{root}auth/user/add/")
    await page.fill("#id_username", "bob")
    await page.fill("#id_password1", "a long secret 1")
    await page.fill("#id_password2", "a long secret 1")
    await page.click("input[name=_save]")
    assert "was added successfully" in await page.inner_text(".messagelist")
    await page.check("#id_is_superuser")
    await page.click("input[name=_save]")
    assert "was changed successfully" in await page.inner_text(".messagelist")
    assert "bob" in await page.inner_text("#result_list")
    await page.goto(f"{root}scalable/auditevent/?q=users/bob")
    shown = await page.inner_text("#result_list")
    assert "user.create" in shown
    assert "user.change" in shown
