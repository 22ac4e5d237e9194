"""Stories of the autoscaler as text: each file is a story, and its transcript must come out as written."""

from pathlib import Path
from random import Random

import pytest

from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.layout import Layout
from tests.domain.scenario import Story, Traffic, play

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
HOURS = 48


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    text = path.read_text()
    assert play(text) == text


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10


def pruned(layout: Layout) -> Layout:
    """Forget all sealed segments, as a topic does whose consumers keep up."""
    while gone := [
        key for key, each in layout.segments.items() if not each.is_active and not each.parent_ids
    ]:
        layout = layout.prune(gone[0])
    return layout


def test_two_days_of_changing_load_never_end_in_an_unexplained_refusal() -> None:
    """Each hour the load changes and the scaler starts anew; it keeps deciding, and all stays bounded."""
    random, story = Random(7), Story()
    story.do_topic(segments="2", maxSegments="16", minSegments="2")
    changes = 0
    for _ in range(HOURS):
        story.traffic = [
            Traffic(random_range(random), {"msgRateIn": random.choice([0, 5e3, 4e4, 9e4])}, 0.1, 300)
        ]
        story.last_key = ""
        before = story.layout.epoch
        story.execute("run 1h")
        changes += story.layout.epoch - before
        check_settled(story)
        story.layout = pruned(story.layout)
        assert len(story.layout.segments) <= 16
    assert changes > HOURS


def random_range(random: Random) -> HashRange:
    return random.choice([FULL_RANGE, *FULL_RANGE.midpoint_split(), *FULL_RANGE.parts(8)])


def check_settled(story: Story) -> None:
    """After an hour of one load nothing is hot, unless the cap is named as the reason."""
    hot = [
        segment
        for segment in story.layout.active
        if sum(each.share(segment, "msgRateIn", story.now_ms) for each in story.traffic) > 11_000
    ]
    assert not hot or "MAX_SEGMENTS" in story.last_key
    assert 2 <= len(story.layout.active) <= 16


@pytest.mark.parametrize("rate", [9_000, 15_000, 39_000, 79_000, 150_000])
def test_a_step_of_load_converges_to_the_fewest_halvings_and_then_stands_still(rate: int) -> None:
    story = Story()
    story.execute("topic")
    story.execute(f"traffic msgRateIn={rate}")
    story.execute("run 40m")
    expected = 1
    while rate / expected > 10_000:
        expected *= 2
    assert len(story.layout.active) == expected
    assert story.layout.epoch == expected - 1
    story.execute("run 2h")
    assert story.layout.epoch == expected - 1


def test_an_idle_topic_only_ever_shrinks_and_ends_at_its_minimum() -> None:
    story = Story()
    story.execute("topic segments=8 minSegments=3")
    counts = [8]
    for _ in range(60):
        story.execute("run 1m")
        counts.append(len(story.layout.active))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 3
