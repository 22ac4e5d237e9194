"""The demo's own judgement: events in order, a pace that fits its policy, books that notice faults."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from launch.data_directory import RunningServices, alone
from launch.demo import DEFAULT_EVENTS, main, parse
from launch.demo.audit import Audit
from launch.demo.display import counted
from launch.demo.events import Event
from launch.demo.flights import TOTAL_FLIGHTS, read_flights
from launch.demo.journey import Journey
from launch.demo.observer import Sight
from launch.demo.plan import SMALL_RUN_EVENTS, SPLITS_WANTED, plan_for
from launch.demo.report import result_of
from launch.demo.streams import STREAMS, Stream
from launch.demo.weather import TOTAL_OBSERVATIONS, read_weather
from launch.process import LaunchError
from scalable.client import Admin
from scalable.domain.errors import TopicNotFound
from scalable.domain.keyspace import key_hash, segment_hash
from scalable.domain.layout import Layout
from scalable.domain.names import TopicName
from scalable.domain.policy import parse_override, resolve, violations
from tests.processes import LiveNode


def test_flights_come_in_a_stable_total_order_with_tail_numbers_as_keys() -> None:
    flights = list(read_flights(3_000))
    rows = [json.loads(flight.value) for flight in flights]
    order = [
        (
            row["year"],
            row["month"],
            row["day"],
            row["sched_dep_time"],
            row["carrier"],
            row["flight"],
            row["origin"],
        )
        for row in rows
    ]
    assert order == sorted(set(order))
    assert [row["number"] for row in rows] == list(range(3_000))
    assert all(flight.key == row["tailnum"] for flight, row in zip(flights, rows, strict=True))
    assert any(flight.key is None for flight in flights)


def subscriptions_of(admin: Admin, topic: TopicName) -> list[str]:
    """The names of a topic's subscriptions, which may not be there yet."""
    try:
        return [str(each["name"]) for each in admin.subscriptions(topic)]
    except TopicNotFound:
        return []


async def test_two_demos_with_one_topic_are_not_played_at_once(live_node: LiveNode, tmp_path: Path) -> None:
    services = RunningServices((live_node.url,), tmp_path, live_node.admin_token, "")
    first, topic = Journey(plan_for(1_000), services), STREAMS["flights"].topic
    playing = asyncio.create_task(first.run())
    with Admin(live_node.url, live_node.admin_token) as admin:
        while "demo" not in await asyncio.to_thread(subscriptions_of, admin, topic):
            assert not playing.done()
        before = admin.get_topic(topic)["incarnation"]
        with pytest.raises(LaunchError, match="goes on already") as refused:
            await Journey(plan_for(1_000), services).run()
        assert "--stream" in str(refused.value.hint)
        assert admin.get_topic(topic)["incarnation"] == before
        assert not playing.done()
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)


def test_a_demo_that_did_not_begin_shows_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = RunningServices(("http://127.0.0.1:1",), tmp_path, "", "")
    with alone(tmp_path / "demo-flights.lock", "another", ""):
        assert main(["--events", "1000"], services) == 1
    told = capsys.readouterr()
    assert "lost" not in told.out
    assert told.err.startswith("error: a demo with topic://public/default/flights goes on already; wait")


async def test_a_topic_that_no_demo_made_is_not_touched(live_node: LiveNode, tmp_path: Path) -> None:
    topic = STREAMS["flights"].topic
    services = RunningServices((live_node.url,), tmp_path, live_node.admin_token, "")
    with Admin(live_node.url, live_node.admin_token) as admin:
        admin.create_topic(topic, properties={"owner": "me"})
        before = admin.get_topic(topic)["incarnation"]
        with pytest.raises(LaunchError, match=str(topic)):
            await Journey(plan_for(1_000), services).run()
        assert admin.get_topic(topic)["incarnation"] == before


@pytest.mark.slow
def test_all_flights_are_there() -> None:
    keyless = sum(flight.key is None for flight in read_flights(TOTAL_FLIGHTS))
    assert keyless == 2_512
    with pytest.raises(StopIteration):
        next(read_flights(0))


def test_all_weather_comes_by_hour_with_the_airport_as_key() -> None:
    rows = [(event.key, json.loads(event.value)) for event in read_weather(TOTAL_OBSERVATIONS)]
    assert [row["number"] for _, row in rows] == list(range(TOTAL_OBSERVATIONS))
    order = [(row["time_hour"], row["origin"]) for _, row in rows]
    assert order == sorted(order)
    assert {key for key, _ in rows} == {"EWR", "JFK", "LGA"}
    assert all(key == row["origin"] for key, row in rows)
    assert any(row["wind_gust"] is None for _, row in rows)
    assert any(isinstance(row["temp"], float) for _, row in rows)


def test_three_splits_by_load_are_needed_to_part_the_airports() -> None:
    """What the demo asks of the stream of weather, which has only three keys."""
    layout, splits = Layout.initial(1, 0), 0
    hashes = [segment_hash(key_hash(airport)) for airport in ("EWR", "JFK", "LGA")]
    while hot := [each for each in layout.active if sum(each.hash_range.contains(at) for at in hashes) > 1]:
        layout, splits = layout.apply(layout.plan_split(hot[0].segment_id), 0), splits + 1
    assert splits >= SPLITS_WANTED


@pytest.mark.parametrize(("name", "events"), [("flights", TOTAL_FLIGHTS + 1), ("weather", 26_116)])
def test_no_stream_has_more_events_than_its_table(name: str, events: int) -> None:
    for wrong in (events, 0):
        with pytest.raises(SystemExit):
            parse(["--stream", name, "--events", str(wrong)])
    assert parse(["--stream", name, "--events", str(events - 1)]).events == events - 1
    assert parse(["--stream", name]).events == min(DEFAULT_EVENTS, STREAMS[name].total)


@pytest.mark.parametrize("stream", STREAMS.values(), ids=list(STREAMS))
@pytest.mark.parametrize("events", [1, 100, SMALL_RUN_EVENTS, 20_000, 60_000, 100_000, TOTAL_FLIGHTS])
def test_the_policy_is_valid_and_the_stream_hot_then_cold_under_it(events: int, stream: Stream) -> None:
    plan = plan_for(events, stream)
    policy = resolve(topic=parse_override(plan.policy)).policy
    assert not violations(policy)
    assert 0 <= plan.cold_events < events
    if plan.wants_scaling:
        assert plan.trickle_rate < policy.split_msg_rate_in_threshold
        assert plan.lasting_rate / 2 > policy.split_msg_rate_in_threshold, "two segments stay hot"
        assert plan.cold_rate / policy.min_segments < policy.merge_msg_rate_in_threshold / 2


def audited(*numbers: int, key: str | None = "k", events: int = 3) -> Audit:
    audit = Audit(events)
    for number in numbers:
        audit.note_consumed(key, number)
    return audit


async def test_what_an_untimely_end_left_unsent_is_not_lost() -> None:
    services = RunningServices(
        urls=("http://127.0.0.1:1",), data_directory=Path(), admin_token="t", system_token="t"
    )
    journey = Journey(plan_for(60, STREAMS["flights"]), services)
    journey.sent = 3
    journey.audit.note_consumed("k", 0)
    assert result_of(journey)["lost"] == 2


def test_the_books_notice_what_is_lost_doubled_or_out_of_order() -> None:
    fine = audited(0, 1, 2)
    assert (fine.consumed, fine.lost, fine.duplicated, fine.out_of_order) == (3, 0, 0, 0)
    assert audited(0, 2).lost == 1
    assert audited(0, 1, 1, 2).duplicated == 1
    assert audited(0, 2, 1).out_of_order == 1
    assert audited(0, 2, 1, key=None).out_of_order == 0
    audit = audited()
    audit.note_produced(Event(0, None, b""))
    assert audit.produced == 1


def test_only_finished_operations_that_a_load_rule_asked_for_count() -> None:
    sight = Sight()
    sight.take_operations(
        [
            {"kind": "SPLIT", "reason": "msgRateIn", "outcome": "SUCCEEDED"},
            {"kind": "SPLIT", "reason": "consumer-count", "outcome": "SUCCEEDED"},
            {"kind": "SPLIT", "reason": "msgRateOut", "outcome": "ABORTED"},
            {"kind": "MERGE", "reason": "manual", "outcome": "SUCCEEDED"},
            {"kind": "MERGE", "reason": "cold", "outcome": "SUCCEEDED"},
            {"kind": "SPLIT", "reason": "bytesRateIn", "outcome": None},
        ]
    )
    assert (sight.splits, sight.merges, sight.other_operations) == (1, 1, 2)


def test_a_load_report_counts_once_for_each_material_change() -> None:
    sight = Sight()
    for modified_at_ms in (5, 5, 6):
        sight.take_loads({"known": True, "segments": {"0": {"modifiedAtMs": modified_at_ms}}})
    assert len(sight.load_reports) == 2


@pytest.mark.parametrize(("count", "text"), [(0, "0 splits"), (1, "1 split"), (2, "2 splits")])
def test_one_is_no_plural(count: int, text: str) -> None:
    assert counted(count, "split") == text
