"""What REST answers when it does what was asked."""

import struct
import time

import pytest

from scalable.domain.names import TopicName
from scalable.services import autoscaling, messages, topics
from scalable.wire.batch import Record, decode_batch, encode_batch
from tests.api.rest import NAMESPACE, Orders, Rest, drive

ORDERS = TopicName("public", "default", "orders")


def test_create_get_and_delete(rest: Rest) -> None:
    path = f"{NAMESPACE}/made"
    assert rest.call("PUT", f"{path}?numInitialSegments=2", {"owner": "ada"}).status_code == 204
    topic = rest.json(path)
    assert topic["name"] == "topic://public/default/made"
    assert (topic["epoch"], topic["nextSegmentId"]) == (0, 2)
    assert topic["properties"] == {"owner": "ada"}
    assert topic["autoScalePolicy"] is None
    assert topic["segments"]["1"] == {
        "segmentId": 1,
        "hashRange": {"start": 32768, "end": 65535},
        "state": "ACTIVE",
        "parentIds": [],
        "childIds": [],
        "createdAtEpoch": 0,
        "sealedAtEpoch": 0,
        "createdAtMs": topic["createdAtMs"],
        "sealedAtMs": -1,
        "entryBucketSplits": [32768],
    }
    assert rest.call("DELETE", path).status_code == 204
    assert rest.refused("GET", path) == (404, "topic_not_found")


def test_a_topic_made_again_is_another_one(rest: Rest) -> None:
    path = f"{NAMESPACE}/made"
    rest.call("PUT", path)
    first = rest.json(path)["incarnation"]
    rest.call("DELETE", path)
    rest.call("PUT", path)
    assert rest.json(path)["incarnation"] > first


@pytest.mark.parametrize("name", ["ä%20ö", "100%25", "a:b", "%F0%9F%9A%80", "merge", "x" * 255])
def test_names_that_want_quoting(rest: Rest, name: str) -> None:
    path = f"{NAMESPACE}/{name}"
    assert rest.call("PUT", path).status_code == 204
    assert rest.json(NAMESPACE) == [rest.json(path)["name"]]


def test_list_is_bounded_and_says_how_many_there_are(rest: Rest) -> None:
    for number in range(5):
        rest.call("PUT", f"{NAMESPACE}/t{number}")
    answer = rest.call("GET", f"{NAMESPACE}?limit=2&offset=1")
    assert answer.json() == ["topic://public/default/t1", "topic://public/default/t2"]
    assert answer["X-Scalable-Total"] == "5"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("?property=owner=ada", ["a", "b"]),
        ("?property=owner=ada&property=tier=1", ["a"]),
        ("?property=&property=owner=ada", ["a", "b"]),
        ("?property=tier=1&property=tier=2", ["b"]),
        ("?property=formula=a=b", ["c"]),
        ("?property=owner=nobody", []),
    ],
)
def test_list_by_properties(rest: Rest, query: str, expected: list[str]) -> None:
    rest.call("PUT", f"{NAMESPACE}/a", {"owner": "ada", "tier": "1"})
    rest.call("PUT", f"{NAMESPACE}/b", {"owner": "ada", "tier": "2"})
    rest.call("PUT", f"{NAMESPACE}/c", {"formula": "a=b"})
    assert rest.json(NAMESPACE + query) == [f"topic://public/default/{name}" for name in expected]


def test_a_forced_delete_does_not_wait_for_operations(rest: Rest, orders: Orders) -> None:
    assert rest.call("DELETE", f"{orders.path}?force=true").status_code == 204


def test_an_operation_at_once_and_its_address(rest: Rest, orders: Orders) -> None:
    answer = rest.call("POST", f"{orders.path}/split/{orders.free}", Prefer="wait=1, respond-async")
    assert answer.status_code == 202
    assert answer["Preference-Applied"] == "respond-async"
    operation = answer.json()
    assert (operation["kind"], operation["phase"], operation["outcome"]) == ("SPLIT", "PLANNED", None)
    assert (operation["actor"], operation["reason"]) == ("admin", "manual")
    assert answer["Location"].endswith(f"{orders.path}/operations/{operation['operationId']}")
    drive(operation["operationId"])
    done = rest.json(answer["Location"].removeprefix("http://testserver"))
    assert done["outcome"] == "SUCCEEDED"
    assert set(done["timings"]) >= {"PLANNED", "COMMITTED", "NOTIFIED"}


def test_an_equal_request_joins(rest: Rest, orders: Orders) -> None:
    answer = rest.call("POST", f"{orders.path}/split/{orders.claimed}", Prefer="respond-async")
    assert answer.json()["operationId"] == orders.operation_id


def test_disjoint_operations_run_side_by_side(rest: Rest, orders: Orders) -> None:
    merge = rest.call("POST", f"{orders.path}/merge", {"segmentIds": [2, 1]}, Prefer="respond-async").json()
    unfinished = rest.json(f"{orders.path}/operations?unfinished=true")["operations"]
    assert [each["operationId"] for each in unfinished] == [merge["operationId"], orders.operation_id]
    for operation in unfinished:
        drive(operation["operationId"])
    active = [each for each in rest.json(orders.path)["segments"].values() if each["state"] == "ACTIVE"]
    assert len(active) == 5


def test_abort(rest: Rest, orders: Orders) -> None:
    before = rest.json(orders.path)["segments"]
    aborted = rest.call("POST", f"{orders.path}/operations/{orders.operation_id}/abort")
    assert (aborted.status_code, aborted.json()["outcome"]) == (200, "ABORTED")
    drive(orders.operation_id)
    assert rest.json(orders.path)["segments"] == before
    assert len(rest.json(f"{orders.path}/operations?limit=1")["operations"]) == 1


def test_policy_of_a_topic(rest: Rest, orders: Orders) -> None:
    path = f"{orders.path}/autoScalePolicy"
    assert rest.call("GET", path).status_code == 204
    assert rest.call("POST", path, {"maxSegments": 8, "minSegments": None}).status_code == 204
    assert rest.json(path) == {"maxSegments": 8}
    effective = rest.json(f"{path}/effective")
    assert (effective["policy"]["maxSegments"], effective["sources"]["maxSegments"]) == (8, "topic")
    assert (effective["policy"]["minSegments"], effective["sources"]["minSegments"]) == (1, "default")
    assert rest.call("POST", path, {"minSegments": 2}).status_code == 204  # replaces the whole of it
    assert rest.json(path) == {"minSegments": 2}
    assert rest.call("DELETE", path).status_code == 204
    assert rest.call("GET", path).status_code == 204


def test_a_merge_threshold_may_be_zero(rest: Rest, orders: Orders) -> None:
    path = f"{orders.path}/autoScalePolicy"
    assert rest.call("POST", path, {"mergeMsgRateInThreshold": 0}).status_code == 204


def test_reported_loads_and_tiles(rest: Rest, orders: Orders) -> None:
    incarnation = rest.json(orders.path)["incarnation"]
    segment = {"topic": str(ORDERS), "incarnation": incarnation, "segmentId": orders.free}
    rates = {"msgRateIn": 5.0, "bytesRateIn": 50.0, "msgRateOut": 0.0, "bytesRateOut": 0.0}
    system = Rest("system")
    report = {"reporter": "r", "watermarkMs": 1_700_000_000_000, "loads": [{**segment, **rates}]}
    answer = system.call("POST", "/admin/v2/scalable-load/reports", report)
    assert answer.json() == {"written": 1, "unchanged": 0, "unknown": 0}
    loads = rest.json(f"{orders.path}/loads")
    assert (loads["watermarkMs"], loads["known"]) == (1_700_000_000_000, False)
    reported = loads["segments"][str(orders.free)]
    assert {name: reported[name] for name in rates} == rates

    minute_ms = int(time.time() // 60) * 60_000
    tile = {"minuteMs": minute_ms, "mean": [1.0] * 32, "max": [2.0] * 32, "observedMs": 60_000}
    written = system.call("POST", "/admin/v2/scalable-load/tiles", {"tiles": [{**segment, **tile}]})
    assert written.json()["written"] == 1
    tiles = rest.json(f"{orders.path}/tiles?fromMs={minute_ms}&toMs={minute_ms}")["tiles"]
    assert tiles == [{"segmentId": orders.free, **tile, "spanMs": 60_000}]
    assert rest.json(f"{orders.path}/tiles?toMs=1700000000000") == {"tiles": []}


def test_positions_and_batches(rest: Rest, orders: Orders) -> None:
    topic = topics.get_topic(name=ORDERS)
    sent = [
        encode_batch([Record(None, b"%d" % number, number, 0)], published_at_ms=number) for number in range(3)
    ]
    messages.append(
        name=ORDERS, incarnation=topic.incarnation, segment_id=orders.free, batches=sent, producer="p"
    )
    position = rest.json(f"{orders.path}/positions")["segments"][str(orders.free)]
    assert (position["startOffset"], position["endOffset"], position["terminated"]) == (0, 3, False)
    sealed = rest.json(f"{orders.path}/positions")["segments"][str(orders.sealed)]
    assert (sealed["state"], sealed["terminated"], sealed["childIds"]) == ("SEALED", True, [4, 5])

    page = rest.call("GET", f"{orders.path}/segments/{orders.free}/batches?offset=1")
    assert page["Content-Type"] == "application/octet-stream"
    assert (page["X-Scalable-Next-Offset"], page["X-Scalable-End-Offset"]) == ("3", "3")
    assert page["X-Scalable-Terminated"] == "false"
    base_offset, length = struct.unpack_from(">QI", page.content)
    assert base_offset == 1
    assert page.content[12 : 12 + length] == sent[1]
    assert [record.value for record in decode_batch(page.content[12 : 12 + length])] == [b"1"]

    life = f"incarnation={topic.incarnation}"
    first = rest.call("GET", f"{orders.path}/segments/{orders.free}/batches?maxBytes=1&{life}")
    assert first["X-Scalable-Next-Offset"] == "1"  # one batch comes, however large


def test_subscriptions(rest: Rest, orders: Orders) -> None:
    path = f"{orders.path}/subscriptions"
    for _ in range(2):
        assert rest.call("PUT", f"{path}/audit?type=QUEUE").status_code == 204
    assert rest.call("PUT", f"{path}/bill").status_code == 204
    listed = rest.json(path)["subscriptions"]
    assert [(each["name"], each["type"]) for each in listed] == [("audit", "QUEUE"), ("bill", "STREAM")]
    assert rest.call("DELETE", f"{path}/audit").status_code == 204
    assert [each["name"] for each in rest.json(path)["subscriptions"]] == ["bill"]


def test_decisions_are_listed_page_by_page(rest: Rest, orders: Orders) -> None:
    for enabled in (False, True, False):
        rest.call("POST", f"{orders.path}/autoScalePolicy", {"enabled": enabled})
        autoscaling.evaluate_topic(incarnation=topics.get_topic(name=ORDERS).incarnation)
    first = rest.json(f"{orders.path}/decisions?limit=2")
    assert len(first["decisions"]) == 2
    rest_of_them = rest.json(f"{orders.path}/decisions?limit=2&before={first['next']}")
    assert [each["rule"] for each in rest_of_them["decisions"]] == ["DISABLED"]
    assert rest_of_them["next"] is None


def test_what_would_be_decided_is_told_under_this_policy_and_another(rest: Rest, orders: Orders) -> None:
    path = f"{orders.path}/decisions/preview"
    told = rest.call("POST", path).json()
    assert told["decision"]["action"] is None
    assert told["policy"]["sources"]["enabled"] == "default"
    told = rest.call("POST", path, {"enabled": False}).json()
    assert (told["decision"]["rule"], told["policy"]["sources"]["enabled"]) == ("DISABLED", "topic")
    assert rest.refused("POST", path, {"minSegments": 9, "maxSegments": 8}) == (412, "policy_invalid")
    assert rest.refused("POST", path, {"minSegments": "many"}) == (400, "policy_unreadable")
    assert rest.json(f"{orders.path}/decisions") == {"decisions": [], "next": None}


def test_the_policy_of_a_namespace_is_resolved_with_its_sources(rest: Rest) -> None:
    path = "/admin/v2/namespaces/public/default/scalableTopicAutoScalePolicy"
    rest.call("POST", path, {"profile": "recommended", "maxSegments": 7})
    effective = rest.json(f"{path}/effective")
    named = {
        field: effective["sources"][field] for field in ("maxSegments", "maxSplitChildren", "minSegments")
    }
    assert named == {"maxSegments": "namespace", "maxSplitChildren": "profile", "minSegments": "default"}


def test_decisions_are_listed(rest: Rest, orders: Orders) -> None:
    assert rest.json(f"{orders.path}/decisions") == {"decisions": [], "next": None}


def test_head_is_get_without_a_body(rest: Rest, orders: Orders) -> None:
    answer = rest.call("HEAD", orders.path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_any_accept_header_is_fine(rest: Rest, orders: Orders) -> None:
    assert rest.call("GET", orders.path, Accept="text/html").json()["epoch"] == orders.epoch
