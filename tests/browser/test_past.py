"""What was pruned stays on the map while it is remembered: rectangles, marks, edges, and the walk by keys."""

from datetime import UTC, datetime, timedelta
from typing import Any

from scalable.models import PrunedSegment
from tests.api.peers import ask
from tests.browser.conftest import Console
from tests.browser.picture import expected_edges, expected_marks

ROOT = "scalable/public/default"
KEPT_BY_THE_PAGE = 500
EDGES = ".edge", "all => all.map(one => [Number(one.dataset.parent), Number(one.dataset.child)])"
DRAWN_PRUNED = "count => document.querySelectorAll('.segment[data-state=\"PRUNED\"]').length === count"
FOCUSED = "() => Number(document.activeElement.dataset.segment)"
# A page that was away while a segment was split and pruned: it knew it as active, and then no more.
AFTER_A_GAP = """async ([path, incarnation]) => {
  const { Past } = await import('/static/webui/js/past.js');
  const known = (one) => [one.segmentId, { parentIds: [], childIds: [], ...one }];
  const topic = (epoch, ...segments) => ({ incarnation, epoch, segments: new Map(segments.map(known)) });
  let more;
  const read = () => new Promise(resolve => { more = resolve; });
  const past = new Past(path, () => more(), () => undefined);
  const first = read();
  past.follow(topic(0, { segmentId: 0, state: 'ACTIVE' }));
  await first;
  const second = read(), late = Date.now() + 3600000;
  Date.now = () => late;
  const now = topic(2, { segmentId: 1, state: 'ACTIVE' }, { segmentId: 2, state: 'ACTIVE' });
  past.follow(now);
  await second;
  return [...past.joined(now).segments.values()]
    .map(one => [one.segmentId, one.state, one.parentIds, one.childIds]); }"""


def prune(console: Console, name: str, *segment_ids: int) -> None:
    """Prune segments now, in this order, as their retention would."""
    for segment_id in segment_ids:
        one = console.topic(name)["segments"][str(segment_id)]
        low, high = one["hashRange"]["start"], one["hashRange"]["end"]
        descriptor = f"{low:04x}-{high:04x}-{segment_id}"
        console.call("DELETE", f"segments/public/default/{name}/{descriptor}", role="system")


def reshape(console: Console, name: str) -> dict[str, Any]:
    """Split, merge and rebucket one half of a topic; give its metadata while all is kept."""
    console.call("PUT", f"{ROOT}/{name}?numInitialSegments=2")
    for change in ("split/0", "split/2", "merge/4/5", "rebucket/3?bucketCount=3"):
        console.call("POST", f"{ROOT}/{name}/{change}")
    whole: dict[str, Any] = console.topic(name)
    return whole


def remember(incarnation: int, number: int, begun: datetime) -> None:
    """Put so many pruned segments into a topic's history, each the child of the one before."""
    PrunedSegment.objects.bulk_create(
        PrunedSegment(
            topic_id=incarnation,
            segment_id=segment_id,
            hash_start=0,
            hash_end=65_535,
            parent_ids=[segment_id - 1],
            child_ids=[segment_id + 1],
            created_epoch=segment_id,
            sealed_epoch=segment_id + 1,
            created_at=begun + timedelta(seconds=segment_id),
            sealed_at=begun + timedelta(seconds=segment_id + 1),
            pruned_at=begun + timedelta(seconds=segment_id + 1),
            end_offset=0,
        )
        for segment_id in range(1, number + 1)
    )


async def check_picture(console: Console, whole: dict[str, Any]) -> None:
    """All edges and marks are there that were when all was kept."""
    await console.wait_for_segments(*range(8))
    assert {tuple(edge) for edge in await console.page.eval_on_selector_all(*EDGES)} == expected_edges(whole)
    assert await console.page.locator(".mark").count() == expected_marks(whole) == 4
    parents = console.page.locator('#segment-rows tr[data-segment="6"] td').nth(10)
    assert await parents.inner_text() == "4, 5"


async def test_marks_and_edges_outlive_the_segments_that_they_come_from(working: Console) -> None:
    whole = reshape(working, "outlived")
    await working.open_topic("outlived")
    await check_picture(working, whole)
    prune(working, "outlived", 0, 2, 4, 5, 3)
    await working.page.wait_for_function(DRAWN_PRUNED, arg=5)
    await check_picture(working, whole)
    await working.page.reload()
    await working.page.wait_for_function(DRAWN_PRUNED, arg=5)
    await check_picture(working, whole)


async def test_the_dag_is_walked_into_what_was_pruned_and_back(working: Console) -> None:
    reshape(working, "ancestors")
    prune(working, "ancestors", 0, 2, 4, 5, 3)
    await working.open_topic("ancestors")
    await working.page.wait_for_function(DRAWN_PRUNED, arg=5)
    await working.page.focus('.segment[data-segment="6"]')
    for key, wanted in [("Left", 5), ("Left", 2), ("Left", 0), ("Right", 3), ("Right", 7), ("Down", 6)]:
        await working.page.keyboard.press(f"Arrow{key}")
        assert await working.page.evaluate(FOCUSED) == wanted
    for _ in range(3):
        await working.page.keyboard.press("ArrowLeft")
    assert await working.page.inner_text("#spoken") == "Segment 0, pruned, 0x0000 to 0x7fff, children 2, 3"
    told = await working.page.inner_text("#selected")
    assert "PRUNED" in told
    assert "epoch 1" in told


async def test_a_walk_reaches_back_before_what_is_in_sight_and_reset_returns(working: Console) -> None:
    working.call("PUT", f"{ROOT}/before")
    working.call("POST", f"{ROOT}/before/split/0")
    prune(working, "before", 0)
    await working.open_topic("before")
    await working.page.wait_for_selector(".mark.split")
    await working.wait_for_segments(1, 2)
    await working.page.focus('.segment[tabindex="0"]')
    await working.page.keyboard.press("ArrowLeft")
    assert await working.page.evaluate(FOCUSED) == 0
    await working.wait_for_segments(0, 1, 2)
    assert await working.page.locator(".edge.related").count() == 2
    await working.page.keyboard.press("r")
    await working.wait_for_segments(1, 2)


async def test_a_page_that_was_away_learns_what_came_and_went_meanwhile(working: Console) -> None:
    working.call("PUT", f"{ROOT}/away")
    working.call("POST", f"{ROOT}/away/split/0")
    prune(working, "away", 0)
    await working.open("/topics")
    incarnation = working.topic("away")["incarnation"]
    found = await working.page.evaluate(AFTER_A_GAP, [f"/admin/v2/{ROOT}/away", incarnation])
    assert sorted(found) == [[0, "PRUNED", [], [1, 2]], [1, "ACTIVE", [0], []], [2, "ACTIVE", [0], []]]


async def test_the_page_remembers_a_bounded_number_the_last_ones(console: Console) -> None:
    console.call("PUT", f"{ROOT}/long")
    topic = console.topic("long")
    begun = datetime.fromtimestamp(topic["createdAtMs"] / 1000, UTC) - timedelta(hours=1)
    await ask(remember, topic["incarnation"], KEPT_BY_THE_PAGE + 200, begun)
    await console.open_topic("long")
    await console.page.select_option("#span", "21600000")
    await console.page.wait_for_function(DRAWN_PRUNED, arg=KEPT_BY_THE_PAGE)
    newest = f'.segment[data-segment="{KEPT_BY_THE_PAGE + 200}"]'
    assert await console.page.locator(newest).count() == 1
