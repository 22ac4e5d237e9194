"""REST of tenants and namespaces, and what a namespace sets."""

import pytest

from tests.api.rest import NAMESPACE, Rest

TENANTS = "/admin/v2/tenants"
NAMESPACES = "/admin/v2/namespaces"
POLICY = f"{NAMESPACES}/public/default/scalableTopicAutoScalePolicy"


def test_a_tenant_from_its_making_to_its_end(rest: Rest) -> None:
    path = f"{TENANTS}/acme"
    info = {"adminRoles": ["bob", "ada"], "allowedClusters": ["standalone"]}
    assert rest.call("PUT", path, info).status_code == 204
    assert rest.refused("PUT", path, info) == (409, "tenant_exists")
    assert rest.json(path) == {"adminRoles": ["ada", "bob"], "allowedClusters": ["standalone"]}
    assert "acme" in rest.json(TENANTS)
    assert rest.call("POST", path, {"adminRoles": ["eve"]}).status_code == 204
    assert rest.json(path)["adminRoles"] == ["eve"]
    assert rest.call("PUT", f"{NAMESPACES}/acme/shop").status_code == 204
    assert rest.json(f"{NAMESPACES}/acme") == ["acme/shop"]
    assert rest.refused("DELETE", path) == (409, "tenant_not_empty")
    assert rest.call("DELETE", f"{NAMESPACES}/acme/shop").status_code == 204
    assert rest.call("DELETE", path).status_code == 204
    assert rest.refused("GET", path) == (404, "tenant_not_found")
    assert rest.refused("DELETE", path) == (404, "tenant_not_found")
    assert rest.refused("POST", path, {}) == (404, "tenant_not_found")


def test_a_tenant_needs_no_body_and_no_other_cluster(rest: Rest) -> None:
    assert rest.call("PUT", f"{TENANTS}/plain").status_code == 204
    assert rest.refused("PUT", f"{TENANTS}/far", {"allowedClusters": ["us-west"]}) == (
        412,
        "cluster_not_found",
    )
    assert rest.refused("PUT", f"{TENANTS}/odd", {"admins": []}) == (400, "unknown_field")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_the_tenant_of_the_system_stays(rest: Rest, method: str) -> None:
    assert rest.refused(method, f"{TENANTS}/system", {} if method == "POST" else None) == (
        412,
        "tenant_fixed",
    )


def test_lists_are_pages_and_say_how_many_there_are(rest: Rest) -> None:
    for number in range(3):
        rest.call("PUT", f"{NAMESPACES}/public/n{number}")
    answer = rest.call("GET", f"{NAMESPACES}/public?limit=2&offset=1")
    assert answer.json() == ["public/n0", "public/n1"]
    assert answer["X-Scalable-Total"] == "4"
    assert int(rest.call("GET", f"{TENANTS}?limit=1")["X-Scalable-Total"]) >= 2
    assert rest.refused("GET", f"{NAMESPACES}/nowhere") == (404, "tenant_not_found")


def test_a_list_shows_what_the_caller_may_see(rest: Rest) -> None:
    rest.call("PUT", f"{TENANTS}/acme", {"adminRoles": ["ada"]})
    rest.call("PUT", f"{NAMESPACES}/acme/shop")
    assert Rest("ada").json(TENANTS) == ["acme"]
    assert Rest("ada").json(f"{NAMESPACES}/acme") == ["acme/shop"]
    assert Rest("ada").json(f"{NAMESPACES}/public") == []
    assert Rest("nobody").json(TENANTS) == []


def test_what_a_namespace_sets(rest: Rest) -> None:
    path = f"{NAMESPACES}/public/default"
    rest.call("POST", f"{path}/lifetimes", {"retentionSeconds": 60})
    rest.call("POST", POLICY, {"maxSegments": 8})
    body = rest.json(path)
    assert body.pop("createdAtMs") > 0
    assert body == {
        "scalableTopicAutoScalePolicy": {"maxSegments": 8},
        "retentionSeconds": 60,
        "sessionGraceSeconds": None,
        "deleted": False,
    }
    assert rest.refused("GET", f"{NAMESPACES}/public/nowhere") == (404, "namespace_not_found")


def test_the_policy_of_a_namespace_holds_for_its_topics(rest: Rest) -> None:
    rest.call("PUT", f"{NAMESPACE}/orders")
    assert rest.call("GET", POLICY).status_code == 204
    assert rest.call("POST", POLICY, {"maxSegments": 8}).status_code == 204
    assert rest.json(POLICY) == {"maxSegments": 8}
    effective = rest.json(f"{NAMESPACE}/orders/autoScalePolicy/effective")
    assert (effective["policy"]["maxSegments"], effective["sources"]["maxSegments"]) == (8, "namespace")
    for _ in range(2):
        assert rest.call("DELETE", POLICY).status_code == 204
    assert rest.call("GET", POLICY).status_code == 204


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"minSegments": 1_000_000}, (412, "policy_invalid")),
        ({"splitMsgRateInThreshold": 0}, (412, "policy_invalid")),
        ({"splitCooldownSeconds": -1}, (412, "policy_invalid")),
        ({"maxSegments": "many"}, (400, "policy_unreadable")),
        ({"unheard": 1}, (400, "unknown_field")),
        ([], (400, "unreadable_body")),
    ],
)
def test_a_policy_that_cannot_be(rest: Rest, body: object, refusal: tuple[int, str]) -> None:
    assert rest.refused("POST", POLICY, body) == refusal
    assert rest.call("GET", POLICY).status_code == 204


def test_a_topic_that_no_longer_goes_with_its_namespace_is_refused_and_told(rest: Rest) -> None:
    """As Pulsar has it: what the topic sets is checked over what its namespace sets."""
    rest.call("PUT", f"{NAMESPACE}/orders")
    rest.call("POST", POLICY, {"mergeMsgRateInThreshold": 5_000})
    own = f"{NAMESPACE}/orders/autoScalePolicy"
    assert rest.refused("POST", own, {"splitMsgRateInThreshold": 2_000}) == (412, "policy_invalid")
    merge_never = {f"merge{axis}Threshold": 0 for axis in ("MsgRateIn", "MsgRateOut")}
    assert rest.call("POST", own, merge_never).status_code == 204
