"""What a node samples, on a clock of the test: nothing counted is dropped, whatever a topic's interval is."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from scalable.api.sampler import FORGET_AFTER_MS, IDLE_INTERVAL_MS, LONGEST_SAMPLE_MS
from tests.spark.nodes import START_MS, Node, Rows, sampled
from tests.spark.oracle import Message

TOPIC = 7
HOUR_MS = 3_600_000


class Clock:
    """A clock that stands until it is moved."""

    now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    """The clock of the test's node."""
    return Clock()


def node_of(clock: Clock, interval_ms: int) -> tuple[Node, Rows]:
    """Make a node, and what it asks for a topic of this interval."""
    rows = Rows({TOPIC: sampled("flights", TOPIC, interval_ms=interval_ms, window_ms=HOUR_MS)})
    return Node("n", rows, clock), rows


async def work(node: Node, clock: Clock, milliseconds: int) -> list[Message]:
    """Let time pass, the node's loop every 500 ms, and give what it published."""
    messages = []
    for _ in range(milliseconds // 500):
        clock.now_ms += 500
        messages += await node.work()
    return messages


def samples_of(messages: list[Message]) -> Iterator[tuple[int, int, int]]:
    """Start, end and messages in of each sample."""
    for message in messages:
        for sample in message["samples"]:
            yield message["atMs"] - sample["intervalMs"], message["atMs"], sample["msgIn"]


@pytest.mark.parametrize("interval_ms", [100, 700, 10_000, FORGET_AFTER_MS, HOUR_MS])
async def test_all_that_is_counted_is_told_once_and_without_overlap(clock: Clock, interval_ms: int) -> None:
    node, _ = node_of(clock, interval_ms)
    counted, messages = 0, []
    for busy in (5, 1, 0, 3, 0, 0, 0, 2, 2):
        for _ in range(busy):
            node.count(TOPIC, 0, 10)
            counted += 10
            messages += await work(node, clock, max(500, interval_ms // 3 // 500 * 500))
        messages += await work(node, clock, interval_ms // 500 * 500 if busy else 2 * FORGET_AFTER_MS)
    clock.now_ms += 1
    found = list(samples_of(messages + await node.finish()))
    assert sum(messages_in for *_, messages_in in found) == counted
    assert found[-1][2] == 0  # it fell idle
    assert all(end <= start for (_, end, _), (start, _, _) in pairwise(found))
    assert all(1 <= end - start <= LONGEST_SAMPLE_MS for start, end, _ in found)


async def test_what_is_counted_as_its_interval_ends_is_not_told_an_interval_later(clock: Clock) -> None:
    node, _ = node_of(clock, HOUR_MS)
    clock.now_ms = START_MS - START_MS % HOUR_MS + HOUR_MS - 1
    node.count(TOPIC, 0, 10)
    (sample,) = samples_of(await work(node, clock, 1_000))
    assert sample == (START_MS - START_MS % HOUR_MS + HOUR_MS - 1, clock.now_ms - 500, 10)


@pytest.mark.parametrize(("before_ms", "after_ms"), [(10_000, 60_000), (60_000, 10_000)])
async def test_a_change_of_the_interval_leaves_no_time_out(
    clock: Clock, before_ms: int, after_ms: int
) -> None:
    node, rows = node_of(clock, before_ms)
    messages = []
    for second in range(300):
        if second == 137:
            changed = sampled("flights", TOPIC, interval_ms=after_ms, window_ms=HOUR_MS)
            rows.topics[TOPIC] = changed
            await node.hear(TOPIC)
        node.count(TOPIC, 0, 10)
        messages += await work(node, clock, 1_000)
    found = list(samples_of(messages))
    assert all(end == start for (_, end, _), (start, _, _) in pairwise(found))
    assert all(counted == pytest.approx((end - start) / 100, abs=10) for start, end, counted in found)


@pytest.mark.parametrize("interval_ms", [500, 10_000, 60_000])
async def test_a_node_keeps_its_word_on_when_it_speaks_again(clock: Clock, interval_ms: int) -> None:
    node, rows = node_of(clock, interval_ms)
    messages = []
    for number in range(100):
        if 30 < number < 60:
            node.count(TOPIC, 0, 10)
        if number % 20 == 0:
            rows.make_segment(TOPIC, number)
        messages += await work(node, clock, 1_000)
    for earlier, later in pairwise(messages):
        assert later["atMs"] - earlier["atMs"] <= earlier["everyMs"] <= IDLE_INTERVAL_MS
