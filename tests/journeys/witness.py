"""A browser that looks on while the product runs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM

LOOK_MS = 300
SHOWN = "all => all.map(one => Number(one.dataset.segment))"


@dataclass
class Witness:
    """What was seen on a topic's page that was opened once and never loaded again."""

    segments: set[int] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    reloaded: bool = False

    def look(self, page: Page) -> None:
        """Note what the map shows now."""
        self.segments |= set(page.eval_on_selector_all(".segment", SHOWN))
        self.marks |= set(page.eval_on_selector_all(".mark", "all => all.map(one => one.dataset.mark)"))
        self.reloaded = self.reloaded or not page.evaluate("() => window.untouched === true")


def watch_topic(process: subprocess.Popen[str], *, url: str, path: str, data_directory: Path) -> Witness:
    """Log in as soon as the topic exists, and look at its page until the process has ended."""
    witness = Witness()
    if CHROMIUM is None or not _exists(process, f"{url}/admin/v2/scalable/{path}", data_directory):
        return witness
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.goto(f"{url}/topics/{path}")
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", (data_directory / "admin-password").read_text().strip())
        page.click("button.primary")
        page.wait_for_selector("#live.live")
        page.evaluate("() => { window.untouched = true; }")
        while process.poll() is None:
            witness.look(page)
            page.wait_for_timeout(LOOK_MS)
        browser.close()
    return witness


def _exists(process: subprocess.Popen[str], url: str, data_directory: Path) -> bool:
    """Ask for the topic until it is there; tell False when the process ends before."""
    while process.poll() is None:
        try:
            token = (data_directory / "admin-token").read_text().strip()
            if httpx.get(url, headers={"Authorization": f"Bearer {token}"}).is_success:
                return True
        except (OSError, httpx.TransportError):
            pass
        try:
            process.wait(LOOK_MS / 1000)
        except subprocess.TimeoutExpired:
            continue
    return False
