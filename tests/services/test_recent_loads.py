"""The last minutes of load, as decisions read them from the database."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scalable.domain.autoscale import Decision, Snapshot
from scalable.domain.decision import Guard
from scalable.domain.policy import LONGEST_PEAK_SECONDS
from scalable.models import LoadTile, Topic
from scalable.services import loads, pruning, topics
from scalable.services.autoscaling import preview_decision
from scalable.services.evaluation_inputs import read_inputs
from scalable.services.topics import TopicView
from scalable.store.clock import milliseconds, moment
from tests.services.ageing import split
from tests.services.test_autoscaling import COLD, report, ruled
from tests.topology import layout_of

pytestmark = pytest.mark.django_db

MINUTE_MS = 60_000
PARTS = 32
PEAKS: dict[str, Any] = {"mergePeakSeconds": 1_200, "mergeTargetShare": 0.9}
MERGES: dict[str, Any] = {**PEAKS, "mergeMinAgeSeconds": 0}

_MANY_TILES = """
INSERT INTO scalable_loadtile (topic_id, segment_id, minute, mean, peak, span_minutes, observed_ms)
SELECT %(topic)s, segment_id, %(newest)s - make_interval(mins => back), %(mean)s, %(mean)s, 1, 60000
FROM generate_series(%(first)s, %(last)s) AS segment_id,
     generate_series(0, %(minutes)s - 1) AS back
"""


@pytest.fixture
def newest_ms() -> int:
    """Give the minute of the test's beginning."""
    return milliseconds(timezone.now()) // MINUTE_MS * MINUTE_MS


def report_minute(
    topic: TopicView, rates: Mapping[int, float], minute_ms: int, *, observed_ms: int = MINUTE_MS
) -> int:
    """Let the pipeline tell of a minute, and give of how many segments it was taken."""
    tiles = [
        {
            "topic": str(topic.name),
            "incarnation": topic.incarnation,
            "segmentId": segment_id,
            "minuteMs": minute_ms,
            "mean": [rate / PARTS] * PARTS,
            "max": [rate / PARTS] * PARTS,
            "observedMs": observed_ms,
        }
        for segment_id, rate in rates.items()
    ]
    return loads.report_tiles(tiles=tiles).written


def report_rates(topic: TopicView, rates: Mapping[int, float]) -> None:
    """Let the pipeline report rates of messages in."""
    report(topic, {key: {**COLD, "msgRateIn": rate} for key, rate in rates.items()})


def read(topic: TopicView) -> Snapshot:
    """Read what a decision about a topic is made from."""
    return read_many([topic])[0]


def read_many(given: Iterable[TopicView], *, now_ms: int | None = None) -> list[Snapshot]:
    """Read it for many topics at once."""
    return read_views([topics.get_topic(name=each.name) for each in given], now_ms=now_ms)


def read_views(views: Sequence[TopicView], *, now_ms: int | None = None) -> list[Snapshot]:
    moment_ms = milliseconds(timezone.now()) if now_ms is None else now_ms
    found = read_inputs(views, now_ms=moment_ms, complain=_fail)
    return [each.snapshot for each in found]


def _fail(topic: TopicView, error: Exception) -> None:
    raise error


def highest(snapshot: Snapshot) -> dict[int, float]:
    """Give the highest peak of messages in by segment."""
    return {
        key: max((peak.rates.msg_rate_in for peak in peaks), default=0.0)
        for key, peaks in snapshot.peaks.items()
    }


def told(topic: TopicView) -> tuple[Decision, dict[str, Guard]]:
    """Give what would be decided now, and the guards by their code."""
    decision, _ = preview_decision(name=topic.name)
    return decision, {guard.code.value: guard for guard in decision.held_by}


@pytest.mark.django_db(transaction=True)
def test_peaks_and_trends_of_a_segment_go_back_to_before_its_parent_was_pruned(newest_ms: int) -> None:
    topic = ruled(segments=1, **MERGES, lookAheadSeconds=20)
    for back, rate in ((9, 20_000.0), (3, 800.0), (2, 800.0), (1, 800.0)):
        report_minute(topic, {0: rate}, newest_ms - back * MINUTE_MS)
    split(topic, 0)
    split(topic, 1)
    assert sorted(pruning.prune_topic(incarnation=topic.incarnation)) == [0, 1]
    assert set(layout_of(topic).segments) == {2, 3, 4}
    report_rates(topic, {2: 400, 3: 200, 4: 200})
    snapshot = read(topic)
    assert highest(snapshot) == {2: 10_000, 3: 5_000, 4: 5_000}
    assert snapshot.trends.keys() == {2, 3, 4}
    decision, guards = told(topic)
    assert decision.action is None
    assert guards["RECENT_PEAK"].next_eligible_at_ms == newest_ms - 8 * MINUTE_MS + 1_200_000


@pytest.mark.django_db(transaction=True)
def test_the_last_minute_of_a_segment_is_told_also_after_it_was_pruned(newest_ms: int) -> None:
    topic = ruled(segments=1, **MERGES)
    split(topic, 0)
    assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    assert report_minute(topic, {0: 600.0}, newest_ms - MINUTE_MS) == 1
    assert report_minute(topic, {999: 600.0}, newest_ms - MINUTE_MS) == 0
    assert highest(read(topic)) == {1: 300, 2: 300}


@pytest.mark.django_db(transaction=True)
def test_the_minute_of_a_split_is_no_peak(newest_ms: int) -> None:
    topic = ruled(segments=1, **MERGES)
    split(topic, 0)
    report_minute(topic, {0: 1_200.0 * 5 / 6}, newest_ms - MINUTE_MS)
    report_minute(topic, {1: 600.0, 2: 600.0}, newest_ms - MINUTE_MS, observed_ms=10_000)
    report_minute(topic, {1: 600.0, 2: 600.0}, newest_ms, observed_ms=5_000)
    report_rates(topic, {1: 600, 2: 600})
    snapshot = read(topic)
    assert highest(snapshot) == {1: 0, 2: 0}
    assert snapshot.peaks.keys() == {1, 2}
    assert told(topic)[0].kind == "MERGE"


@pytest.mark.parametrize(
    ("policy", "guard"), [(MERGES, "PEAK_UNKNOWN"), ({"lookAheadSeconds": 20}, "TREND_UNKNOWN")]
)
def test_an_option_that_lacks_what_it_needs_holds_still_and_says_so(
    policy: dict[str, Any], guard: str, newest_ms: int
) -> None:
    topic = ruled(segments=2, **policy, minSegments=1)
    report_rates(topic, {0: 100, 1: 5_000})
    decision, guards = told(topic)
    assert (decision.action, guard in guards) == (None, True)
    for back in range(3):
        report_minute(topic, {0: 100.0, 1: 5_000.0}, newest_ms - back * MINUTE_MS)
    assert guard not in told(topic)[1]


def test_an_idle_topic_lacks_nothing() -> None:
    topic = ruled(segments=2, **MERGES, lookAheadSeconds=20)
    report(topic, {0: COLD, 1: COLD})
    decision, guards = told(topic)
    assert (decision.kind, guards) == ("MERGE", {})


def test_what_is_known_of_a_topic_does_not_depend_on_those_that_are_read_with_it(newest_ms: int) -> None:
    """Neither on how long the others look back, nor on how many minutes they have."""
    views = [
        ruled("short", segments=2, **PEAKS),
        ruled("none", segments=2),
        ruled("trend", segments=2, lookAheadSeconds=60),
        ruled("long", segments=2, **{**PEAKS, "mergePeakSeconds": LONGEST_PEAK_SECONDS}),
        ruled("balanced", segments=2, loadBalancedSplit=True),
    ]
    for view in views:
        report_rates(view, {0: 50, 1: 60})
        fill(view, newest_ms, segments=(0, 1), minutes=60, rate=100.0)
        fill(view, newest_ms, segments=(10, 1_009), minutes=11, rate=1.0)
        report_minute(view, {0: 5_000.0}, newest_ms - 15 * MINUTE_MS)
        report_minute(view, {1: 9_000.0}, newest_ms - 40 * MINUTE_MS)
    now_ms = milliseconds(
        timezone.now()
    )  # a minute that begins between two looks would change what is recent
    alone = [read_many([view], now_ms=now_ms)[0] for view in views]
    together = read_many(views, now_ms=now_ms)
    for one, other in zip(alone, together, strict=True):
        assert (one.heat, one.trends, one.peaks) == (other.heat, other.trends, other.peaks)
    assert highest(together[0]) == pytest.approx({0: 5_000, 1: 100})
    assert highest(together[3]) == pytest.approx({0: 5_000, 1: 9_000})


def fill(topic: TopicView, newest_ms: int, *, segments: tuple[int, int], minutes: int, rate: float) -> None:
    """Write the last minutes of many segments, also of such as are long forgotten."""
    with connection.cursor() as cursor:
        cursor.execute(
            _MANY_TILES,
            {
                "topic": topic.incarnation,
                "newest": moment(newest_ms),
                "mean": [rate],
                "first": segments[0],
                "last": segments[1],
                "minutes": minutes,
            },
        )


def test_peaks_count_for_an_hour_at_most_and_no_longer_is_told(newest_ms: int) -> None:
    topic = ruled(segments=2, **MERGES)
    stored = {**(topic.auto_scale_policy or {}), "mergePeakSeconds": 7_200}  # as an older version let it be
    Topic.objects.filter(pk=topic.incarnation).update(auto_scale_policy=stored)
    topic = topics.get_topic(name=topic.name)
    report_rates(topic, {0: 100, 1: 100})
    report_minute(topic, {0: 100.0, 1: 100.0}, newest_ms)
    report_minute(topic, {0: 90_000.0}, newest_ms - 100 * MINUTE_MS)
    report_minute(topic, {0: 50_000.0}, newest_ms - 30 * MINUTE_MS)
    assert LoadTile.objects.filter(topic_id=topic.incarnation, span_minutes=1).count() == 4
    assert highest(read(topic)) == {0: 50_000, 1: 0}
    guard = told(topic)[1]["RECENT_PEAK"]
    assert guard.next_eligible_at_ms == newest_ms - 29 * MINUTE_MS + LONGEST_PEAK_SECONDS * 1_000


def test_the_number_of_statements_is_that_of_one_topic(newest_ms: int) -> None:
    views = [ruled(f"topic {number}", segments=2, profile="recommended") for number in range(6)]
    for view in views:
        report_rates(view, {0: 50, 1: 60})
        fill(view, newest_ms, segments=(0, 3), minutes=4, rate=10.0)
    views = [topics.get_topic(name=view.name) for view in views]
    with CaptureQueriesContext(connection) as of_one:
        read_views(views[:1])
    with CaptureQueriesContext(connection) as of_all:
        read_views(views)
    assert len(of_all) == len(of_one)
