"""Rings of tiles: minutes become tens and hours exactly, and the finest that is kept tells."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from django.db import connection

from scalable.domain.operations import OperationKind
from scalable.domain.rings import HOURS, MINUTES, RINGS, TENS, layers, lived_ms
from scalable.models import LoadTile, Segment
from scalable.services import loads, pruning
from scalable.services.topics import TopicView
from scalable.store.clock import database_now, milliseconds, moment
from tests.services.ageing import keep
from tests.topology import drive, make_topic, request

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def reported(topic: TopicView, minute_ms: int, rate: float, observed_ms: int = 60_000) -> dict[str, Any]:
    """Make the body of a tile whose parts differ."""
    mean = [rate * (part + 1) for part in range(32)]
    return {
        "topic": str(topic.name),
        "incarnation": topic.incarnation,
        "segmentId": 0,
        "minuteMs": minute_ms,
        "mean": mean,
        "max": [2 * value for value in mean],
        "observedMs": observed_ms,
    }


def row(topic: TopicView, minutes: int, start_ms: int) -> LoadTile:
    return LoadTile.objects.get(topic_id=topic.incarnation, span_minutes=minutes, minute=moment(start_ms))


@pytest.mark.parametrize("offset_ms", [0, 1, 59 * MINUTE_MS, HOUR_MS - 1, 17 * HOUR_MS + 12_345])
def test_the_layers_cover_the_past_once(offset_ms: int) -> None:
    now_ms = 1_795_737_600_000 + offset_ms
    hours, tens, minutes = layers(now_ms)
    assert (hours.ring, tens.ring, minutes.ring) == (HOURS, TENS, MINUTES)
    assert (hours.to_ms, tens.to_ms, minutes.to_ms) == (tens.from_ms, minutes.from_ms, None)
    for layer in (hours, tens, minutes):
        assert layer.from_ms % HOUR_MS == 0
        assert layer.ring.kept_ms <= now_ms - layer.from_ms < layer.ring.kept_ms + HOUR_MS


def test_a_ring_holds_a_bounded_number_of_tiles() -> None:
    assert sum((ring.kept_ms + HOUR_MS) // ring.width_ms for ring in RINGS) == 180 + 294 + 721


@pytest.mark.parametrize(
    ("observed", "start", "width", "created", "sealed", "lived"),
    [
        pytest.param(60_000, 0, 1, -9_000, 10_000, 10_000, id="the minute of the seal"),
        pytest.param(30_000, 0, 1, -9_000, 10_000, 10_000, id="a minute that runs"),
        pytest.param(8_000, 0, 1, -9_000, 10_000, 8_000, id="told until before the seal"),
        pytest.param(58_000, 0, 1, 2_000, 10_000, 8_000, id="created in it as well"),
        pytest.param(60_000, 0, 1, -9_000, 60_000, 60_000, id="sealed after it"),
        pytest.param(60_000, 0, 1, -9_000, -1, 60_000, id="sealed before it"),
        pytest.param(180_000, 0, 10, -9_000, 130_000, 130_000, id="a coarser one"),
        pytest.param(1_000, 0, 10, -9_000, 130_000, 0, id="a coarser one of little"),
        pytest.param(600_000, 0, 10, -9_000, 130_000, 130_000, id="read later"),
        pytest.param(420_000, 0, 10, 100_000, 130_000, 30_000, id="created in it and read later"),
    ],
)
def test_a_life_ends_at_its_seal(
    observed: int, start: int, width: int, created: int, sealed: int, lived: int
) -> None:
    day = 24 * HOUR_MS
    found = lived_ms(
        observed,
        start_ms=day + start,
        width_ms=width * MINUTE_MS,
        created_ms=day + created,
        sealed_ms=day + sealed,
    )
    assert found == lived


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("burst", "over_ms"),
    [(1_000_000, None), (2, 30_000), (1e-310, 60_000)],
    ids=["steady", "in a moment", "a largest rate below the mean"],
)
@pytest.mark.parametrize("is_pruned", [False, True], ids=["kept", "pruned"])
def test_what_was_hot_until_it_was_sealed_does_not_look_cold(
    burst: float, over_ms: int | None, is_pruned: bool
) -> None:
    """The same messages, over its life in the minute; and no more than the largest rate of an interval."""
    topic = make_topic("hot-until-sealed", segments=1)
    drive(request(OperationKind.SPLIT, topic))
    sealed = Segment.objects.get(topic_id=topic.incarnation, segment_id=0)
    assert sealed.sealed_at is not None
    minute_ms = milliseconds(sealed.sealed_at) // MINUTE_MS * MINUTE_MS
    sealed.created_at = moment(minute_ms - HOUR_MS)
    sealed.save(update_fields=["created_at"])
    body = reported(topic, minute_ms, 1.0) | {"max": [burst * (part + 1) for part in range(32)]}
    loads.report_tiles(tiles=[body])
    if is_pruned:
        keep(topic, 0)
        assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    (tile,) = loads.tiles(name=topic.name, from_ms=minute_ms, to_ms=minute_ms)
    lived = milliseconds(sealed.sealed_at) - minute_ms
    assert tile.observed_ms == (max(lived, over_ms) if over_ms else max(lived, 1))
    np.testing.assert_allclose(np.array(tile.mean) * tile.observed_ms, 60_000 * np.arange(1, 33))
    assert row(topic, 1, minute_ms).observed_ms == 60_000, "the autoscaler reads what was reported"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([60_000, 12_000], 60_000),
        ([12_000, 60_000], 60_000),
        ([12_000, 12_000], 12_000),
        ([5_000, 30_000, 60_000, 60_000, 1, 59_999], 60_000),
    ],
)
def test_of_a_minute_what_was_observed_for_longest_stays_and_then_the_newest(
    told: list[int], kept: int
) -> None:
    topic = make_topic("replaced", segments=1)
    minute_ms = (milliseconds(database_now()) // HOUR_MS - 1) * HOUR_MS
    for rate, observed_ms in enumerate(told, start=1):
        loads.report_tiles(tiles=[reported(topic, minute_ms, rate, observed_ms)])
    newest = max(rate for rate, observed_ms in enumerate(told, start=1) if observed_ms == kept)
    for span in (1, 10, 60):
        found = row(topic, span, minute_ms)
        assert (found.observed_ms, found.mean[0]) == (kept, newest)


@pytest.mark.django_db(transaction=True)
class TestRollUp:
    def test_minutes_become_tens_and_hours_exactly_in_whatever_order(self) -> None:
        topic = make_topic("rolled", segments=1)
        hour_ms = (milliseconds(database_now()) // HOUR_MS - 1) * HOUR_MS
        rates = [1.0 + number * number % 7 for number in range(60)]
        observed = [60_000 if number else 15_000 for number in range(60)]
        bodies = [
            reported(topic, hour_ms + number * MINUTE_MS, rates[number], observed[number])
            for number in range(60)
            if number not in (25, 26)  # minutes without samples have no tile
        ]
        wrong = reported(topic, hour_ms, 99.0, observed[0])
        for part in (bodies[40:], bodies[:10], bodies[5:45], [wrong], bodies[:1]):
            loads.report_tiles(tiles=part)
        known = [number for number in range(60) if number not in (25, 26)]
        for minutes in (10, 60):
            for start in range(0, 60, minutes):
                inside = [number for number in known if start <= number < start + minutes]
                found = row(topic, minutes, hour_ms + start * MINUTE_MS)
                weights = np.array([observed[number] for number in inside])
                mean = (np.array([rates[number] for number in inside]) * weights).sum() / weights.sum()
                assert found.observed_ms == weights.sum()
                np.testing.assert_allclose(found.mean, mean * np.arange(1, 33))
                np.testing.assert_allclose(found.peak, 2 * max(rates[n] for n in inside) * np.arange(1, 33))

    def test_the_running_minute_waits_until_it_is_over(self) -> None:
        topic = make_topic("running", segments=1)
        running_ms = milliseconds(database_now()) // MINUTE_MS * MINUTE_MS
        loads.report_tiles(tiles=[reported(topic, running_ms + MINUTE_MS, 1.0, 59_999)])
        assert set(LoadTile.objects.values_list("span_minutes", flat=True)) == {1}

    @pytest.mark.parametrize("ahead_minutes", [1, 2, 10])
    def test_a_pipeline_whose_clock_is_ahead_leaves_no_minute_out(self, ahead_minutes: int) -> None:
        topic = make_topic("ahead", segments=1)
        start_ms = (milliseconds(database_now()) // MINUTE_MS + ahead_minutes) * MINUTE_MS
        minutes = range(start_ms, start_ms + 3 * MINUTE_MS, MINUTE_MS)
        for minute_ms in minutes:
            loads.report_tiles(tiles=[reported(topic, minute_ms, 1.0)])
        for span in (10, 60):
            found = LoadTile.objects.filter(topic_id=topic.incarnation, span_minutes=span)
            assert sum(tile.observed_ms for tile in found) == 3 * MINUTE_MS

    @pytest.mark.parametrize("hours_ago", [0, 1])
    def test_a_minute_that_was_told_while_it_ran_is_rolled_up_with_the_next(self, hours_ago: int) -> None:
        topic = make_topic("told-early", segments=1)
        now_ms = milliseconds(database_now())
        last_ms = (now_ms // HOUR_MS - hours_ago) * HOUR_MS
        first_ms = last_ms - MINUTE_MS  # of another hour
        mine = {"topic_id": topic.incarnation, "segment_id": 0, "mean": [1.0] * 32, "peak": [1.0] * 32}
        LoadTile.objects.create(**mine, span_minutes=1, minute=moment(first_ms), observed_ms=20_000)
        loads.report_tiles(tiles=[reported(topic, last_ms, 1.0)])
        assert row(topic, 60, last_ms - HOUR_MS).observed_ms == 20_000

    def test_a_minute_after_the_end_of_its_ring_takes_nothing_from_what_is_older(self) -> None:
        topic = make_topic("oldest", segments=1)
        first_ms = MINUTES.start_ms(milliseconds(database_now()))
        mine = {"topic_id": topic.incarnation, "segment_id": 0, "mean": [1.0] * 32, "peak": [1.0] * 32}
        for span, start_ms in ((1, first_ms - MINUTE_MS), (10, first_ms - 10 * MINUTE_MS)):
            LoadTile.objects.create(**mine, span_minutes=span, minute=moment(start_ms), observed_ms=60_000)
        LoadTile.objects.filter(span_minutes=10).update(observed_ms=600_000)
        loads.report_tiles(tiles=[reported(topic, first_ms, 1.0)])
        assert row(topic, 10, first_ms - 10 * MINUTE_MS).observed_ms == 600_000

    def test_each_moment_is_told_by_the_finest_ring_that_has_it(self) -> None:
        topic = make_topic("layered", segments=1)
        now_ms = milliseconds(database_now())
        day_ms = now_ms // HOUR_MS * HOUR_MS - 24 * HOUR_MS
        week_ms = day_ms - 6 * 24 * HOUR_MS
        mine = {"topic_id": topic.incarnation, "segment_id": 0, "mean": [1.0] * 32, "peak": [1.0] * 32}
        for start_ms in (week_ms, day_ms):
            for span in (1, 10, 60):
                LoadTile.objects.create(**mine, span_minutes=span, minute=moment(start_ms))
        hour_ms = (now_ms // HOUR_MS - 1) * HOUR_MS
        loads.report_tiles(tiles=[reported(topic, hour_ms, 1.0)])
        found = loads.tiles(name=topic.name, from_ms=0, to_ms=now_ms)
        assert [(tile.minute_ms, tile.span_minutes) for tile in found] == [
            *((week_ms, 60), (day_ms, 10), (hour_ms, 1)),
        ]

    def test_the_minutes_that_a_migration_finds_are_rolled_up_alike(self) -> None:
        topic = make_topic("of-before", segments=1)
        now_ms = milliseconds(database_now())
        starts = [now_ms // HOUR_MS * HOUR_MS - hours * HOUR_MS for hours in (3 * 24, 5, 1)]
        rates = {start + number * MINUTE_MS: 1.0 + number for start in starts for number in (3, 4, 58)}
        bodies = [reported(topic, at, rate) for at, rate in rates.items()]
        LoadTile.objects.bulk_create(
            LoadTile(
                topic_id=topic.incarnation,
                segment_id=0,
                minute=moment(body["minuteMs"]),
                mean=body["mean"],
                peak=body["max"],
            )
            for body in bodies
        )
        with connection.cursor() as cursor:
            cursor.execute(import_module("scalable.migrations.0036_rings_of_tiles").ROLL)
        for start in starts:
            hour = row(topic, 60, start)
            assert hour.observed_ms == 3 * MINUTE_MS
            np.testing.assert_allclose(hour.mean, (4 + 5 + 59) / 3 * np.arange(1, 33))
            np.testing.assert_allclose(hour.peak, 2 * 59 * np.arange(1, 33))
        found = loads.tiles(name=topic.name, from_ms=0, to_ms=now_ms)
        assert [tile.span_minutes for tile in found] == [60, 10, 10, 1, 1, 1]
