"""The load report's state: rates and tiles like the oracle's, however the messages are cut into steps."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.domain.load import SegmentRates, is_material
from scalable.wire.loads import parse_loads, parse_tiles
from spark.load_report import parse_options
from spark.recent import minute_of
from spark.state import RETENTION_MS, VERSION, LoadState, LoadUpdate, decode_state, encode_state
from tests.spark.oracle import (
    MINUTE_MS,
    SLOT_MS,
    Message,
    Oracle,
    Ref,
    expected_watermark,
    make_messages,
    rows_of,
    with_repeats,
)

START_MS = 1_795_000_020_000
LONG_AFTER_MS = START_MS + 10**9
INTERVAL_MS = 1000
REFS = [("topic://public/default/flights", 7, segment_id) for segment_id in range(3)]


def steps(state: LoadState, messages: list[Message], cuts: list[int]) -> list[LoadUpdate]:
    """Feed the messages in pieces that end at the cuts."""
    return list(one_by_one(state, messages, cuts))


def one_by_one(state: LoadState, messages: list[Message], cuts: list[int]) -> Iterator[LoadUpdate]:
    """Feed the messages in pieces that end at the cuts, each when the one before was looked at."""
    bounds = [0, *sorted(cut % (len(messages) + 1) for cut in cuts), len(messages)]
    for start, end in pairwise(bounds):
        yield state.step(rows_of(messages[start:end], start), now_ms=LONG_AFTER_MS)


def one(state: LoadState, at_ms: int, sequence: int, *, node: str = "n", **fields: Any) -> LoadUpdate:
    """Feed one message with one sample of segment 0; keywords replace the sample's fields."""
    counts = {"msgIn": 10, "bytesIn": 100, "msgOut": 0, "bytesOut": 0, "parts": [10] + [0] * 31}
    names = {"topic": REFS[0][0], "incarnation": 7, "segmentId": 0}
    sample = {**names, "intervalMs": 1000, "windowMs": 5000, **counts, **fields}
    head = {"node": node, "sequence": sequence, "atMs": at_ms, "everyMs": INTERVAL_MS, "complete": True}
    message = {**head, "samples": [sample]}
    return state.step(rows_of([message], sequence), now_ms=LONG_AFTER_MS)


def mark(
    state: LoadState, at_ms: int, sequence: int, *, node: str = "n", complete: bool = True
) -> LoadUpdate:
    """Feed one message without samples."""
    head = {"node": node, "sequence": sequence, "atMs": at_ms, "everyMs": INTERVAL_MS, "complete": complete}
    message = {**head, "samples": []}
    return state.step(rows_of([message], sequence), now_ms=LONG_AFTER_MS)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 10_000), max_size=30))
def test_rates_and_tiles_are_the_oracles(seed: int, cuts: list[int]) -> None:
    random = Random(seed)
    messages = make_messages(random, refs=REFS, start_ms=START_MS, seconds=75)
    state = LoadState()
    updates = steps(state, with_repeats(random, messages), cuts)
    watermark_ms = expected_watermark(messages)
    assert state.watermark_ms == watermark_ms
    told_ms = watermark_ms - watermark_ms % INTERVAL_MS
    tiles = {(tile["segmentId"], tile["minuteMs"]): tile for update in updates for tile in update.tiles}
    for _, incarnation, segment_id in REFS:
        ref: Ref = (incarnation, segment_id)
        oracle = Oracle(messages, ref)
        rates = state.series[ref].rates()
        assert rates is not None
        assert list(rates.values) == pytest.approx(list(oracle.rates(told_ms).values))
        ended = minute_of(START_MS)
        expected = oracle.tile(ended, watermark_ms)
        assert expected is not None
        np.testing.assert_allclose(tiles[segment_id, ended]["mean"], expected[0])
        np.testing.assert_allclose(tiles[segment_id, ended]["max"], expected[1])


def test_a_minute_is_the_oracles_wherever_it_ends_between_messages_and_steps() -> None:
    for offset_ms in range(0, MINUTE_MS, SLOT_MS):
        messages = make_messages(Random(4), refs=REFS[:1], start_ms=START_MS + offset_ms, seconds=65)
        updates = steps(LoadState(), messages, list(range(0, len(messages), 20)))
        tiles = {tile["minuteMs"]: tile for update in updates for tile in update.tiles}
        oracle, watermark_ms = Oracle(messages, REFS[0][1:]), expected_watermark(messages)
        for ended in range(START_MS, watermark_ms - MINUTE_MS + 1, MINUTE_MS):
            expected = oracle.tile(ended, watermark_ms)
            assert expected is not None
            np.testing.assert_allclose(tiles[ended]["mean"], expected[0])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_what_was_last_reported_is_never_materially_wrong(seed: int, cuts: list[int]) -> None:
    messages = make_messages(Random(seed), refs=REFS, start_ms=START_MS, seconds=30)
    state = LoadState()
    reported: dict[int, SegmentRates] = {}
    for update in one_by_one(state, messages, cuts):
        for load in parse_loads(update.loads):
            reported[load.segment_id] = SegmentRates(*load.rates)
        parse_tiles(update.tiles)
        for _, incarnation, segment_id in REFS:
            series = state.series.get((incarnation, segment_id))
            rates = series and series.rates()
            if isinstance(rates, SegmentRates):
                assert not is_material(reported[segment_id], rates)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 10_000), max_size=10))
def test_a_step_that_is_repeated_from_the_saved_state_reports_the_same(seed: int, cuts: list[int]) -> None:
    messages = make_messages(Random(seed), refs=REFS, start_ms=START_MS, seconds=20)
    state, saved = LoadState(), encode_state(LoadState())
    bounds = [0, *sorted(cut % len(messages) for cut in cuts), len(messages)]
    for start, end in pairwise(bounds):
        rows = rows_of(messages[start:end], start)
        update = state.step(rows, now_ms=LONG_AFTER_MS)
        again = decode_state(saved)
        assert again is not None
        assert again.step(rows, now_ms=LONG_AFTER_MS) == update
        saved = encode_state(again)
        assert saved == encode_state(state)


class TestRates:
    def test_nothing_is_told_before_half_a_window(self) -> None:
        state = LoadState()
        told = [bool(one(state, START_MS + second * 1000, second).loads) for second in range(4)]
        assert told == [False, False, True, False]

    def test_a_segment_that_fell_idle_ends_at_zero_and_is_told_once(self) -> None:
        state = LoadState()
        for second in range(10):
            one(state, START_MS + second * 1000, second)
        zeros: dict[str, Any] = {"msgIn": 0, "bytesIn": 0, "parts": [0] * 32}
        one(state, START_MS + 10_000, 10, **zeros)
        rates = [
            load["msgRateIn"]
            for second in range(11, 20)
            for load in mark(state, START_MS + second * 1000, second).loads
        ]
        assert rates[-1] == 0
        assert rates.count(0) == 1

    def test_a_late_sample_is_still_counted_in_the_window(self) -> None:
        state = LoadState()
        for second in range(10):
            one(state, START_MS + second * 1000, second)
        mark(state, START_MS + 9_000, 0, node="late")
        one(state, START_MS + 9_000, 1, node="late", msgIn=40)
        assert state.series[7, 0].rates() == SegmentRates(18.0, 120.0, 0.0, 0.0)


class TestWatermark:
    def test_it_waits_for_the_slowest_node_and_not_for_one_that_is_gone(self) -> None:
        state = LoadState()
        for second in range(3):
            mark(state, START_MS + second * 1000, second, node="gone")
        seen = [mark(state, START_MS + second * 1000, second).watermark_ms for second in range(3, 8)]
        assert seen == [START_MS + 2000] * 3 + [START_MS + 6000, START_MS + 7000]

    def test_it_never_moves_back(self) -> None:
        state = LoadState()
        mark(state, START_MS + 5000, 0)
        assert mark(state, START_MS, 0, node="new and behind").watermark_ms == START_MS + 5000

    def test_a_message_that_more_follow_is_not_waited_past(self) -> None:
        state = LoadState()
        mark(state, START_MS, 0)
        assert mark(state, START_MS + 1000, 1, complete=False).watermark_ms == START_MS
        assert mark(state, START_MS + 1000, 2).watermark_ms == START_MS + 1000

    def test_a_node_whose_clock_is_ahead_is_not_believed(self) -> None:
        state = LoadState()
        mark(state, START_MS, 0)
        update = mark(state, LONG_AFTER_MS + 3_600_000, 0, node="ahead")
        assert (update.watermark_ms, update.ahead) == (START_MS, ["ahead"])


class TestBounds:
    def test_samples_of_the_past_and_silent_segments_and_nodes_are_forgotten(self) -> None:
        state = LoadState()
        for second in range(300):
            one(state, START_MS + second * 1000, second)
            assert len(state.series[7, 0].samples) <= 61
        one(state, START_MS + 301_000 + RETENTION_MS, 0, node="other", segmentId=1)
        assert set(state.nodes) == {"other"}
        assert set(state.series) == {(7, 1)}

    def test_everything_is_told_again_from_time_to_time(self) -> None:
        state = LoadState()
        told = [
            START_MS + second * 1000
            for second in range(100)
            if one(state, START_MS + second * 1000, second).loads
        ]
        assert [later - earlier for earlier, later in pairwise(told[1:])] == [30_000] * 2

    @pytest.mark.parametrize("seed", range(20))
    def test_what_a_node_has_written_stays_within_the_threshold(self, seed: int) -> None:
        """Of loads that wander slowly: what is told again is no change, and a node writes only those."""
        random, state, load = Random(seed), LoadState(), 1_000.0
        written: SegmentRates | None = None
        for second in range(300):
            load = min(max(load * random.uniform(0.94, 1.06), 100), 10_000)
            counts: dict[str, Any] = {
                "msgIn": round(load),
                "bytesIn": round(load) * 100,
                "parts": [round(load)] + [0] * 31,
            }
            for told in one(state, START_MS + second * 1000, second, **counts).loads:
                rates = rates_of(told)
                written = rates if is_material(written, rates) else written
            for series in state.series.values():
                known = series.rates()
                assert known is None or not is_material(written, known)


def rates_of(told: dict[str, Any]) -> SegmentRates:
    return SegmentRates(*(told[name] for name in ("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut")))


class TestTiles:
    def test_the_running_minute_is_told_now_and_then_and_again_when_it_ended(self) -> None:
        state, start_ms = LoadState(), minute_of(START_MS)
        told = []
        for second in range(1, 63):
            told += [
                (second, tile["minuteMs"] - start_ms)
                for tile in one(state, start_ms + second * 1000, second).tiles
            ]
        assert (60, 0) in told
        assert (61, 0) not in told
        assert 10 <= len(told) <= 14

    def test_the_mean_is_over_the_life_of_a_segment(self) -> None:
        state, start_ms = LoadState(), minute_of(START_MS)
        for second in range(50, 61):
            update = one(state, start_ms + second * 1000, second)
        assert update.tiles[0]["mean"][0] == pytest.approx(10)
        assert update.tiles[0]["max"][0] == pytest.approx(10)

    def test_a_segment_without_samples_gets_none(self) -> None:
        state, start_ms = LoadState(), minute_of(START_MS)
        one(state, start_ms + 1000, 0)
        tiles = [
            tile["minuteMs"]
            for minute in range(1, 5)
            for tile in mark(state, start_ms + minute * MINUTE_MS, minute).tiles
        ]
        assert tiles == [start_ms]


@pytest.mark.parametrize("damaged", [b"", b"\x00", b"not a state", encode_state(LoadState())[:-1]])
def test_a_damaged_state_is_not_taken(damaged: bytes) -> None:
    assert decode_state(damaged) is None


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_state_of_another_version_is_not_taken(version: int) -> None:
    assert decode_state(encode_state(LoadState(version=version))) is None


def as_the_version_before(state: LoadState) -> bytes:
    """What the reporter of the version before would have kept: fewer fields, and only the open minute."""
    kept = msgspec.msgpack.decode(encode_state(state), strict=False)
    kept = {**kept, "version": VERSION - 1}
    del kept["ahead"]
    open_ms = minute_of(kept["watermark_ms"])
    for series in kept["series"].values():
        for name in ("told_ms", "closed_ms", "kept_ms", "late"):
            del series[name]
        horizon_ms = min(open_ms, kept["watermark_ms"] - series["window_ms"])
        series["samples"] = [sample for sample in series["samples"] if sample[1] > horizon_ms]
    return msgspec.msgpack.encode(kept)


@pytest.mark.parametrize("seconds", [5, 59, 60, 61, 119, 150])
def test_a_reporter_goes_on_where_the_version_before_ended(seconds: int) -> None:
    start_ms, state = minute_of(START_MS), LoadState()
    tiles: dict[int, dict[str, Any]] = {}
    for second in range(1, seconds):
        one(state, start_ms + second * 1000, second)
    upgraded = decode_state(as_the_version_before(state))
    assert upgraded is not None
    for second in range(seconds, 200):
        update = one(state, start_ms + second * 1000, second)
        again = one(upgraded, start_ms + second * 1000, second)
        assert again.minutes == update.minutes
        assert (again.loads, again.watermark_ms) == (update.loads, update.watermark_ms)
        tiles |= {tile["minuteMs"]: tile for tile in again.tiles}
    assert {tiles[minute]["observedMs"] for minute in sorted(tiles)[:-1]} == {60_000}


def test_what_is_material_is_what_the_setting_says() -> None:
    told = {}
    for threshold in (0.0, 0.25, 3.0):
        state, told[threshold] = LoadState(), 0
        for second in range(20):
            sample = {"msgIn": 10 + second, "bytesIn": 1, "parts": [10 + second] + [0] * 31}
            names = {"topic": REFS[0][0], "incarnation": 7, "segmentId": 0, "msgOut": 0, "bytesOut": 0}
            message = {
                "node": "n",
                "sequence": second,
                "atMs": START_MS + second * 1000,
                "complete": True,
                "samples": [{**names, **sample, "intervalMs": 1000, "windowMs": 5000}],
            }
            rows = rows_of([message], second)
            update = state.step(rows, now_ms=LONG_AFTER_MS, change_threshold=threshold)
            told[threshold] += len(update.loads)
    assert told[0.0] > told[0.25] > told[3.0] == 1


def test_the_threshold_of_a_job_is_the_installations() -> None:
    name = "scalableTopicLoadReportRateChangeThreshold"
    assert parse_options([], {}).change_threshold == 0.25
    assert parse_options([], {name: "10%"}).change_threshold == 0.1
    assert parse_options(["--change-threshold", "0.5"], {name: "10%"}).change_threshold == 0.5


def test_hot_keys_of_a_minute_are_those_of_its_samples() -> None:
    state = LoadState()
    minutes = []
    for second in range(1, 123):
        keys = {"seen": 10, "error": 1, "counts": {"hot": 6, f"cold{second % 30}": 2}}
        minute_ms = minute_of(START_MS)
        update = one(state, minute_ms + second * 1000, second, hotKeys=keys if second % 2 else None)
        minutes += update.minutes
    first = minutes[0]
    assert (first["keysSeen"], first["minuteMs"]) == (300, minute_of(START_MS))
    counts = {each["key"]: each["count"] for each in first["hotKeys"]}
    assert counts["hot"] <= 6 * 30 <= counts["hot"] + first["keysError"]
    assert len(counts) <= 16
