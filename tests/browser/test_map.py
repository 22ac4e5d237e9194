"""The map shows what REST says: rectangles, edges, marks and colours; and it can be walked by keyboard."""

import time
from typing import Any

import pytest

from tests.browser.conftest import Console
from tests.browser.picture import Axes, colour, expected_edges, expected_marks

PIXEL = 1.5
BOXES = """() => Object.fromEntries([...document.querySelectorAll('.segment')].map(one => {
  const sides = ['x', 'y', 'width', 'height'].map(side => [side, Number(one.getAttribute(side))]);
  return [one.dataset.segment, Object.fromEntries(sides)]; }))"""
PAINTED = """([x, y]) => { const canvas = document.querySelector('#map canvas');
  const dots = canvas.width / canvas.clientWidth;
  return [...canvas.getContext('2d').getImageData(x * dots, y * dots, 1, 1).data].slice(0, 3); }"""
GROUND = """() => { const one = document.querySelector('#map .ground');
  return { x: one.offsetLeft, y: one.offsetTop, width: one.offsetWidth, height: one.offsetHeight }; }"""
# An hour wide, ending 2 % behind now: the ground begins where the topic does, give or take a pixel.
BEGINS_AT = """bornMs => { const map = document.querySelector('#map'), left = 52, right = 14;
  const wide = (map.clientWidth - left - right) * (Date.now() - bornMs) / (3600000 * 1.02);
  return Math.abs(map.querySelector('.ground').offsetWidth - wide) <= 2; }"""
RATES = {3: 9_500.0, 4: 5_000.0, 5: 400.0, 6: 12_000.0}


def grow(console: Console, name: str) -> None:
    """Make a topic of seven segments: split 0, then both of its children."""
    console.call("PUT", f"scalable/public/default/{name}")
    for segment_id in (0, 1, 2):
        console.call("POST", f"scalable/public/default/{name}/split/{segment_id}")


def report(console: Console, name: str, rates: dict[int, float]) -> None:
    """Report known loads as the pipeline does."""
    incarnation = console.topic(name)["incarnation"]
    loads = [
        {
            "topic": f"topic://public/default/{name}",
            "incarnation": incarnation,
            "segmentId": segment_id,
            "msgRateIn": rate,
            "bytesRateIn": rate * 10,
            "msgRateOut": rate,
            "bytesRateOut": rate * 10,
        }
        for segment_id, rate in rates.items()
    ]
    body = {"reporter": "test", "watermarkMs": int(time.time() * 1000), "loads": loads}
    console.call("POST", "scalable-load/reports", body, role="system")


async def boxes_of(console: Console) -> dict[int, dict[str, float]]:
    found: dict[str, dict[str, float]] = await console.page.evaluate(BOXES)
    return {int(segment_id): box for segment_id, box in found.items()}


def covers(box: dict[str, float], point: dict[str, float]) -> bool:
    """Tell whether a point lies in a rectangle."""
    return (
        box["x"] <= point["x"] <= box["x"] + box["width"]
        and box["y"] <= point["y"] <= box["y"] + box["height"]
    )


async def place_of(console: Console) -> dict[str, float]:
    """Give where the ground lies below the rectangles."""
    found: dict[str, float] = await console.page.evaluate(GROUND)
    return found


async def freeze(console: Console) -> None:
    """Hold the page's clock, so that a picture can be measured while it would move on."""
    await console.page.evaluate("() => { const now = Date.now(); Date.now = () => now; }")
    await console.page.click("#reset")


async def test_rectangles_lie_where_range_and_time_say(working: Console) -> None:
    grow(working, "drawn")
    working.call("POST", "scalable/public/default/drawn/merge/4/5")
    await working.open_topic("drawn")
    await working.wait_for_segments(*range(8))
    await freeze(working)
    topic, boxes = working.topic("drawn"), await boxes_of(working)
    axes = Axes(topic, boxes)
    for one in topic["segments"].values():
        box = boxes[one["segmentId"]]
        assert box["x"] == pytest.approx(axes.x(one["createdAtMs"]), abs=PIXEL)
        assert box["y"] == pytest.approx(axes.y(one["hashRange"]["end"] + 1), abs=PIXEL)
        assert box["y"] + box["height"] == pytest.approx(axes.y(one["hashRange"]["start"]), abs=PIXEL)
        if one["state"] == "SEALED":
            assert box["x"] + box["width"] == pytest.approx(axes.x(one["sealedAtMs"]), abs=PIXEL)


async def test_edges_and_marks_are_those_of_the_dag(working: Console) -> None:
    grow(working, "linked")
    working.call("POST", "scalable/public/default/linked/merge/4/5")
    working.call("POST", "scalable/public/default/linked/rebucket/7?bucketCount=3")
    await working.open_topic("linked")
    await working.wait_for_segments(*range(9))
    edges = await working.page.eval_on_selector_all(
        ".edge", "all => all.map(one => [Number(one.dataset.parent), Number(one.dataset.child)])"
    )
    topic = working.topic("linked")
    assert {tuple(edge) for edge in edges} == expected_edges(topic)
    assert await working.page.locator(".mark").count() == expected_marks(topic) == 5
    assert await working.page.locator(".mark.merge").count() == 1
    assert await working.page.locator(".mark.rebucket").get_attribute("data-children") == "8"


async def test_what_was_pruned_is_shown_as_such_and_nothing_before_the_topic(working: Console) -> None:
    grow(working, "pruned")
    for descriptor in ("0000-ffff-0", "8000-ffff-2"):
        working.call("DELETE", f"segments/public/default/pruned/{descriptor}", role="system")
    await working.open_topic("pruned")
    await working.wait_for_segments(*range(1, 7))
    ground = working.page.locator("#map .ground")
    assert "repeating-linear-gradient" in await ground.evaluate(
        "one => getComputedStyle(one).backgroundImage"
    )
    await freeze(working)
    boxes = await boxes_of(working)
    hole = {"x": boxes[1]["x"] + boxes[1]["width"] / 2, "y": boxes[6]["y"] + 5}
    assert await working.page.evaluate(PAINTED, [hole["x"], hole["y"]]) == [0, 0, 0]
    assert [segment_id for segment_id, box in boxes.items() if covers(box, hole)] == [2]
    assert await working.page.get_attribute('.segment[data-segment="2"]', "data-state") == "PRUNED"
    assert covers(await place_of(working), hole)
    await working.page.select_option("#span", "3600000")
    await working.page.wait_for_function(BEGINS_AT, arg=working.topic("pruned")["createdAtMs"])


async def test_colours_are_those_of_known_loads(working: Console) -> None:
    grow(working, "coloured")
    report(working, "coloured", RATES)
    await working.open_topic("coloured")
    await working.wait_for_segments(*range(7))
    await working.page.wait_for_function(
        "() => document.querySelector('.segment[data-segment=\"6\"]').dataset.colour !== 'unknown'"
    )
    await freeze(working)
    loads = working.call("GET", "scalable/public/default/coloured/loads")["segments"]
    effective = working.call("GET", "scalable/public/default/coloured/autoScalePolicy/effective")
    policy, boxes = effective["policy"], await boxes_of(working)
    wanted = {segment_id: colour(loads[str(segment_id)], policy) for segment_id in RATES}
    for segment_id, (red, green, blue) in wanted.items():
        shape = working.page.locator(f'.segment[data-segment="{segment_id}"]')
        assert await shape.get_attribute("data-colour") == f"rgb({red}, {green}, {blue})"
        box = boxes[segment_id]
        painted = await working.page.evaluate(
            PAINTED, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
        )
        assert painted == [red, green, blue]
    assert len(set(wanted.values())) == len(RATES)


async def test_a_sealed_segment_without_load_is_drawn_as_sealed_and_an_active_one_as_unknown(
    working: Console,
) -> None:
    grow(working, "still")
    report(working, "still", {segment_id: rate for segment_id, rate in RATES.items() if segment_id != 5})
    await working.open_topic("still")
    await working.wait_for_segments(*range(7))
    await working.page.wait_for_function(
        "() => document.querySelector('.segment[data-segment=\"6\"]').dataset.colour !== 'unknown'"
    )
    await freeze(working)
    boxes, painted = await boxes_of(working), {}
    for segment_id, wanted in {0: "sealed", 1: "sealed", 2: "sealed", 5: "unknown"}.items():
        shape = working.page.locator(f'.segment[data-segment="{segment_id}"]')
        assert await shape.get_attribute("data-colour") == wanted
        told = await shape.get_attribute("aria-label") or ""
        await shape.focus()
        await working.page.keyboard.press("Enter")
        for words in (told, await working.page.inner_text("#spoken")):
            assert ("load unknown" in words) is (wanted == "unknown"), words
            assert "sealed" in words or wanted == "unknown"
        box = boxes[segment_id]
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        places = [[middle[0], middle[1] + step] for step in range(-8, 9)]
        painted[segment_id] = {tuple(await working.page.evaluate(PAINTED, place)) for place in places}
    swatch = working.page.locator("#legend .hatch.sealed")
    colour_of_legend = await swatch.evaluate("one => getComputedStyle(one).backgroundColor")
    assert all(painted[each] == painted[0] for each in (1, 2))
    assert [f"rgb{shade}" for shade in painted[0]] == [colour_of_legend]
    assert len(painted[5]) > 1, "it is hatched"


async def test_tiles_colour_the_parts_of_a_segment(console: Console) -> None:
    console.call("PUT", "scalable/public/default/tiled")
    topic = console.topic("tiled")
    rates = [0.0] * 16 + [10_000 / 32] * 16
    tile: dict[str, Any] = {
        "topic": "topic://public/default/tiled",
        "incarnation": topic["incarnation"],
        "segmentId": 0,
        "minuteMs": topic["createdAtMs"] // 60_000 * 60_000,
        "mean": rates,
        "max": rates,
    }
    console.call("POST", "scalable-load/tiles", {"tiles": [tile]}, role="system")
    await console.open_topic("tiled")
    await console.wait_for_segments(0)
    box = (await boxes_of(console))[0]
    left = box["x"] + 2
    await console.page.wait_for_function(
        f"() => JSON.stringify(({PAINTED})([{left}, {box['y'] + 20}])) === '[253,231,37]'"
    )
    painted = await console.page.evaluate(PAINTED, [left, box["y"] + box["height"] - 20])
    assert painted == [68, 1, 84]


async def test_the_dag_is_walked_by_keyboard(working: Console) -> None:
    grow(working, "walked")
    await working.open_topic("walked")
    await working.wait_for_segments(*range(7))
    await working.page.focus('.segment[tabindex="0"]')
    focused = "() => Number(document.activeElement.dataset.segment)"
    walk = [("ArrowLeft", 1), ("ArrowLeft", 0), ("ArrowRight", 2), ("ArrowRight", 6), ("ArrowDown", 5)]
    for key, wanted in walk:
        await working.page.keyboard.press(key)
        assert await working.page.evaluate(focused) == wanted
    spoken = await working.page.inner_text("#spoken")
    assert spoken.startswith("Segment 5, active, 0x8000 to 0xbfff")
    assert "parents 2" in spoken
    assert await working.page.locator(".edge.related").count() == 2


async def test_a_brush_zooms_and_r_resets(working: Console) -> None:
    grow(working, "zoomed")
    await working.open_topic("zoomed")
    await working.wait_for_segments(*range(7))
    place = await working.page.locator("#map svg").bounding_box()
    assert place is not None
    await working.page.mouse.move(place["x"] + 200, place["y"] + 20)
    await working.page.mouse.down()
    await working.page.mouse.move(place["x"] + place["width"] - 60, place["y"] + 90, steps=4)
    await working.page.mouse.up()
    shown = await boxes_of(working)
    assert 6 in shown
    assert 3 not in shown
    await working.page.focus('.segment[data-segment="6"]')
    await working.page.keyboard.press("r")
    await working.wait_for_segments(*range(7))
