"""All subscriptions of a topic settled together: each gets what it would get alone, at the cost of one."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.services import controller, seeking, settling, subscriptions
from scalable.services.controller import Leader
from scalable.store import subscriptions as store
from tests.services.group import leader_of
from tests.topology import append, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db


def subscribe(leader: Leader, name: str, *consumers: str, key_shared: bool = False) -> int:
    """Make a subscription with these consumers."""
    found = controller.find_or_create(name=leader.topic, subscription=name, key_shared=key_shared)
    controller.register_consumers(leader=leader, subscription_id=found.subscription_id, consumers=consumers)
    return found.subscription_id


def owners(subscription_id: int) -> dict[BucketKey, str]:
    """Who owns what."""
    owned = store.ownerships(subscription_id).owned
    return {key: known.owner for key, known in owned.items() if known.owner is not None}


@pytest.mark.parametrize("together", [1, 2, 200])
def test_each_subscription_gets_its_own(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(settling, "SETTLED_TOGETHER", together)
    topic = make_topic(segments=1)
    leader = leader_of(topic)
    append(topic, 0, "unread by one")
    behind = subscribe(leader, "behind", "a")
    done = {name: subscribe(leader, name, *name) for name in ("b", "cd", "e")}
    shared = subscribe(leader, "shared", "f", key_shared=True)
    nobody = subscribe(leader, "nobody")
    subscriptions.create_subscription(name=topic.name, subscription="queue", kind=SubscriptionType.QUEUE)
    for name in ("b", "cd", "e", "shared", "nobody"):
        seeking.clear_backlog(name=topic.name, subscription=name)
    before = {key: store.lock(key).generation for key in (behind, *done.values(), shared, nobody)}
    drive(request(OperationKind.SPLIT, topic))
    children = [segment.segment_id for segment in layout_of(topic).active]
    assert owners(behind) == {BucketKey(0): "a"}
    assert store.lock(behind).generation == before[behind]
    for name, key in done.items():
        assert owners(key) == {BucketKey(child): name[at % len(name)] for at, child in enumerate(children)}
        assert store.lock(key).generation == before[key] + 1
    assert set(owners(shared).values()) == {"f"}
    assert {key.segment_id for key in owners(shared)} == set(children)
    assert not owners(nobody)
    assert set(store.ownerships(nobody).drained) == {0}


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_crowd_of_subscriptions_costs_what_one_does(acknowledged: bool) -> None:
    costs = []
    for count in (1, 20):
        topic = make_topic(f"crowded-{count}", segments=1)
        leader = leader_of(topic)
        for number in range(count):
            subscribe(leader, f"s{number}", "a")
        if not acknowledged:
            append(topic, 0, "unread")
        drive(request(OperationKind.SPLIT, topic))
        with CaptureQueriesContext(connection) as queries:
            settling.settle_topic(topic_id=topic.incarnation)
        costs.append(len(queries))
    assert costs[0] == costs[1]
