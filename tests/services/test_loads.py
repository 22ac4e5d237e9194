"""Load reports: written on a material change, watermark, tiles, what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from scalable import announce
from scalable.domain.decision import GuardCode
from scalable.domain.errors import InvalidParameter, LoadReportUnreadable, TopicNotFound
from scalable.domain.load import IDLE_INTERVAL_SECONDS
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind
from scalable.models import LoadTile
from scalable.services import loads, topics
from scalable.services.autoscaling import evaluate_due_topics, evaluate_topic, preview_decision
from scalable.services.loads import ReportOutcome
from scalable.services.topics import TopicView
from scalable.store.clock import milliseconds, moment
from scalable.wire.loads import MAX_RATE, MAX_REPORTED_LOADS, MAX_REPORTED_TILES
from tests.topology import ACTOR, drive, make_topic, request

pytestmark = pytest.mark.django_db

MINUTE_MS = 60_000


def now_ms() -> int:
    return milliseconds(timezone.now())


def this_minute_ms() -> int:
    return now_ms() // MINUTE_MS * MINUTE_MS


def load(of: TopicView, segment_id: int = 0, rate: float = 100.0, **fields: Any) -> dict[str, Any]:
    """One segment's load; keywords replace or add fields."""
    return {
        "topic": str(of.name),
        "incarnation": of.incarnation,
        "segmentId": segment_id,
        "msgRateIn": rate,
        "bytesRateIn": rate * 100,
        "msgRateOut": 0,
        "bytesRateOut": 0.0,
        **fields,
    }


def tile(of: TopicView, minute_ms: int, rate: float = 1.0, **fields: Any) -> dict[str, Any]:
    """One segment's minute; keywords replace or add fields."""
    return {
        "topic": str(of.name),
        "incarnation": of.incarnation,
        "segmentId": 0,
        "minuteMs": minute_ms,
        "mean": [rate] * 32,
        "max": [rate * 2] * 32,
        **fields,
    }


def report(*entries: dict[str, Any], watermark_ms: int | None = None, reporter: str = "r") -> ReportOutcome:
    return loads.report_loads(
        reporter=reporter, watermark_ms=watermark_ms or now_ms() - 1000, loads=list(entries)
    )


def rate_of(topic: TopicView, segment_id: int = 0) -> float | None:
    record = loads.topic_loads(name=topic.name).loads.get(segment_id)
    return None if record is None else record.rates.msg_rate_in


@pytest.fixture
def heard() -> Iterator[list[announce.Notice]]:
    """The notices that left during the test."""
    notices: list[announce.Notice] = []
    announce.listen(notices.append)
    yield notices
    announce.silence(notices.append)


class TestMaterialChange:
    def test_only_a_change_of_more_than_a_quarter_is_written(self) -> None:
        topic = make_topic()
        rates = [100.0, 125.0, 80.0, 126.0, 126.0 * 1.25, 200.0, 149.0, 0.0, 0.0, 0.001]
        written = [report(load(topic, rate=rate)).written for rate in rates]
        assert written == [1, 0, 0, 1, 0, 1, 1, 1, 0, 1]

    def test_the_time_is_that_of_the_last_material_change(self) -> None:
        topic = make_topic()
        before_ms = now_ms()
        report(load(topic, rate=100))
        first = loads.topic_loads(name=topic.name).loads[0].modified_at_ms
        report(load(topic, rate=101))
        assert before_ms <= first <= now_ms()
        assert loads.topic_loads(name=topic.name).loads[0].modified_at_ms == first
        report(load(topic, rate=500))
        assert loads.topic_loads(name=topic.name).loads[0].modified_at_ms > first

    def test_watchers_hear_of_written_loads_only(
        self, heard: list[announce.Notice], django_capture_on_commit_callbacks: Any
    ) -> None:
        topic = make_topic()
        with django_capture_on_commit_callbacks(execute=True):
            report(load(topic, 0), load(topic, 1))
        revision = topics.get_topic(name=topic.name).revision
        assert heard == [announce.TopicChanged(topic.incarnation, str(topic.name), revision)]
        assert revision == topic.revision + 1
        with django_capture_on_commit_callbacks(execute=True):
            report(load(topic, 0), load(topic, 1))
        assert len(heard) == 1
        assert topics.get_topic(name=topic.name).revision == revision

    def test_of_two_loads_of_a_segment_the_later_counts(self) -> None:
        topic = make_topic()
        assert report(load(topic, rate=1), load(topic, rate=2)) == ReportOutcome(1, 0, 0)
        assert rate_of(topic) == 2


class TestUnknown:
    def test_what_is_gone_or_sealed_is_counted_and_the_rest_is_written(self) -> None:
        topic = make_topic()
        drive(request(OperationKind.SPLIT, topic))
        entries = [
            load(topic, 0),
            load(topic, 1),
            load(topic, 99),
            load(topic, 1, incarnation=topic.incarnation + 1000),
            load(topic, 2, topic="topic://public/default/another"),
        ]
        assert report(*entries) == ReportOutcome(written=1, unchanged=0, unknown=4)
        assert set(loads.topic_loads(name=topic.name).loads) == {1}

    def test_a_topic_of_the_same_name_made_later_is_another(self) -> None:
        topic = make_topic()
        topics.delete_topic(name=topic.name, actor=ACTOR)
        again = make_topic()
        assert report(load(topic)).unknown == 1
        assert rate_of(again) is None

    def test_a_sealed_segment_shows_no_load(self) -> None:
        topic = make_topic()
        report(load(topic, 0))
        drive(request(OperationKind.SPLIT, topic))
        assert rate_of(topic) is None


class TestWatermark:
    def test_it_moves_forward_only_and_an_older_report_changes_nothing(self) -> None:
        topic = make_topic()
        later_ms = now_ms() - 1000
        report(load(topic, rate=10), watermark_ms=later_ms)
        assert report(load(topic, rate=999), watermark_ms=later_ms - 1) == ReportOutcome(0, 1, 0)
        assert rate_of(topic) == 10
        assert loads.topic_loads(name=topic.name).watermark_ms == later_ms

    def test_a_repeat_at_the_same_watermark_is_heard(self) -> None:
        topic = make_topic()
        at_ms = now_ms() - 1000
        report(load(topic, 0), watermark_ms=at_ms)
        assert report(load(topic, 1), watermark_ms=at_ms).written == 1

    def test_one_from_the_future_counts_as_now(self) -> None:
        topic = make_topic()
        report(watermark_ms=now_ms() + 3_600_000)
        watermark_ms = loads.topic_loads(name=topic.name).watermark_ms
        assert watermark_ms is not None
        assert watermark_ms <= now_ms()

    def test_loads_are_unknown_without_one_and_when_it_is_older_than_three_windows(self) -> None:
        topic = make_topic()
        topics.set_auto_scale_policy(
            name=topic.name,
            override={"rateWindowSeconds": 20, "loadReportIntervalSeconds": 5},
            actor=ACTOR,
        )
        assert not loads.topic_loads(name=topic.name).known
        report(watermark_ms=now_ms() - 61_000)
        assert not loads.topic_loads(name=topic.name).known
        report(watermark_ms=now_ms() - 50_000)
        assert loads.topic_loads(name=topic.name).known

    @pytest.mark.parametrize(
        ("window_seconds", "age_ms", "known"),
        [
            (20, 0, True),
            (20, 60_000, True),
            (20, 60_001, False),
            (1, 15_000, True),  # idle nodes speak every ten seconds, whatever the window
            (1, 15_001, False),
        ],
    )
    def test_three_windows_exactly_are_still_known_and_fifteen_seconds_at_least(
        self, window_seconds: float, age_ms: int, known: bool
    ) -> None:
        answer = loads.load_known(
            watermark_ms=100_000 - age_ms, now_ms=100_000, rate_window_seconds=window_seconds
        )
        assert answer is known

    @pytest.mark.parametrize("window_seconds", [0.1, 1, 2, 3])
    def test_an_idle_node_is_silent_for_longer_than_short_windows_and_loads_stay_known(
        self, window_seconds: float
    ) -> None:
        policy = {"rateWindowSeconds": window_seconds, "loadReportIntervalSeconds": 0.1}
        topic = make_topic()
        topics.set_auto_scale_policy(name=topic.name, override=policy, actor=ACTOR)
        report(load(topic), watermark_ms=now_ms() - IDLE_INTERVAL_SECONDS * 1_000)
        assert loads.topic_loads(name=topic.name).known
        evaluate_topic(incarnation=topic.incarnation)
        assert evaluate_due_topics() == []  # nothing turned: the clock of staleness is the same one
        (answer, _) = preview_decision(name=topic.name)
        assert GuardCode.LOAD_UNKNOWN not in [guard.code for guard in answer.held_by]

    def test_the_furthest_reporter_rules(self) -> None:
        topic = make_topic()
        report(watermark_ms=1_000, reporter="retired")
        recent_ms = now_ms() - 5
        report(watermark_ms=recent_ms, reporter="serving")
        assert loads.topic_loads(name=topic.name).watermark_ms == recent_ms


class TestRefused:
    @pytest.mark.parametrize(
        "fields",
        [
            {"msgRateIn": float("nan")},
            {"bytesRateIn": float("inf")},
            {"msgRateOut": -0.5},
            {"bytesRateOut": "7"},
            {"bytesRateOut": None},
            {"msgRateIn": True},
            {"msgRateIn": 10**400},
            {"bytesRateOut": 1.01 * MAX_RATE},
            {"segmentId": -1},
            {"segmentId": 1.5},
            {"incarnation": 2**63},
            {"topic": 7},
            {"priority": 1},
        ],
        ids=str,
    )
    def test_a_load_that_breaks_a_rule_refuses_the_whole_report(self, fields: dict[str, Any]) -> None:
        topic = make_topic()
        with pytest.raises(LoadReportUnreadable):
            report(load(topic, 1), load(topic, 0, **fields))
        answer = loads.topic_loads(name=topic.name)
        assert (answer.loads, answer.watermark_ms) == ({}, None)

    @pytest.mark.parametrize("watermark_ms", [-1, 10**18, 1.5, "1", True])
    def test_a_watermark_that_is_no_time(self, watermark_ms: Any) -> None:
        with pytest.raises(LoadReportUnreadable):
            loads.report_loads(reporter="r", watermark_ms=watermark_ms, loads=[])

    @pytest.mark.parametrize("reporter", ["", "x" * 256, "nul\0", 7])
    def test_a_reporter_that_is_no_name(self, reporter: Any) -> None:
        with pytest.raises(LoadReportUnreadable):
            loads.report_loads(reporter=reporter, watermark_ms=1, loads=[])

    @pytest.mark.parametrize("body", [None, {}, "text", 3, ["text"], [None]])
    def test_what_is_no_list_of_objects(self, body: Any) -> None:
        with pytest.raises(LoadReportUnreadable):
            loads.report_loads(reporter="r", watermark_ms=1, loads=body)
        with pytest.raises(LoadReportUnreadable):
            loads.report_tiles(tiles=body)

    def test_the_highest_rates_are_added_up_and_judged(self) -> None:
        topic = make_topic(segments=4)
        policy = {"profile": "recommended", "maxSegments": 8}
        topics.set_auto_scale_policy(name=topic.name, override=policy, actor=ACTOR)
        most = dict.fromkeys(("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut"), MAX_RATE)
        assert report(*[load(topic, key, **most) for key in range(4)]).written == 4
        minutes = [this_minute_ms() - number * MINUTE_MS for number in range(6)]
        parts: dict[str, Any] = dict.fromkeys(("mean", "max"), [MAX_RATE] * 32)
        loads.report_tiles(
            tiles=[tile(topic, at_ms, segmentId=key, **parts) for at_ms in minutes for key in range(4)]
        )
        decision = evaluate_topic(incarnation=topic.incarnation)
        assert decision is not None
        assert [action.segment_ids for action in decision.actions] == [(0,), (1,), (2,), (3,)]

    def test_too_many(self) -> None:
        topic = make_topic()
        with pytest.raises(LoadReportUnreadable):
            report(*[load(topic)] * (MAX_REPORTED_LOADS + 1))
        with pytest.raises(LoadReportUnreadable):
            loads.report_tiles(tiles=[tile(topic, 0)] * (MAX_REPORTED_TILES + 1))

    @pytest.mark.parametrize(
        "fields",
        [
            {"minuteMs": 1},
            {"minuteMs": -60_000},
            {"mean": [0.0] * 31},
            {"max": [0.0] * 33},
            {"mean": [float("nan")] * 32},
            {"max": [-1.0] * 32},
            {"max": [1.01 * MAX_RATE] * 32},
        ],
        ids=str,
    )
    def test_a_tile_that_breaks_a_rule(self, fields: dict[str, Any]) -> None:
        with pytest.raises(LoadReportUnreadable):
            loads.report_tiles(tiles=[tile(make_topic(), 0, **fields)])


class TestTiles:
    def test_a_repeat_replaces_and_a_span_includes_both_ends(self) -> None:
        topic = make_topic()
        minutes = [this_minute_ms() - number * MINUTE_MS for number in (3, 2, 1)]
        loads.report_tiles(tiles=[tile(topic, minute, rate=1) for minute in minutes])
        again = loads.report_tiles(tiles=[tile(topic, minutes[1], rate=5), tile(topic, minutes[1], rate=7)])
        found = loads.tiles(name=topic.name, from_ms=minutes[0], to_ms=minutes[1])
        assert again == ReportOutcome(written=1, unchanged=0, unknown=0)
        assert [(entry.minute_ms, entry.mean[0], entry.peak[31]) for entry in found] == [
            (minutes[0], 1, 2),
            (minutes[1], 7, 14),
        ]

    def test_a_sealed_segment_still_gets_its_last_minute_but_an_unknown_one_none(self) -> None:
        topic = make_topic()
        drive(request(OperationKind.SPLIT, topic))
        entries = [tile(topic, this_minute_ms()), tile(topic, this_minute_ms(), segmentId=99)]
        assert loads.report_tiles(tiles=entries) == ReportOutcome(written=1, unchanged=0, unknown=1)

    def test_old_ones_go(self) -> None:
        topic = make_topic()
        recent_ms = this_minute_ms()
        old_ms = recent_ms - 31 * 24 * 60 * MINUTE_MS
        mine = {"topic_id": topic.incarnation, "segment_id": 1, "mean": [1.0] * 32, "peak": [1.0] * 32}
        for span, age_hours in ((1, 4), (10, 50), (60, 31 * 24)):
            minute = moment((recent_ms - age_hours * 60 * MINUTE_MS) // 3_600_000 * 3_600_000)
            LoadTile.objects.create(**mine, span_minutes=span, observed_ms=60_000, minute=minute)
        refused = loads.report_tiles(tiles=[tile(topic, old_ms), tile(topic, recent_ms, observedMs=1)])
        assert refused == ReportOutcome(written=1, unchanged=1, unknown=0)
        assert LoadTile.objects.filter(topic_id=topic.incarnation).count() == 1
        found = loads.tiles(name=topic.name, from_ms=0, to_ms=recent_ms)
        assert [entry.minute_ms for entry in found] == [recent_ms]

    def test_an_unknown_topic_and_a_time_that_is_none(self) -> None:
        missing = TopicName("public", "default", "missing")
        with pytest.raises(TopicNotFound):
            loads.tiles(name=missing, from_ms=0, to_ms=1)
        with pytest.raises(TopicNotFound):
            loads.topic_loads(name=missing)
        with pytest.raises(InvalidParameter):
            loads.tiles(name=make_topic().name, from_ms=-1, to_ms=10**18)


def test_the_answers_are_json() -> None:
    topic = make_topic()
    outcome = report(load(topic, 1, rate=2))
    body = loads.topic_loads(name=topic.name).to_json()
    assert json.loads(json.dumps(outcome.to_json())) == {"written": 1, "unchanged": 0, "unknown": 0}
    assert body["known"] is True
    assert body["segments"]["1"].keys() == {
        "msgRateIn",
        "bytesRateIn",
        "msgRateOut",
        "bytesRateOut",
        "modifiedAtMs",
    }
