"""What is shown is brought up to date in place: as if made afresh, but what stays is the same element."""

import random
from typing import Any

import pytest

from tests.browser.conftest import Console

STORIES = 200
STEPS = 8
RENEW = """async stories => { const { renew } = await import('/static/webui/js/renew.js');
  const made = ([key, tag, text, inner]) => {
    if (tag === null) return document.createTextNode(text);
    const one = document.createElement(tag);
    if (key !== null) one.dataset.key = key;
    if (text) one.title = text;
    one.append(...inner.map(made));
    return one; };
  const faults = [];
  for (const story of stories) {
    const place = document.createElement('div');
    let before = new Map();
    for (const step of story) {
      const twin = document.createElement('div');
      twin.append(...step.map(made));
      renew(place, step.map(made));
      if (!place.isEqualNode(twin)) faults.push([step, place.innerHTML]);
      const keyed = [...place.children].filter(one => one.dataset.key);
      for (const one of keyed) {
        const old = before.get(one.dataset.key);
        if (old && old.nodeName === one.nodeName && old !== one) faults.push(one.dataset.key);
      }
      before = new Map(keyed.map(one => [one.dataset.key, one]));
    }
  }
  return faults; }"""
KEPT = """() => { const row = document.querySelector('#segment-rows tr[data-segment="0"]');
  row.querySelector('[data-role="rebucket"]').focus();
  window.kept = { row, shape: document.querySelector('.segment[data-segment="0"]') };
  document.getSelection().selectAllChildren(row.querySelector('.code')); }"""
STILL = """() => { const { row, shape } = window.kept;
  return { row: row.isConnected, shape: shape.isConnected, role: document.activeElement.dataset.role,
    selected: document.getSelection().toString() }; }"""

FOCUSED = "() => document.activeElement.getAttribute('aria-label')"

Made = list[Any]


def nodes(chance: random.Random, depth: int = 0) -> list[Made]:
    """Make children at random: some with keys, each key once, some without, some text."""
    keys = chance.sample("abcdef", chance.randint(0, 5))
    keyed: list[Made] = [[key, chance.choice(("p", "p", "p", "b")), chance.choice("xyz"), []] for key in keys]
    others: list[Made] = [
        [None, chance.choice(("p", "i", None)), chance.choice("xyz"), []] for _ in range(chance.randint(0, 3))
    ]
    made = keyed + others
    chance.shuffle(made)
    for one in made:
        if one[1] is not None and depth < 2 and chance.random() < 0.3:
            one[3] = nodes(chance, depth + 1)
    return made


async def test_it_looks_like_what_is_made_afresh_and_keeps_what_stays(console: Console) -> None:
    await console.open("/topics")
    chance = random.Random(7)
    stories = [[nodes(chance) for _ in range(STEPS)] for _ in range(STORIES)]
    assert await console.page.evaluate(RENEW, stories) == []


async def test_a_split_elsewhere_leaves_focus_and_selection_alone(working: Console) -> None:
    page = working.page
    working.call("PUT", "scalable/public/default/calm?numInitialSegments=2")
    await working.open_topic("calm")
    await working.wait_for_segments(0, 1)
    await page.evaluate(KEPT)
    await split_elsewhere(working, "calm")
    still = {"row": True, "shape": True, "role": "rebucket", "selected": "0000–7fff"}
    assert await page.evaluate(STILL) == still


async def test_a_press_that_a_split_elsewhere_falls_into_is_not_lost(working: Console) -> None:
    page = working.page
    working.call("PUT", "scalable/public/default/pressed?numInitialSegments=2")
    await working.open_topic("pressed")
    await working.wait_for_segments(0, 1)
    place = await page.locator('.segment[data-segment="0"]').bounding_box()
    assert place is not None
    await page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    await page.mouse.down()
    await split_elsewhere(working, "pressed")
    await page.mouse.up()
    await page.wait_for_selector('.segment.selected[data-segment="0"]')


@pytest.mark.parametrize("is_first", [True, False], ids=["the dialog is closed first", "the row goes first"])
async def test_focus_stays_in_the_table_when_the_row_that_had_it_goes(
    working: Console, is_first: bool
) -> None:
    page, name = working.page, f"by-keys-{is_first}".lower()
    working.call("PUT", f"scalable/public/default/{name}?numInitialSegments=2")
    await working.open_topic(name)
    await working.wait_for_segments(0, 1)
    await page.focus('#segment-rows tr[data-segment="1"] [data-role="split"]')
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#confirm[open]")
    if is_first:
        await page.focus("#confirm-go")
        await page.keyboard.press("Enter")
        await working.wait_for_segments(0, 1, 2, 3)
    else:
        await split_elsewhere(working, name)
        await page.keyboard.press("Escape")
    await page.wait_for_selector('#segment-rows tr[data-segment="1"]', state="detached")
    await page.wait_for_selector("#confirm:not([open])", state="hidden")
    assert await page.evaluate(FOCUSED) == "Table of active segments"


async def split_elsewhere(console: Console, topic: str) -> None:
    """Split segment 1, and wait until the page has shown all of it."""
    console.call("POST", f"scalable/public/default/{topic}/split/1")
    await console.wait_for_segments(0, 1, 2, 3)
    await console.page.wait_for_selector(".operation .outcome.SUCCEEDED")
