"""Samples as Spark parses them: what breaks a rule is set apart, and the rest stays whole."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.samples import sample_rows

pytestmark = pytest.mark.spark

GOOD: dict[str, Any] = {
    "topic": "topic://public/default/flights",
    "incarnation": 7,
    "segmentId": 0,
    "intervalMs": 990,
    "everyMs": 1000,
    "windowMs": 5000,
    "msgIn": 32,
    "bytesIn": 3200,
    "msgOut": 0,
    "bytesOut": 2**40,
    "parts": [1] * 32,
}
BROKEN_SAMPLES: list[dict[str, Any]] = [
    {"intervalMs": 0},
    {"intervalMs": 3_600_001},
    {"windowMs": -1},
    {"msgIn": -1},
    {"bytesOut": 1.5},
    {"segmentId": None},
    {"topic": None},
    {"topic": "flights"},
    {"topic": "topic://public/default"},
    {"topic": "topic://public/default/flights/more"},
    {"topic": "topic://public//flights"},
    {"incarnation": "seven"},
    {"intervalMs": 9_001},  # it began before there was time
    {"everyMs": 0},
    {"everyMs": 3_600_001},
    {"msgIn": 2**53 + 1},
    {"parts": [2**53 + 1] + [0] * 31},
    {"parts": [0] * 31},
    {"parts": [-1] * 32},
    {"parts": None},
    {"parts": 7},
    {"hotKeys": {"seen": -1, "error": 0, "counts": {}}},
    {"hotKeys": {"seen": 1, "error": 0, "counts": {"k": -1}}},
    {"hotKeys": {"seen": 1, "error": 0, "counts": {"k": 2**53 + 1}}},
    {"hotKeys": {"seen": 2**53 + 1, "error": 0, "counts": {}}},
    {"hotKeys": {"seen": 1, "error": 0}},
    {"hotKeys": {"seen": 1, "error": 0, "counts": {str(number): 1 for number in range(65)}}},
]
UNREADABLE = [
    b"",
    b"no json",
    b"[]",
    b"\xff\xfe",
    b'{"node": "n", "sequence": -1, "atMs": 1, "complete": true, "samples": []}',
    b'{"node": "n", "sequence": 1, "complete": true, "samples": []}',
    b'{"node": "n", "sequence": 1, "atMs": 1, "samples": []}',
    b'{"node": "n", "sequence": 1, "atMs": 253402300799001, "complete": true, "samples": []}',
    b'{"sequence": 1, "atMs": 1, "complete": true, "samples": []}',
]


def message(*samples: dict[str, Any]) -> bytes:
    head = {"node": "n", "sequence": 3, "atMs": 9000, "everyMs": 500, "complete": True}
    return json.dumps({**head, "samples": samples}).encode()


def rows_of(session: SparkSession, values: list[bytes]) -> list[dict[str, Any]]:
    """Parse values as the messages at offsets 0, 1, ..."""
    messages = session.createDataFrame(
        [(0, offset, value) for offset, value in enumerate(values)],
        "segment_id bigint, offset bigint, value binary",
    )
    return sorted((row.asDict() for row in sample_rows(messages).collect()), key=lambda row: row["offset"])


def test_every_sample_is_a_row(session: SparkSession) -> None:
    mark = {"segment_id": 0, "node": "n", "sequence": 3, "at_ms": 9000, "every_ms": 500, "complete": True}
    head = {**mark, "broken": False, "hotKeys": None}
    found = rows_of(session, [message(GOOD, {**GOOD, "segmentId": 1}), message()])
    assert found == [
        {**head, "offset": 0, **GOOD},
        {**head, "offset": 0, **GOOD, "segmentId": 1},
        {**head, "offset": 1, **dict.fromkeys(GOOD)},
    ]


def test_a_node_of_an_earlier_version_tells_no_intervals(session: SparkSession) -> None:
    sample = {name: value for name, value in GOOD.items() if name != "everyMs"}
    told = {"node": "n", "sequence": 3, "atMs": 9000, "complete": True, "samples": [sample]}
    (row,) = rows_of(session, [json.dumps(told).encode()])
    assert (row["every_ms"], row["everyMs"], row["broken"], row["msgIn"]) == (None, None, False, 32)


def test_hot_keys_are_read(session: SparkSession) -> None:
    keys = {"seen": 9, "error": 1, "counts": {"a": 5, "ß": 2}}
    (row,) = rows_of(session, [message({**GOOD, "hotKeys": keys})])
    assert row["hotKeys"].asDict() == keys


def test_a_sample_that_breaks_a_rule_leaves_its_message_as_a_mark(session: SparkSession) -> None:
    found = rows_of(session, [message(GOOD, {**GOOD, **broken}) for broken in BROKEN_SAMPLES])
    assert len(found) == 2 * len(BROKEN_SAMPLES)
    for number, broken in enumerate(BROKEN_SAMPLES):
        topics = [row["topic"] for row in found if row["offset"] == number]
        assert sorted(topics, key=str) == [None, GOOD["topic"]], broken
        assert [row["broken"] for row in found if row["offset"] == number] == [False, True], broken
    assert {(row["node"], row["sequence"], row["at_ms"]) for row in found} == {("n", 3, 9000)}


def test_what_is_no_message_is_set_apart(session: SparkSession) -> None:
    assert [row["node"] for row in rows_of(session, UNREADABLE)] == [None] * len(UNREADABLE)
