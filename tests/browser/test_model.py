"""The page's own reduction of watch frames: a snapshot and its deltas add up to a fresh snapshot."""

import json
import random
from typing import Any

import msgspec

from scalable.domain.layout import Layout
from scalable.services.watching import Topology, delta, snapshot
from scalable.wire.frames import Delta, Snapshot, TopicDetail, encode
from tests.api.test_watch_frames import change, state_of
from tests.browser.conftest import Console

STORIES = 20
CHANGES = 30
KINDS = ("split", "split", "merge", "prune", "reserve", "leader", "detail")
REDUCE = """async ([first, frames]) => { const { reduce } = await import('/static/webui/js/model.js');
  let topic = reduce(null, first);
  for (const frame of frames) topic = reduce(topic, frame);
  return topic && { ...topic,
    segments: [...topic.segments.values()].sort((a, b) => a.segmentId - b.segmentId) }; }"""


def plain(frame: Snapshot | Delta) -> Any:
    """Give the frame as the page reads it."""
    return json.loads(encode(frame))


def story(seed: int) -> tuple[Topology, list[Delta], Topology]:
    """Make a random history: where it began, its deltas, and where it ended."""
    chance = random.Random(seed)
    layout = Layout.initial(chance.randint(1, 4), 0)
    first = state = told = state_of(layout, revision=1, detail=TopicDetail())
    deltas = []
    for _ in range(CHANGES):
        state, layout = change(state, layout, chance.choice(KINDS), chance.randrange(1000))
        if not told.looks_like(state):
            deltas.append(delta(told, state))
            told = state
    return first, deltas, told


async def reduced(console: Console, first: Snapshot, frames: list[Any]) -> Any:
    return await console.page.evaluate(REDUCE, [plain(first), frames])


async def test_the_page_reduces_frames_to_what_a_fresh_snapshot_says(console: Console) -> None:
    await console.open("/topics")
    for seed in range(STORIES):
        first, deltas, last = story(seed)
        frames = [plain(frame) for frame in deltas]
        fresh = await reduced(console, snapshot(last), [])
        assert await reduced(console, snapshot(first), frames) == fresh
        # What was heard before, or comes twice, changes nothing.
        assert await reduced(console, snapshot(first), [*frames, *frames, plain(snapshot(first))]) == fresh


async def test_the_page_asks_again_when_a_delta_is_missing(console: Console) -> None:
    await console.open("/topics")
    first, deltas, _ = story(1)
    assert len(deltas) > 2
    assert await reduced(console, snapshot(first), [plain(deltas[1])]) is None
    foreign = plain(replace_incarnation(deltas[0]))
    assert (await reduced(console, snapshot(first), [foreign]))["revision"] == 1


def replace_incarnation(frame: Delta) -> Delta:
    """Give the delta as one of another life of the topic's name."""
    return msgspec.structs.replace(frame, incarnation=frame.incarnation + 1)
