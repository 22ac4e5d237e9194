"""Takes the pictures of the README: the map of the demo in both themes, from an instance that runs it.

    ./run --data-dir .data & .venv/bin/python -m bench.pictures --data-dir .data

It waits until the topic has been split and merged and the load of each active segment was reported.
"""

import argparse
import asyncio
import json
import shutil
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
TOPIC = "/topics/public/default/flights"
MERGES = 3
PATIENCE_MS = 900_000
READY = """merges => document.querySelectorAll('.mark.merge').length >= merges
  && document.querySelectorAll('.mark.split').length > 0
  && !document.querySelector('.segment[data-state=ACTIVE][data-colour=unknown]')
  && document.querySelector('#live').classList.contains('live')"""
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def log_in(page: Page, url: str, password: str) -> None:
    """Enter as the first user, and open the topic."""
    await page.goto(f"{url}/login?next={TOPIC}")
    await page.fill("[name=username]", "admin")
    await page.fill("[name=password]", password)
    await page.click("button.primary")
    await page.wait_for_selector("#live.live")


async def take(browser: Browser, url: str, password: str, directory: Path) -> None:
    """Wait for a map worth a picture, and take it in both themes."""
    page = await browser.new_page(viewport={"width": 1400, "height": 860})
    await log_in(page, url, password)
    async with page.expect_response(lambda response: "/tiles" in response.url):
        await page.reload()
    await page.wait_for_function(READY, arg=MERGES, timeout=PATIENCE_MS)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await page.wait_for_function(READY, arg=MERGES, timeout=PATIENCE_MS)
        await page.evaluate(DRAWN)
        await page.screenshot(path=directory / f"map-{scheme}.png")


async def run(data_directory: Path, directory: Path) -> None:
    """Find the instance and a browser, and take the pictures."""
    url = json.loads((data_directory / "services.json").read_text())["url"]
    password = (data_directory / "admin-password").read_text().strip()
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        await take(browser, url, password, directory)
        await browser.close()


def main() -> None:
    """Read the options and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(".data"))
    parser.add_argument("--into", type=Path, default=IMAGES)
    options = parser.parse_args()
    asyncio.run(run(options.data_dir, options.into))


if __name__ == "__main__":
    main()
