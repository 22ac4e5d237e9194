"""REST about a topic's layout: the place of a key, lineage, history, changes on paper, operations again."""

import time

import pytest

from scalable.domain.keyspace import key_hash, segment_hash
from scalable.domain.names import TopicName
from scalable.services import loads, pruning, topics
from tests.api.rest import NAMESPACE, Orders, Rest, drive, rows, settle

ORDERS = TopicName("public", "default", "orders")
PATH = f"{NAMESPACE}/orders"
KEY = "k1"  # 0xfdc6, so in the high half


def report(segment_id: int, parts: list[float]) -> None:
    """Report a load, and where in the segment's range it came from."""
    topic = topics.get_topic(name=ORDERS)
    one = {"topic": str(ORDERS), "incarnation": topic.incarnation, "segmentId": segment_id}
    now_ms = int(time.time() * 1000)
    rates = {"msgRateIn": 100.0, "bytesRateIn": 1000.0, "msgRateOut": 200.0, "bytesRateOut": 2000.0}
    outcome = loads.report_loads(reporter="r", watermark_ms=now_ms, loads=[{**one, **rates}])
    assert outcome.written == 1
    minute_ms = now_ms // 60_000 * 60_000
    loads.report_tiles(tiles=[{**one, "minuteMs": minute_ms, "mean": parts, "max": parts}])


def test_a_key_is_in_one_segment(rest: Rest) -> None:
    rest.call("PUT", f"{PATH}?numInitialSegments=2")
    found = rest.json(f"{PATH}/locate?key={KEY}")
    assert (found["hash"], found["segmentHash"], found["entryBucketHash"]) == (0xFDC6602A, 0xFDC6, 0x602A)
    assert found["segment"]["segmentId"] == 1
    assert found["entryBucket"] == 0
    assert [each["segmentId"] for each in found["lineage"]] == [1]
    assert rest.json(f"{PATH}/locate?hash={key_hash(KEY)}")["segment"] == found["segment"]


@pytest.mark.parametrize("query", ["", "?key=a&hash=1", "?hash=4294967296", "?hash=-1", "?key=a&atTime=x"])
def test_a_key_or_a_hash_is_asked_for(rest: Rest, query: str) -> None:
    rest.call("PUT", PATH)
    assert rest.refused("GET", f"{PATH}/locate{query}") == (400, "invalid_parameter")


@pytest.mark.django_db(transaction=True)
def test_a_key_through_splits_merges_and_pruned_segments(rest: Rest) -> None:
    """Each moment has its segment, and what was pruned is still told (by its row of history)."""
    rest.call("PUT", PATH)
    settle(rest, f"{PATH}/split/0")
    settle(rest, f"{PATH}/split/2")
    line = rest.json(f"{PATH}/locate?key={KEY}")["lineage"]
    assert [each["segmentId"] for each in line] == [0, 2, 4]
    born = [each["createdAtMs"] for each in line]
    pruning.sweep_topic(incarnation=topics.get_topic(name=ORDERS).incarnation)
    now = rest.json(f"{PATH}/locate?key={KEY}")
    assert [each["state"] for each in now["lineage"]] == ["PRUNED", "PRUNED", "ACTIVE"]
    assert now["segment"]["segmentId"] == 4
    for at, expected in ((born[0], 0), (born[1], 2), (born[2], 4), (born[2] + 10_000_000, 4)):
        found = rest.json(f"{PATH}/locate?key={KEY}&atTime={at}")["segment"]
        assert found["segmentId"] == expected or found["createdAtMs"] == at  # two changes in one millisecond
    assert rest.json(f"{PATH}/locate?key={KEY}&atTime=1")["segment"] is None
    history = rest.json(f"{PATH}/prunedSegments?limit=1")
    assert (history["total"], [each["segmentId"] for each in history["segments"]]) == (2, [2])
    lineage = rest.json(f"{PATH}/lineage")
    assert [each["segmentId"] for each in lineage["nodes"]] == [0, 1, 2, 3, 4]
    edges = {(edge["parentId"], edge["childId"]) for edge in lineage["edges"]}
    assert edges == {(0, 1), (0, 2), (2, 3), (2, 4)}
    without = rest.json(f"{PATH}/lineage?pruned=0")
    assert ([each["segmentId"] for each in without["nodes"]], without["prunedTotal"]) == ([1, 3, 4], 2)


def test_each_subscription_says_how_far_it_is(rest: Rest, orders: Orders) -> None:
    rest.call("PUT", f"{PATH}/subscriptions/s")
    rest.call("PUT", f"{PATH}/subscriptions/shared?keyShared=true")
    found = rest.json(f"{PATH}/locate?hash=0")
    assert [each["segmentId"] for each in found["subscriptions"]["s"]] == [0, 4]
    assert found["subscriptions"]["shared"][0] == {
        "segmentId": 0,
        "position": 0,
        "endOffset": 0,
        "msgBacklog": 0,
        "owner": None,
    }


def test_the_lineage_of_a_merge(rest: Rest, orders: Orders) -> None:
    settle(rest, f"{PATH}/merge", {"segmentIds": [1, 2]})
    edges = {(edge["parentId"], edge["childId"]) for edge in rest.json(f"{PATH}/lineage")["edges"]}
    merged = max(child for _, child in edges)
    assert {(1, merged), (2, merged), (0, 4), (0, 5)} == edges


# Changes on paper.


def test_a_split_on_paper_changes_nothing(rest: Rest, orders: Orders) -> None:
    before = rows()
    preview = rest.call(
        "POST", f"{PATH}/split/{orders.free}?preview=true&expectedEpoch={orders.epoch}"
    ).json()
    assert rows() == before
    assert (preview["kind"], preview["parentIds"], preview["ratesBy"]) == ("SPLIT", [1], "unknown")
    assert [each["hashRange"] for each in preview["children"]] == [
        {"start": 0x4000, "end": 0x5FFF},
        {"start": 0x6000, "end": 0x7FFF},
    ]
    assert all(each["estimatedRates"] is None for each in preview["children"])


def test_rates_on_paper_follow_the_tiles(rest: Rest, orders: Orders) -> None:
    report(orders.free, [3.0] * 16 + [1.0] * 16)
    preview = rest.call("POST", f"{PATH}/split/{orders.free}?preview=true").json()
    assert preview["ratesBy"] == "tiles"
    rates = [each["estimatedRates"]["msgRateIn"] for each in preview["children"]]
    assert rates == pytest.approx([75.0, 25.0])
    merged = rest.call("POST", f"{PATH}/merge?preview=true", {"segmentIds": [1, 2]}).json()
    assert merged["ratesBy"] == "unknown"  # nothing is known of segment 2


def test_a_rebucket_and_a_pair_on_paper(rest: Rest, orders: Orders) -> None:
    preview = rest.call("POST", f"{PATH}/rebucket/{orders.free}?bucketCount=4&preview=true").json()
    assert preview["children"][0]["entryBucketSplits"] == [16_384, 32_768, 49_152]
    pair = rest.call("POST", f"{PATH}/merge/1/2?preview=true").json()
    assert pair["children"][0]["hashRange"] == {"start": 0x4000, "end": 0xBFFF}


def test_what_cannot_be_done_cannot_be_previewed(rest: Rest, orders: Orders) -> None:
    split = f"{PATH}/split"
    assert rest.refused("POST", f"{split}/{orders.sealed}?preview=true") == (412, "segment_not_active")
    assert rest.refused("POST", f"{split}/{orders.narrow}?preview=true") == (412, "segment_too_narrow")
    assert rest.refused("POST", f"{split}/1?preview=true&expectedEpoch=9") == (409, "epoch_moved")
    assert rest.refused("POST", f"{PATH}/merge/1/3?preview=true") == (412, "segments_not_adjacent")


# Operations again.


def test_what_was_aborted_is_asked_for_anew(rest: Rest, orders: Orders) -> None:
    first = f"{PATH}/operations/{orders.operation_id}"
    rest.call("POST", f"{first}/abort")
    again = rest.call("POST", f"{first}/retry", Prefer="respond-async")
    assert again.status_code == 202
    operation = again.json()
    assert operation["operationId"] != orders.operation_id
    assert operation["plan"]["parentIds"] == [orders.claimed]
    joined = rest.call("POST", f"{first}/retry", Prefer="respond-async").json()
    assert joined["operationId"] == operation["operationId"]
    drive(operation["operationId"])
    assert rest.refused("POST", f"{first}/retry", Prefer="respond-async") == (412, "segment_not_active")


@pytest.mark.parametrize("request_path", ["merge/1/2", "rebucket/1?bucketCount=3"])
def test_merges_and_rebuckets_are_asked_for_anew(rest: Rest, orders: Orders, request_path: str) -> None:
    operation = rest.call("POST", f"{PATH}/{request_path}", Prefer="respond-async").json()
    path = f"{PATH}/operations/{operation['operationId']}"
    rest.call("POST", f"{path}/abort")
    again = rest.call("POST", f"{path}/retry", Prefer="respond-async").json()
    for key in ("kind", "parentIds"):
        assert again["plan"][key] == operation["plan"][key]
    assert [each["hashRange"] for each in again["plan"]["children"]] == [
        each["hashRange"] for each in operation["plan"]["children"]
    ]


def test_what_is_under_way_is_hurried_on_and_what_succeeded_stays(rest: Rest, orders: Orders) -> None:
    running = f"{PATH}/operations/{orders.operation_id}/retry"
    again = rest.call("POST", running, Prefer="respond-async").json()
    assert again["operationId"] == orders.operation_id
    done = f"{PATH}/operations/{orders.finished_operation_id}/retry"
    assert rest.refused("POST", done) == (409, "operation_not_retriable")
    unknown = f"{PATH}/operations/nonsense/retry"
    assert rest.refused("POST", unknown) == (404, "operation_not_found")


def test_hashes_of_the_test_are_right() -> None:
    assert segment_hash(key_hash(KEY)) == 0xFDC6


def test_stats_have_the_last_loads_and_the_policy_that_rules(rest: Rest, orders: Orders) -> None:
    """As PIP-483 extends them."""
    report(orders.free, [1.0] * 32)
    rest.call("POST", f"{PATH}/autoScalePolicy", {"maxSegments": 9})
    stats = rest.json(f"{PATH}/stats")
    assert stats["load"] == rest.json(f"{PATH}/loads")
    assert stats["load"]["segments"][str(orders.free)]["msgRateIn"] == 100.0
    assert stats["autoScalePolicy"] == rest.json(f"{PATH}/autoScalePolicy/effective")
    assert stats["autoScalePolicy"]["sources"]["maxSegments"] == "topic"
