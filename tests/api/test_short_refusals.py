"""A refusal repeats some hundred characters of what was sent, and not all of it."""

import json

import pytest

from tests.api.rest import NAMESPACE, ROOT, Orders, Rest

MOST_BYTES = 20_000
LONG = "x" * 100_000
DIGITS = b"9" * 4_000
CASES: dict[str, tuple[str, str, object]] = {
    "boundaries": ("POST", "/split/1", b'{"boundaries":[' + b",".join([DIGITS] * 255) + b"]}"),
    "negative boundaries": ("POST", "/split/1", b'{"boundaries":[-' + DIGITS + b"]}"),
    "the largest boundaries": ("POST", "/split/1", {"boundaries": [2**63 - 1] * 255}),
    "segments": ("POST", "/merge", b'{"segmentIds":[' + DIGITS + b"]}"),
    "a field that is not": ("POST", "/split/1", {LONG: 1}),
    "a name twice": ("POST", "/split/1", f'{{"{LONG}":1,"{LONG}":1}}'.encode()),
    "a policy's field": ("POST", "/autoScalePolicy", {LONG: 1}),
    "a policy's number": ("POST", "/autoScalePolicy", b'{"maxSegments":' + DIGITS + b"}"),
    "a policy's text": ("POST", "/autoScalePolicy", {"maxSegments": LONG}),
    "a policy's profile": ("POST", "/autoScalePolicy", {"profile": LONG}),
    "a policy's list": ("POST", "/autoScalePolicy", {"maxSegments": [LONG, LONG]}),
    "lifetimes": ("POST", "/lifetimes", {"retentionSeconds": LONG}),
    "a number of lifetimes": ("POST", "/lifetimes", b'{"retentionSeconds":' + DIGITS + b"}"),
    "a segment": ("POST", f"/split/{'9' * 50_000}", None),
    "two segments": ("POST", f"/merge/{LONG}/{LONG}", None),
    "an operation": ("GET", f"/operations/{LONG}", None),
    "a subscription": ("PUT", f"/subscriptions/{LONG}", None),
    "a subscription's start": ("PUT", f"/subscriptions/s?startPosition={LONG}", None),
    "a choice": ("PUT", f"/subscriptions/s?type={LONG}", None),
    "a descriptor": ("GET", f"/segments/{LONG}/stats", None),
    "a query": ("GET", f"/locate?hash={LONG}", None),
    "a query twice": ("GET", f"/locate?hash={LONG}&hash={LONG}", None),
    "a parameter that is not": ("GET", f"/locate?{LONG}=1", None),
    "roles": ("POST", "/permissions/r", [LONG]),
    "a role": ("POST", f"/permissions/{LONG}", ["consume"]),
    "positions": ("POST", "/subscriptions/s/seek", {"positions": {LONG: 1}}),
    "a seek": ("POST", "/subscriptions/s/seek", {"start": LONG}),
    "a property": ("PUT", "2", {LONG: "x"}),
    "a topic": ("PUT", LONG, None),
}
ELSEWHERE: dict[str, tuple[str, str, object]] = {
    "a filter": ("GET", f"{NAMESPACE}?property={LONG}", None),
    "a state": ("GET", f"{ROOT}-topics/public/default?state={LONG}", None),
    "a sort": ("GET", f"{ROOT}-topics/public/default?sort={LONG}", None),
    "a path": ("GET", f"/admin/v2/{LONG}", None),
    "a tenant": ("PUT", "/admin/v2/tenants/acme", {"adminRoles": [LONG]}),
    "clusters": ("PUT", "/admin/v2/tenants/acme", {"allowedClusters": [LONG]}),
    "a token": ("POST", "/admin/v2/tokens", {"role": LONG}),
    "an audit": ("GET", f"/admin/v2/audit?actor={LONG}", None),
    "a kind of job": ("POST", "/admin/v2/scalable-jobs", {"kind": LONG}),
    "a job": ("GET", f"/admin/v2/scalable-jobs/{LONG}", None),
}


def assert_short(rest: Rest, method: str, path: str, body: object, **headers: str) -> None:
    answer = rest.call(method, path, body, **headers)
    assert 400 <= answer.status_code < 500, answer.content[:1_000]
    assert len(answer.content) < MOST_BYTES, answer.content[:1_000]


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_of_a_topics_door_is_short(rest: Rest, orders: Orders, case: str) -> None:
    method, path, body = CASES[case]
    assert_short(rest, method, orders.path + path, body)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_refusal_is_short(rest: Rest, case: str) -> None:
    assert_short(rest, *ELSEWHERE[case])


@pytest.mark.parametrize("name", ["Content-Type", "Idempotency-Key", "Prefer", "Authorization"])
def test_a_refusal_of_a_header_is_short(rest: Rest, name: str) -> None:
    body = json.dumps({"segmentIds": [1]}).encode()
    headers = {name: f"Bearer {LONG}" if name == "Authorization" else LONG}
    assert_short(rest, "POST", f"{NAMESPACE}/none/merge", body, **headers)
