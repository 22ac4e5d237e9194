"""How long things are kept, namespaces, and deletions that wait, over REST."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from launch.sandbox import LiveNode, ProcessFactory
from scalable.client import Admin
from scalable.domain.errors import (
    InvalidParameter,
    NamespaceDeleting,
    NamespaceNotEmpty,
    NamespaceNotFound,
    SegmentClaimed,
    TopicNotFound,
    UnreadableBody,
)
from scalable.models import Namespace
from scalable.services import lifetimes
from scalable.services.lifetimes import Lifetimes
from tests.api.rest import NAMESPACE, Rest
from tests.topology import ACTOR, make_topic, topic_name

NAMESPACES = "/admin/v2/namespaces/public"
TOPIC = "topic://public/default/kept"


def test_a_topic_over_its_namespace_over_the_default(db: None) -> None:
    rest, path = Rest(), f"{NAMESPACE}/kept/lifetimes"
    make_topic("kept")
    unset = {"retentionSeconds": None, "sessionGraceSeconds": None}
    default = {
        "retentionSeconds": {"value": 0, "source": "default"},
        "sessionGraceSeconds": {"value": 60.0, "source": "default"},
    }
    assert rest.json(path) == {**unset, "effective": default}
    inherited = {"retentionSeconds": -1, "sessionGraceSeconds": 5.5}
    assert rest.call("POST", f"{NAMESPACES}/default/lifetimes", inherited).status_code == 204
    assert rest.json(f"{NAMESPACES}/default/lifetimes") == {
        **inherited,
        "effective": {
            "retentionSeconds": {"value": -1, "source": "namespace"},
            "sessionGraceSeconds": {"value": 5.5, "source": "namespace"},
        },
    }
    assert rest.call("POST", path, {"retentionSeconds": 3600}).status_code == 204
    assert rest.json(path) == {
        **unset,
        "retentionSeconds": 3600,
        "effective": {
            "retentionSeconds": {"value": 3600, "source": "topic"},
            "sessionGraceSeconds": {"value": 5.5, "source": "namespace"},
        },
    }
    assert rest.call("DELETE", path).status_code == 204
    assert rest.call("DELETE", f"{NAMESPACES}/default/lifetimes").status_code == 204
    assert rest.json(path) == {**unset, "effective": default}
    assert rest.json(f"{NAMESPACES}/default/lifetimes") == {**unset, "effective": default}


@pytest.mark.parametrize(
    "given",
    [Lifetimes(-2), Lifetimes(10**12), Lifetimes(None, -0.5), Lifetimes(None, float("nan"))],
)
def test_the_services_refuse_what_is_no_time(db: None, given: Lifetimes) -> None:
    make_topic("kept")
    with pytest.raises(InvalidParameter):
        lifetimes.set_topic_lifetimes(name=topic_name("kept"), lifetimes=given, actor=ACTOR)
    with pytest.raises(InvalidParameter):
        lifetimes.set_namespace_lifetimes(tenant="public", namespace="default", lifetimes=given, actor=ACTOR)


def test_a_namespace_is_made_filled_and_deleted(db: None) -> None:
    rest = Rest()
    assert rest.call("PUT", f"{NAMESPACES}/new").status_code == 204
    assert rest.call("PUT", f"{NAMESPACES}/new").status_code == 204
    for number in range(2):
        assert rest.call("PUT", f"/admin/v2/scalable/public/new/t{number}").status_code == 204
    refusal = rest.call("DELETE", f"{NAMESPACES}/new")
    assert (refusal.status_code, refusal.json()["fields"]["topics"]) == (409, 2)
    Namespace.objects.filter(name="new").update(deleting=True)
    late = rest.refused("PUT", "/admin/v2/scalable/public/new/late")
    assert late == (409, "namespace_deleting")
    assert rest.refused("PUT", f"{NAMESPACES}/new") == (409, "namespace_deleting")
    assert rest.call("DELETE", f"{NAMESPACES}/new?force=true").status_code == 204
    assert rest.refused("GET", "/admin/v2/scalable/public/new") == (404, "namespace_not_found")


@pytest.fixture
def admin(live_node: LiveNode) -> Iterator[Admin]:
    with Admin(live_node.url, live_node.admin_token) as client:
        yield client


def test_the_client_has_all_of_it(admin: Admin) -> None:
    admin.create_namespace("public/apart")
    admin.set_namespace_lifetimes("public/apart", session_grace_seconds=7)
    topic = "topic://public/apart/kept"
    admin.create_topic(topic)
    admin.set_lifetimes(topic, retention_seconds=-1)
    effective = admin.lifetimes(topic)["effective"]
    assert effective["retentionSeconds"] == {"value": -1, "source": "topic"}
    assert effective["sessionGraceSeconds"] == {"value": 7.0, "source": "namespace"}
    with pytest.raises(UnreadableBody):
        admin.set_lifetimes(topic, retention_seconds=-2)
    with pytest.raises(NamespaceNotEmpty):
        admin.delete_namespace("public/apart")
    assert admin.delete_namespace("public/apart", force=True)
    with pytest.raises(TopicNotFound):
        admin.lifetimes(topic)
    with pytest.raises((NamespaceNotFound, NamespaceDeleting)):
        admin.create_topic(topic)


def test_a_deletion_waits_for_the_split_that_is_under_way(processes: ProcessFactory) -> None:
    node = processes.node()
    with Admin(node.url, node.admin_token) as client:
        client.create_topic(TOPIC)
        client.split(TOPIC, 0, wait=False)
        failures: list[BaseException] = []

        def delete() -> None:
            try:
                client.delete_topic(TOPIC)
            except BaseException as error:
                failures.append(error)

        deleting = threading.Thread(target=delete)
        deleting.start()
        processes.worker()  # only now is there somebody who drives the split
        deleting.join(60)
        assert not deleting.is_alive()
        assert failures == []
        with pytest.raises(TopicNotFound):
            client.get_topic(TOPIC)


def test_the_wait_is_bounded_and_may_be_declined(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_OPERATION_WAIT_SECONDS="0.5")  # and no worker
    with Admin(node.url, node.admin_token) as client:
        client.create_topic(TOPIC)
        client.split(TOPIC, 0, wait=False)
        with pytest.raises(SegmentClaimed):
            client.delete_topic(TOPIC)
        declined = httpx.delete(
            f"{node.url}{NAMESPACE}/kept", headers={**node.headers, "Prefer": "respond-async"}, timeout=60
        )
        assert declined.status_code == 409
        client.delete_topic(TOPIC, force=True)
        with pytest.raises(TopicNotFound):
            client.get_topic(TOPIC)
