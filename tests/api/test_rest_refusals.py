"""What REST refuses, with which status and code; and that a refusal changes nothing."""

import pytest
from django.db import OperationalError, connection

from tests.api.rest import NAMESPACE, ROOT, Orders, Rest, rows

UNKNOWN_OPERATION = "00000000-0000-4000-8000-000000000000"
NAMESPACES = "/admin/v2/namespaces"
LONG = "x" * 256
BIGINT = 2**63

Refusal = tuple[str, str, object, int, str]
"""Method, path, body, and the status and code of the refusal."""

PATHS: list[Refusal] = [
    ("GET", f"{ROOT}/public/nowhere", None, 404, "namespace_not_found"),
    ("PUT", f"{ROOT}/public/nowhere/x", None, 404, "namespace_not_found"),
    ("GET", f"{NAMESPACE}/nothing", None, 404, "topic_not_found"),
    ("DELETE", f"{NAMESPACE}/nothing", None, 404, "topic_not_found"),
    ("POST", f"{NAMESPACE}/nothing/split/0", None, 404, "topic_not_found"),
    ("POST", f"{NAMESPACE}/nothing/merge/0/1", None, 404, "topic_not_found"),
    ("POST", f"{NAMESPACE}/nothing/merge", {"segmentIds": [0, 1]}, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/operations", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/operations/{UNKNOWN_OPERATION}", None, 404, "operation_not_found"),
    ("GET", f"{NAMESPACE}/nothing/decisions", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/autoScalePolicy", None, 404, "topic_not_found"),
    ("POST", f"{NAMESPACE}/nothing/autoScalePolicy", {}, 404, "topic_not_found"),
    ("DELETE", f"{NAMESPACE}/nothing/autoScalePolicy", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/autoScalePolicy/effective", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/loads", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/tiles", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/positions", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/segments/0/batches", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/subscriptions", None, 404, "topic_not_found"),
    ("PUT", f"{NAMESPACE}/nothing/subscriptions/s", None, 404, "topic_not_found"),
    ("DELETE", f"{NAMESPACE}/nothing/subscriptions/s", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACE}/nothing/lifetimes", None, 404, "topic_not_found"),
    ("POST", f"{NAMESPACE}/nothing/lifetimes", {}, 404, "topic_not_found"),
    ("DELETE", f"{NAMESPACE}/nothing/lifetimes", None, 404, "topic_not_found"),
    ("GET", f"{NAMESPACES}/public/nowhere/lifetimes", None, 404, "namespace_not_found"),
    ("POST", f"{NAMESPACES}/public/nowhere/lifetimes", {}, 404, "namespace_not_found"),
    ("DELETE", f"{NAMESPACES}/public/nowhere", None, 404, "namespace_not_found"),
    ("PUT", f"{NAMESPACES}/public/{LONG}", None, 400, "invalid_name"),
    # Names and numbers.
    ("PUT", f"{NAMESPACE}/{LONG}", None, 400, "invalid_name"),
    ("PUT", f"{NAMESPACE}/a%0Ab", None, 400, "invalid_name"),
    ("PUT", f"{NAMESPACE}/a%00b", None, 400, "invalid_name"),
    ("PUT", f"{NAMESPACE}/..", None, 400, "invalid_name"),
    ("GET", f"{ROOT}/public/{LONG}", None, 400, "invalid_name"),
    ("GET", f"{ROOT}/{LONG}/default", None, 400, "invalid_name"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=two", None, 400, "invalid_parameter"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=NaN", None, 400, "invalid_parameter"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=", None, 400, "invalid_parameter"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=0", None, 412, "invalid_initial_segments"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=-1", None, 412, "invalid_initial_segments"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=65537", None, 412, "invalid_initial_segments"),
    ("PUT", f"{NAMESPACE}/x?numInitialSegments=2&numInitialSegments=3", None, 400, "invalid_parameter"),
    ("PUT", f"{NAMESPACE}/x?segments=2", None, 400, "unknown_field"),
    ("GET", f"{NAMESPACE}?limit=0", None, 400, "invalid_parameter"),
    ("GET", f"{NAMESPACE}?{'property=a=1&' * 1_001}", None, 400, "invalid_parameter"),
    ("GET", f"{NAMESPACE}?limit=100000000", None, 400, "invalid_parameter"),
    ("GET", f"{NAMESPACE}?offset=-1", None, 400, "invalid_parameter"),
    ("GET", f"{NAMESPACE}/x/decisions?before=null", None, 400, "invalid_parameter"),
    ("GET", f"{ROOT}-topics/public/default?state=NULL", None, 400, "invalid_parameter"),
    ("GET", f"{NAMESPACE}?property=owner", None, 412, "invalid_filter"),
    ("GET", f"{NAMESPACE}?property==value", None, 412, "invalid_filter"),
    ("GET", f"{NAMESPACE}?property=owner=", None, 412, "invalid_filter"),
    ("GET", f"{NAMESPACE}?property=a=b%00", None, 412, "invalid_filter"),
    # Bodies.
    ("PUT", f"{NAMESPACE}/x", {"owner": 7}, 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", {"owner": None}, 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", {"owner": "a\x00b"}, 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b'{"owner":"\\ud800"}', 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", {"owner": LONG * 17}, 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", {f"p{number}": "" for number in range(101)}, 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b'{"owner":"a","owner":"b"}', 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b'{"owner":"a","\\u006fwner":"a"}', 400, "unreadable_body"),
    (
        "POST",
        f"{NAMESPACES}/public/default/scalableTopicAutoScalePolicy",
        b'{"maxSegments":4,"maxSegments":8}',
        400,
        "unreadable_body",
    ),
    ("PUT", f"{NAMESPACE}/x", ["owner"], 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b"{", 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b"\xff\xfe", 400, "unreadable_body"),
    ("PUT", f"{NAMESPACE}/x", b"[" * 100_000, 400, "unreadable_body"),
    # Load reports are the system's.
    ("POST", "/admin/v2/scalable-load/reports", {}, 403, "forbidden"),
    ("POST", "/admin/v2/scalable-load/tiles", {"tiles": []}, 403, "forbidden"),
    # Nothing there.
    ("GET", "/admin/v2/elsewhere", None, 404, "unknown_path"),
    ("GET", "/admin/v2/scalable", None, 404, "unknown_path"),
    ("GET", f"{NAMESPACE}/x/y/z", None, 404, "unknown_path"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), PATHS)
def test_refusals_without_a_topic(
    rest: Rest, method: str, path: str, body: object, status: int, code: str
) -> None:
    before = rows()
    assert rest.refused(method, path, body) == (status, code)
    assert rows() == before


@pytest.mark.parametrize("query", ["", "?force=true"])
def test_a_namespace_of_the_system_stays(db: None, query: str) -> None:
    refusal = Rest("system").refused("DELETE", f"{NAMESPACES}/system/load{query}")
    assert refusal == (412, "namespace_fixed")


def test_a_topic_of_the_system_stays(db: None) -> None:
    samples = f"{ROOT}/system/load/samples"
    assert Rest("system").refused("DELETE", samples) == (412, "segments_fixed")
    assert Rest("system").refused("DELETE", f"{samples}?force=true") == (412, "segments_fixed")
    sealing = samples.replace("/scalable/", "/segments/") + "/0000-ffff-0/terminate"
    assert Rest("system").refused("POST", sealing) == (412, "segments_fixed")
    assert Rest("system").refused("DELETE", f"{ROOT}/system/load/nothing") == (404, "topic_not_found")
    (segment,) = Rest("system").json(samples)["segments"].values()
    assert segment["state"] == "ACTIVE"


def test_nothing_is_made_that_would_stay_for_ever(db: None) -> None:
    for method in ("PUT", "DELETE"):
        assert Rest("system").call(method, f"{ROOT}/system/load/other").status_code == 204
    assert Rest("system").refused("PUT", f"{NAMESPACES}/system/mine") == (412, "namespace_fixed")


def test_a_request_for_a_foreign_host_is_refused_in_the_one_form(rest: Rest) -> None:
    assert rest.refused("GET", NAMESPACE, Host="elsewhere.example") == (400, "bad_request")


ON_A_TOPIC: list[Refusal] = [
    ("PUT", "", None, 409, "topic_exists"),
    ("DELETE", "", None, 409, "segment_claimed"),
    ("DELETE", "?force=perhaps", None, 400, "invalid_parameter"),
    ("GET", "?verbose=true", None, 400, "unknown_field"),
    ("DELETE", "", {"force": True}, 400, "unreadable_body"),
    ("POST", "/lifetimes", {"retentionSeconds": -2}, 400, "unreadable_body"),
    ("POST", "/lifetimes", {"retentionSeconds": 1.5}, 400, "unreadable_body"),
    ("POST", "/lifetimes", {"retentionSeconds": "1h"}, 400, "unreadable_body"),
    ("POST", "/lifetimes", {"sessionGraceSeconds": -1}, 400, "unreadable_body"),
    ("POST", "/lifetimes", {"retentionMinutes": 1}, 400, "unknown_field"),
    # Split.
    ("POST", "/split/99", None, 404, "segment_not_found"),
    ("POST", f"/split/{BIGINT - 1}", None, 404, "segment_not_found"),
    ("POST", f"/split/{BIGINT}", None, 400, "invalid_parameter"),
    ("POST", "/split/one", None, 400, "invalid_parameter"),
    ("POST", "/split/-1", None, 400, "invalid_parameter"),
    ("POST", "/split/%D9%A1", None, 400, "invalid_parameter"),
    ("POST", "/split/{sealed}", None, 412, "segment_not_active"),
    ("POST", "/split/{narrow}", None, 412, "segment_too_narrow"),
    ("POST", "/split/{claimed}", {"boundaries": [60_000]}, 409, "segment_claimed"),
    ("POST", "/split/{free}?expectedEpoch=0", None, 409, "epoch_moved"),
    ("POST", "/autoScalePolicy?expectedEpoch=0", {"maxSegments": 8}, 409, "epoch_moved"),
    ("DELETE", "/autoScalePolicy?expectedEpoch=0", None, 409, "epoch_moved"),
    ("PUT", "/properties?expectedEpoch=0", {"a": "b"}, 409, "epoch_moved"),
    ("DELETE", "?force=true&expectedEpoch=0", None, 409, "epoch_moved"),
    ("DELETE", "?expectedEpoch=x", None, 400, "invalid_parameter"),
    ("POST", "/split/{free}?expectedEpoch=now", None, 400, "invalid_parameter"),
    ("POST", "/split/{free}?wait=no", None, 400, "unknown_field"),
    ("POST", "/split/{free}", {"boundaries": []}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": list(range(1, 257))}, 412, "too_many_parts"),
    ("POST", "/split/{free}?preview=true", {"boundaries": list(range(1, 257))}, 412, "too_many_parts"),
    ("POST", "/merge", {"segmentIds": list(range(257))}, 412, "too_many_parts"),
    ("POST", "/split/{free}", {"boundaries": [0]}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": [70_000]}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": [16_384]}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": [20_000, 20_000]}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": [20_001, 20_000]}, 400, "invalid_boundaries"),
    ("POST", "/split/{free}", {"boundaries": ["20000"]}, 400, "unreadable_body"),
    ("POST", "/split/{free}", {"boundaries": [20_000.5]}, 400, "unreadable_body"),
    ("POST", "/split/{free}", {"boundaries": [True]}, 400, "unreadable_body"),
    ("POST", "/split/{free}", b'{"boundaries":[NaN]}', 400, "unreadable_body"),
    ("POST", "/split/{free}", b'{"boundaries":[1e999]}', 400, "unreadable_body"),
    ("POST", "/split/{free}", {"boundary": 20_000}, 400, "unknown_field"),
    ("POST", "/split/{free}", [20_000], 400, "unreadable_body"),
    # Rebucket.
    ("POST", "/rebucket/99?bucketCount=8", None, 404, "segment_not_found"),
    ("POST", "/rebucket/one?bucketCount=8", None, 400, "invalid_parameter"),
    ("POST", "/rebucket/{sealed}?bucketCount=8", None, 412, "segment_not_active"),
    ("POST", "/rebucket/{claimed}?bucketCount=8", None, 409, "segment_claimed"),
    ("POST", "/rebucket/{free}", None, 412, "invalid_bucket_count"),
    ("POST", "/rebucket/{free}?bucketCount=0", None, 412, "invalid_bucket_count"),
    ("POST", "/rebucket/{free}?bucketCount=-1", None, 412, "invalid_bucket_count"),
    ("POST", "/rebucket/{free}?bucketCount=1025", None, 412, "invalid_bucket_count"),
    ("POST", "/rebucket/{free}?bucketCount=many", None, 400, "invalid_parameter"),
    ("POST", "/rebucket/{free}?bucketCount=8&expectedEpoch=0", None, 409, "epoch_moved"),
    ("POST", "/rebucket/{narrow}?bucketCount=1", None, 412, "bucket_count_unchanged"),
    ("POST", "/rebucket/{free}?bucketCount=8", {}, 400, "unreadable_body"),
    # Merge.
    ("POST", "/merge/{free}/{free}", None, 412, "segments_not_adjacent"),
    ("POST", "/merge/{narrow}/{free}", None, 412, "segments_not_adjacent"),
    ("POST", "/merge/{sealed}/{free}", None, 412, "segment_not_active"),
    ("POST", "/merge/{free}/99", None, 404, "segment_not_found"),
    ("POST", "/merge/2/{claimed}", None, 409, "segment_claimed"),
    ("POST", "/merge/1/2", {"segmentIds": [1, 2]}, 400, "unreadable_body"),
    ("POST", "/merge/1/two", None, 400, "invalid_parameter"),
    ("POST", "/merge", None, 400, "unreadable_body"),
    ("POST", "/merge", {}, 400, "unreadable_body"),
    ("POST", "/merge", {"segmentIds": []}, 412, "segments_not_adjacent"),
    ("POST", "/merge", {"segmentIds": [1]}, 412, "segments_not_adjacent"),
    ("POST", "/merge", {"segmentIds": [1, 2, 2]}, 412, "segments_not_adjacent"),
    ("POST", "/merge", {"segmentIds": [-1, 2]}, 400, "unreadable_body"),
    ("POST", "/merge", {"segmentIds": [1, 2], "epoch": 1}, 400, "unknown_field"),
    ("POST", "/merge?expectedEpoch=7", {"segmentIds": [1, 2]}, 409, "epoch_moved"),
    # Operations.
    ("GET", f"/operations/{UNKNOWN_OPERATION}", None, 404, "operation_not_found"),
    ("GET", "/operations/not-an-id", None, 404, "operation_not_found"),
    ("POST", f"/operations/{UNKNOWN_OPERATION}/abort", None, 404, "operation_not_found"),
    ("POST", "/operations/{finished_operation_id}/abort", None, 409, "operation_not_abortable"),
    ("GET", "/operations?limit=0", None, 400, "invalid_parameter"),
    ("GET", "/operations?unfinished=2", None, 400, "invalid_parameter"),
    ("GET", "/decisions?limit=1001", None, 400, "invalid_parameter"),
    # Policies.
    ("POST", "/autoScalePolicy", None, 400, "unreadable_body"),
    ("POST", "/autoScalePolicy", [], 400, "unreadable_body"),
    ("POST", "/autoScalePolicy", {"maxSegment": 4}, 400, "unknown_field"),
    ("POST", "/autoScalePolicy", {"maxSegments": "4"}, 400, "policy_unreadable"),
    ("POST", "/autoScalePolicy", {"profile": "magic"}, 400, "policy_unreadable"),
    ("POST", "/autoScalePolicy", b'{"splitMsgRateInThreshold":NaN}', 400, "unreadable_body"),
    ("POST", "/autoScalePolicy", b'{"splitMsgRateInThreshold":1e999}', 400, "unreadable_body"),
    ("POST", "/autoScalePolicy", b'{"maxSegments":4,"maxSegments":4}', 400, "unreadable_body"),
    ("POST", "/decisions/preview", b'{"maxSegments":4,"maxSegments":8}', 400, "unreadable_body"),
    ("PUT", "/properties", b'{"owner":"a","owner":"b"}', 400, "unreadable_body"),
    ("POST", "/autoScalePolicy", {"mergePeakSeconds": 3_601}, 412, "policy_invalid"),
    ("POST", "/decisions/preview", {"mergePeakSeconds": 3_601}, 412, "policy_invalid"),
    ("POST", "/autoScalePolicy", {"minMergeSegments": 5, "maxMergeSegments": 3}, 412, "policy_invalid"),
    ("POST", "/autoScalePolicy", {"minSegments": 0}, 412, "policy_invalid"),
    ("POST", "/autoScalePolicy", {"maxSegments": 4, "minSegments": 8}, 412, "policy_invalid"),
    ("POST", "/autoScalePolicy", {"splitMsgRateInThreshold": 0}, 412, "policy_invalid"),
    ("POST", "/autoScalePolicy", {"mergeMsgRateInThreshold": 10_000}, 412, "policy_invalid"),
    # Messages and subscriptions.
    ("GET", "/segments/99/batches", None, 404, "segment_not_found"),
    ("GET", "/segments/1/batches?offset=-1", None, 400, "invalid_parameter"),
    ("GET", "/segments/1/batches?maxBytes=0", None, 400, "invalid_parameter"),
    ("GET", "/segments/1/batches?maxBytes=100000000", None, 400, "invalid_parameter"),
    ("GET", "/segments/1/batches?incarnation=-1", None, 400, "invalid_parameter"),
    ("GET", "/segments/1/batches?incarnation=999999999", None, 404, "topic_deleted"),
    ("GET", "/tiles?fromMs=-1", None, 400, "invalid_parameter"),
    ("GET", "/tiles?toMs=999999999999999", None, 400, "invalid_parameter"),
    ("PUT", "/subscriptions/s?type=SHARED", None, 400, "invalid_parameter"),
    ("PUT", f"/subscriptions/{LONG}", None, 400, "invalid_name"),
    ("DELETE", "/subscriptions/nobody", None, 404, "subscription_not_found"),
    # A segment has one spelling; with two of them one body could name it twice.
    ("PUT", "/subscriptions/s", {"positions": {"00": 0}}, 400, "unreadable_body"),
    ("PUT", "/subscriptions/s", {"positions": {"0\n": 0}}, 400, "unreadable_body"),
    ("PUT", "/subscriptions/s", {"positions": {"\u0660": 0}}, 400, "unreadable_body"),
    ("POST", "/subscriptions/s/seek", {"positions": {"1": 0, "01": 0}}, 400, "unreadable_body"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), ON_A_TOPIC)
def test_refusals_on_a_topic(
    rest: Rest, orders: Orders, method: str, path: str, body: object, status: int, code: str
) -> None:
    before = rows()
    address = orders.path + path.format(**vars(orders))
    assert rest.refused(method, address, body, Prefer="respond-async") == (status, code)
    assert rows() == before


def test_another_type_of_a_subscription_is_refused(rest: Rest, orders: Orders) -> None:
    assert rest.call("PUT", f"{orders.path}/subscriptions/s").status_code == 204
    refusal = rest.refused("PUT", f"{orders.path}/subscriptions/s?type=QUEUE")
    assert refusal == (409, "subscription_type_mismatch")


REPORTS = [
    ("reports", {"reporter": "r", "watermarkMs": 1}, "unreadable_body"),
    ("reports", {"reporter": "r", "watermarkMs": -1, "loads": []}, "unreadable_body"),
    ("reports", {"reporter": "", "watermarkMs": 1, "loads": []}, "load_report_unreadable"),
    ("reports", {"reporter": "r", "watermarkMs": 1, "loads": [{"topic": "t"}]}, "load_report_unreadable"),
    ("reports", {"reporter": "r", "watermarkMs": 1, "loads": [], "more": 1}, "unknown_field"),
    ("tiles", {"tiles": [{}]}, "load_report_unreadable"),
    ("tiles", {}, "unreadable_body"),
]


@pytest.mark.parametrize(("door", "body", "code"), REPORTS)
def test_unreadable_reports(db: None, door: str, body: object, code: str) -> None:
    before = rows()
    refusal = Rest("system").refused("POST", f"/admin/v2/scalable-load/{door}", body)
    assert refusal == (400, code)
    assert rows() == before


def test_a_form_is_no_json(rest: Rest) -> None:
    refusal = rest.refused(
        "PUT", f"{NAMESPACE}/x", b"owner=me", Content_Type="application/x-www-form-urlencoded"
    )
    assert refusal == (415, "unreadable_body")


@pytest.mark.parametrize("charset", ["utf-16", "latin-1", "us-ascii", "none-such"])
def test_json_is_in_utf_8(rest: Rest, charset: str) -> None:
    path = f"{NAMESPACE}/x"
    refusal = rest.refused("PUT", path, b"{}", Content_Type=f"application/json; charset={charset}")
    assert refusal == (415, "unreadable_body")
    for number, known in enumerate(('"UTF-8"', "utf8")):
        answer = rest.call("PUT", f"{path}{number}", b"{}", Content_Type=f"application/json; charset={known}")
        assert answer.status_code == 204


def test_a_body_beyond_the_limit(rest: Rest) -> None:
    refusal = rest.refused("PUT", f"{NAMESPACE}/x", b" " * (8 * 1024 * 1024 + 1))
    assert refusal == (413, "message_too_large")


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "POST"])
def test_methods_without_a_door(rest: Rest, orders: Orders, method: str) -> None:
    assert rest.refused(method, orders.path) == (405, "method_not_allowed")
    answer = rest.call(method, orders.path)
    assert "Allow header" in answer.json()["hint"]
    assert "GET" in answer["Allow"]


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "a\\ud800b", "\\udc00\\ud800"])
def test_half_of_a_surrogate_pair_is_named_as_such(rest: Rest, text: str) -> None:
    for body in (f'{{"owner": "{text}"}}', f'{{"{text}": "x"}}'):
        answer = rest.call("PUT", f"{NAMESPACE}/x", body.encode())
        assert answer.status_code == 400
        assert "half of a surrogate pair" in answer.json()["reason"]


@pytest.mark.parametrize("body", [b"{", b'{"owner": "a', b'{"owner": "\\ud800'])
def test_a_body_that_is_cut_is_said_to_be_truncated(rest: Rest, body: bytes) -> None:
    assert "truncated" in rest.call("PUT", f"{NAMESPACE}/x", body).json()["reason"]


def test_a_database_out_of_reach_is_said_to_be_temporary(rest: Rest) -> None:
    with connection.execute_wrapper(_broken):
        answer = rest.call("GET", f"{NAMESPACE}/x")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) >= 1
    assert "out of reach" not in answer.content.decode()  # the log says it, the caller gets a reference


def _broken(*_: object) -> None:
    raise OperationalError("out of reach")
