"""A real Chromium on a real node: a page that is logged in, and REST beside it to compare with."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from django.contrib.auth import get_user_model
from playwright.async_api import Browser, Page, async_playwright

from tests.processes import LiveNode, ProcessFactory

PASSWORD = "a password for one test"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, and skip them with advice where there is no browser."""
    for item in items:
        if "tests/browser/" not in item.path.as_posix():
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)  # the browser's own loop
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium found: install it (apt install chromium)"))


@dataclass(frozen=True)
class Console:
    """A dashboard in a browser, and the REST API of the same node."""

    page: Page
    node: LiveNode
    errors: list[str]

    async def open(self, path: str) -> None:
        """Go to a page of the dashboard, through the login when it asks."""
        await self.page.goto(self.node.url + path)
        if "/login" in self.page.url:
            await self.page.fill("[name=username]", "admin")
            await self.page.fill("[name=password]", PASSWORD)
            await self.page.click("button.primary")
            await self.page.wait_for_url(self.node.url + path)

    async def open_topic(self, name: str) -> None:
        """Open a topic's page and wait until its watch is live."""
        await self.open(f"/topics/public/default/{name}")
        await self.page.wait_for_selector("#live.live")

    async def wait_for_segments(self, *ids: int) -> None:
        """Wait until the map shows just these segments."""
        wanted = sorted(ids)
        await self.page.wait_for_function(
            "ids => JSON.stringify([...document.querySelectorAll('.segment')]"
            ".map(one => Number(one.dataset.segment)).sort((a, b) => a - b)) === JSON.stringify(ids)",
            arg=wanted,
        )

    def call(
        self, method: str, path: str, body: object = None, *, role: str = "admin", prefer: str = ""
    ) -> Any:
        """Call REST and give the body of the answer."""
        token = self.node.admin_token if role == "admin" else self.node.system_token
        answer = httpx.request(
            method,
            f"{self.node.url}/admin/v2/{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}", "Prefer": prefer},
            timeout=40,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def topic(self, name: str) -> Any:
        """Read a topic's metadata."""
        return self.call("GET", f"scalable/public/default/{name}")


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium, once for all tests: each has a context of its own."""
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        await running.close()


@pytest.fixture
def administrator(transactional_db: None) -> None:
    """Make the superuser who logs in."""
    get_user_model().objects.create_superuser("admin", password=PASSWORD)


@pytest_asyncio.fixture(loop_scope="session")
async def console(administrator: None, live_node: LiveNode, browser: Browser) -> AsyncIterator[Console]:
    """Open an empty page; whatever the page's scripts complain about fails the test."""
    page = await browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(60_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
    yield Console(page, live_node, errors)
    for context in browser.contexts:
        await context.close()
    assert errors == []


@pytest.fixture
def working(console: Console, processes: ProcessFactory) -> Console:
    """Open an empty page, with a worker that carries out splits, merges and evaluations."""
    processes.worker(concurrency=2)
    return console
