"""From counts of nodes to loads and tiles: nothing is told before it is complete, and all of it is told."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest

from spark.recent import KNOWN_AFTER, minute_of
from spark.state import LATE_MS, LoadState, LoadUpdate
from tests.spark.nodes import START_MS, TICK_MS, Node, Rows, messages_of, sampled
from tests.spark.oracle import MINUTE_MS, Message, rows_of

TOPIC, OTHER = 7, 8
MESSAGES = 200
"""That a node counts each tick."""
INTERVALS = [(1, 5), (10, 60), (10, 20), (7, 30), (45, 60), (60, 60), (90, 120), (120, 120)]
"""Seconds of loadReportInterval and rateWindow."""


class Pipeline:
    """Some nodes, and the load report that reads their messages in the order in which they are published."""

    def __init__(self, interval_ms: int, window_ms: int, *, skews_ms: Iterable[int] = (0, 0, 0)) -> None:
        other = sampled("other", OTHER, interval_ms=1_000, window_ms=5_000)
        topic = sampled("flights", TOPIC, interval_ms=interval_ms, window_ms=window_ms)
        self.now_ms = START_MS
        self.rows = Rows({TOPIC: topic, OTHER: other})
        self.nodes = [
            Node(f"node-{skew_ms}-{n}", self.rows, self.clock(skew_ms)) for n, skew_ms in enumerate(skews_ms)
        ]
        self.state = LoadState()
        self.updates: list[LoadUpdate] = []
        self.held: dict[Node, list[Message]] = {}
        self.offset = 0

    def clock(self, skew_ms: int) -> Callable[[], int]:
        return lambda: self.now_ms + skew_ms

    async def tick(self, *, late: Random | None = None) -> None:
        """Let a tick pass; with `late` a node's loop is now and then not in time."""
        self.now_ms += TICK_MS
        for node in self.nodes:
            if late is None or late.random() < 0.7:
                self.publish(node, await node.work())

    def publish(self, node: Node, messages: list[Message]) -> None:
        """Bring a node's messages to the load report, unless they are held up."""
        if node in self.held:
            self.held[node] += messages
        elif messages:
            rows = rows_of(messages, self.offset)
            self.offset += len(messages)
            self.updates.append(self.state.step(rows, now_ms=self.now_ms))

    def count(self, segment_id: int = 0, *, messages: int = MESSAGES, incarnation: int = TOPIC) -> None:
        """Count the same on each node."""
        for node in self.nodes:
            node.count(incarnation, segment_id, messages)

    def loads(self, segment_id: int = 0) -> Iterator[tuple[int, float]]:
        """The messages a second that were told of a segment, each with its watermark."""
        for update in self.updates:
            for load in update.loads:
                if (load["incarnation"], load["segmentId"]) == (TOPIC, segment_id):
                    assert update.watermark_ms is not None
                    yield update.watermark_ms, load["msgRateIn"]

    def told(self, of: str = "tiles") -> dict[int, float]:
        """The messages of the topic that tiles or rows of the history tell, by minute."""
        found: dict[int, float] = defaultdict(float)
        entries = [entry for update in self.updates for entry in getattr(update, of)]
        for (incarnation, _, minute_ms), messages in messages_of(entries).items():
            if incarnation == TOPIC:
                found[minute_ms] += messages
        return found


def seconds(number: float) -> range:
    return range(round(number * 1000) // TICK_MS)


@pytest.mark.parametrize(("interval", "window"), INTERVALS)
async def test_a_steady_load_is_told_as_steady_whatever_else_makes_nodes_speak(
    interval: int, window: int
) -> None:
    pipeline = Pipeline(interval * 1000, window * 1000)
    late, made = Random(interval), 1
    pipeline.rows.make_segment(TOPIC, 0)
    for tick in seconds(400):
        pipeline.count()
        pipeline.count(incarnation=OTHER)
        if tick % 166 == 0:
            pipeline.rows.make_segment(OTHER, made := made + 1)
        await pipeline.tick(late=late)
    rate = len(pipeline.nodes) * MESSAGES * 1000 / TICK_MS
    told = list(pipeline.loads())
    assert told
    assert [found for _, found in told] == [pytest.approx(rate, rel=0.03)] * len(told)
    assert sum(update.late for update in pipeline.updates) == 0


@pytest.mark.parametrize("of", ["tiles", "minutes"])
@pytest.mark.parametrize(("interval", "window"), INTERVALS)
async def test_all_messages_reach_the_tiles_and_the_history(interval: int, window: int, of: str) -> None:
    pipeline, random = Pipeline(interval * 1000, window * 1000), Random(window)
    counted = 0
    for tick in range(1500):
        busy = random.random() < 0.9 and tick % 350 < 300
        for node in pipeline.nodes if busy else []:
            node.count(TOPIC, tick % 2, messages := random.randint(1, 500))
            counted += messages
        await pipeline.tick(late=random)
    for _ in seconds(2 * interval + 61):
        await pipeline.tick()
    assert sum(pipeline.told(of).values()) == pytest.approx(counted)
    minutes = pipeline.told(of)
    assert sorted(minutes) == list(range(min(minutes), max(minutes) + 1, MINUTE_MS))


@pytest.mark.parametrize(("interval", "window"), INTERVALS)
async def test_a_new_segment_is_unknown_until_it_was_there_for_half_a_window(
    interval: int, window: int
) -> None:
    pipeline = Pipeline(interval * 1000, window * 1000)
    born = {}
    for tick in seconds(3 * interval + 2 * window):
        pipeline.count()
        if tick == 97:  # of no interval's end
            for child in (1, 2):
                pipeline.rows.make_segment(TOPIC, child)
                born[child] = pipeline.now_ms
        if tick > 97:
            pipeline.count(1)  # the other one stays idle
        await pipeline.tick()
    for child, born_ms in born.items():
        first_ms, rate = next(pipeline.loads(child))
        assert first_ms - born_ms >= window * 1000 * KNOWN_AFTER
        assert (rate > 0) == (child == 1)


@pytest.mark.parametrize("seconds_more", [1, 13, 59])
async def test_a_node_that_ends_tells_the_part_of_an_interval_as_a_part(seconds_more: int) -> None:
    pipeline = Pipeline(60_000, 60_000, skews_ms=[0, 0])
    ending = pipeline.nodes[0]
    for _ in range((-START_MS % MINUTE_MS + 2 * MINUTE_MS) // TICK_MS + len(seconds(seconds_more))):
        pipeline.count()
        await pipeline.tick()
    last = await ending.finish()
    (sample,) = last[-1]["samples"]
    assert sample["intervalMs"] == pytest.approx(seconds_more * 1000, abs=2 * TICK_MS)
    assert sample["msgIn"] * TICK_MS == pytest.approx(MESSAGES * sample["intervalMs"], rel=0.25)
    assert sample["everyMs"] == 60_000


class TestLateNodes:
    """A node that was cut off publishes what it counted meanwhile when it comes back."""

    async def come_back(self, seconds_away: int) -> Pipeline:
        pipeline = Pipeline(10_000, 60_000)
        late = pipeline.nodes[0]
        for _ in seconds(95):
            pipeline.count()
            await pipeline.tick()
        pipeline.held[late] = []
        for _ in seconds(seconds_away):
            pipeline.count()
            await pipeline.tick()
        pipeline.publish(late, pipeline.held.pop(late))
        for _ in seconds(130):
            pipeline.count()
            await pipeline.tick()
        return pipeline

    @pytest.mark.parametrize("of", ["tiles", "minutes"])
    @pytest.mark.parametrize("seconds_away", [35, 100, 250])
    async def test_its_messages_are_in_the_minutes_that_were_told_before(
        self, seconds_away: int, of: str
    ) -> None:
        pipeline = await self.come_back(seconds_away)
        whole = len(pipeline.nodes) * MESSAGES * MINUTE_MS / TICK_MS
        minutes = [messages for _, messages in sorted(pipeline.told(of).items())]
        assert minutes[1 : 2 + seconds_away // 60] == [pytest.approx(whole, rel=0.01)] * (
            1 + seconds_away // 60
        )
        assert sum(update.late for update in pipeline.updates) == 0

    async def test_a_minute_that_was_let_go_stays_as_it_was_told(self) -> None:
        pipeline = await self.come_back(2 * LATE_MS // 1000)
        told: dict[int, list[float]] = defaultdict(list)
        for update in pipeline.updates:
            for (_, _, minute_ms), messages in messages_of(update.minutes).items():
                told[minute_ms].append(messages)
        assert all(again >= first for first, *more in told.values() for again in more)
        assert sum(update.late for update in pipeline.updates) > 0

    async def test_while_all_speak_no_minute_is_kept_that_has_ended(self) -> None:
        pipeline = Pipeline(1_000, 5_000)
        for _ in seconds(200):
            pipeline.count()
            await pipeline.tick()
        for series in pipeline.state.series.values():
            assert min(sample.end_ms for sample in series.samples) >= minute_of(series.told_ms)


class TestClocks:
    """Nodes whose clocks differ from the others' and the reader's."""

    @pytest.mark.parametrize("skew_seconds", [1, 45, 59, -20])
    async def test_a_clock_that_differs_leaves_the_others_as_they_are(self, skew_seconds: int) -> None:
        pipeline = Pipeline(10_000, 60_000, skews_ms=[0, 0, skew_seconds * 1000])
        for _ in seconds(400):
            pipeline.count()
            await pipeline.tick()
        rate = len(pipeline.nodes) * MESSAGES * 1000 / TICK_MS
        told = [found for watermark_ms, found in pipeline.loads() if watermark_ms > START_MS + 200_000]
        assert told == [pytest.approx(rate, rel=0.01)] * len(told)
        assert pipeline.state.watermark_ms is not None
        assert pipeline.now_ms - 31_000 <= pipeline.state.watermark_ms <= pipeline.now_ms

    async def test_a_clock_far_ahead_makes_loads_unknown_until_its_node_is_gone(self) -> None:
        pipeline = Pipeline(10_000, 60_000)
        for _ in seconds(100):
            pipeline.count()
            await pipeline.tick()
        before_ms = pipeline.state.watermark_ms
        wrong = Node("wrong", pipeline.rows, pipeline.clock(3_600_000))
        pipeline.nodes.append(wrong)
        await pipeline.tick()
        for _ in seconds(100):
            await pipeline.tick()
        assert pipeline.state.watermark_ms == before_ms
        assert pipeline.updates[-1].ahead == ["wrong"]
        pipeline.nodes.remove(wrong)
        for _ in seconds(60):
            await pipeline.tick()
        assert pipeline.state.watermark_ms is not None
        assert pipeline.now_ms - pipeline.state.watermark_ms <= 10_000
        assert pipeline.updates[-1].ahead == []


@pytest.mark.parametrize("extra_ms", [1, 400, 9_999])
@pytest.mark.parametrize("told", [{"everyMs": 10_000}, {}], ids=["told", "of an earlier version"])
def test_a_message_between_two_others_makes_no_node_silent(extra_ms: int, told: dict[str, Any]) -> None:
    state, numbers = LoadState(), {"quiet": 0, "other": 0}

    def speak(node: str, at_ms: int) -> int | None:
        head = {"node": node, "sequence": numbers[node], "atMs": at_ms, "complete": True, **told}
        numbers[node] += 1
        return state.step(rows_of([{**head, "samples": []}]), now_ms=START_MS + 10**6).watermark_ms

    for at_ms in range(START_MS, START_MS + 60_000, 10_000):
        speak("quiet", at_ms)
        last_ms = at_ms
        speak("other", at_ms)
    speak("quiet", last_ms + extra_ms)
    for later_ms in range(1_000, 15_000, 1_000):
        assert speak("other", last_ms + extra_ms + later_ms) == last_ms + extra_ms


def test_what_is_passed_over_is_counted() -> None:
    state = LoadState()
    head = {"node": "n", "everyMs": 1_000, "complete": True}
    numbers = [3, 4, 7, 7, 5, 8, 20]
    messages = [{**head, "sequence": n, "atMs": START_MS + n, "samples": []} for n in numbers]
    rows = [{**row, "broken": row["sequence"] == 8} for row in rows_of(messages)]
    unreadable = dict.fromkeys([*rows[0]], None)
    update = state.step([*rows, unreadable], now_ms=START_MS + 10**6)
    assert (update.missing, update.repeats, update.messages) == (2 + 11, 2, 5)
    assert (update.broken, update.samples, update.unreadable) == (1, 0, 1)
