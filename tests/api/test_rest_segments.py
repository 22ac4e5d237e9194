"""REST of single segments, for the system role, and a segment in numbers (PIP-468, Segments API)."""

import pytest

from scalable.domain.names import TopicName
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import messages, topics
from scalable.wire.batch import Record, encode_batch
from tests.api.rest import NAMESPACE, Orders, Rest

ORDERS = TopicName("public", "default", "orders")
ROOT = "/admin/v2/segments/public/default/orders"


@pytest.fixture
def system(db: None) -> Rest:
    """Calls as the product's own machinery."""
    return Rest("system")


def path_of(segment_id: int) -> str:
    """The path of a segment as the layout has it."""
    segment = topics.get_topic(name=ORDERS).layout.get(segment_id)
    return f"{ROOT}/{segment.hash_range.hex}-{segment_id}"


def key_of(segment_id: int) -> SegmentKey:
    """The key of a segment's store."""
    return SegmentKey(topics.get_topic(name=ORDERS).incarnation, segment_id)


def send(segment_id: int, count: int) -> None:
    """Store messages, one batch each."""
    batches = [encode_batch([Record(None, b"x", n, 0)], published_at_ms=n) for n in range(count)]
    key = key_of(segment_id)
    messages.append(
        name=ORDERS, incarnation=key.incarnation, segment_id=segment_id, batches=batches, producer="p"
    )


def test_a_missing_store_of_an_active_segment_is_made_with_its_cursors(
    rest: Rest, orders: Orders, system: Rest
) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    segment_port().delete(key_of(orders.free))
    for body in (["s"], None, []):
        assert system.call("PUT", path_of(orders.free), body).status_code == 204
    assert segment_port().backlog(key_of(orders.free), subscription="s") == 0
    assert system.refused("PUT", path_of(orders.free), ["other"]) == (404, "subscription_not_found")


def test_a_sealed_segment_is_not_made_again(rest: Rest, orders: Orders, system: Rest) -> None:
    assert system.call("PUT", path_of(orders.sealed)).status_code == 204
    segment_port().delete(key_of(orders.sealed))
    assert system.refused("PUT", path_of(orders.sealed)) == (404, "segment_store_missing")


def test_a_descriptor_names_range_and_id(rest: Rest, orders: Orders, system: Rest) -> None:
    for method, end in (("PUT", ""), ("POST", "/terminate"), ("DELETE", "")):
        assert system.refused(method, f"{ROOT}/0000-ffff-1{end}") == (404, "segment_not_found")
        assert system.refused(method, f"{ROOT}/nonsense{end}") == (400, "invalid_name")
        assert system.refused(method, f"{ROOT}/8000-7fff-1{end}") == (400, "invalid_range")


def test_terminate_may_be_repeated_and_a_split_completes_it(rest: Rest, orders: Orders, system: Rest) -> None:
    for _ in range(2):
        assert system.call("POST", f"{path_of(orders.free)}/terminate").status_code == 204
    assert segment_port().stats(key_of(orders.free)).terminated
    missing = f"{ROOT}/0000-3fff-99/terminate"
    assert system.refused("POST", missing) == (404, "segment_not_found")
    segment_port().delete(key_of(2))
    assert system.refused("POST", f"{path_of(2)}/terminate") == (503, "segment_not_loaded")


@pytest.mark.django_db(transaction=True)
def test_delete_prunes_what_is_sealed_and_drained(rest: Rest, orders: Orders, system: Rest) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    sealed = path_of(orders.sealed)
    assert system.refused("DELETE", path_of(orders.free)) == (412, "segment_not_prunable")
    assert system.call("DELETE", sealed).status_code == 204  # it is empty
    assert str(orders.sealed) not in rest.json(orders.path)["segments"]
    assert system.call("DELETE", sealed).status_code == 204  # gone already
    assert system.call("DELETE", f"{ROOT.replace('orders', 'nothing')}/0000-ffff-0").status_code == 204


@pytest.mark.django_db(transaction=True)
def test_delete_by_force_does_not_ask_who_has_read(rest: Rest, orders: Orders, system: Rest) -> None:
    path = f"{NAMESPACE}/lifetimes".replace("scalable", "namespaces")
    assert rest.call("POST", path, {"retentionSeconds": 3600}).status_code == 204
    assert system.refused("DELETE", path_of(orders.sealed)) == (412, "segment_not_prunable")
    assert system.call("DELETE", f"{path_of(orders.sealed)}?force=true").status_code == 204
    assert system.refused("DELETE", f"{path_of(orders.claimed)}?force=true") == (412, "segment_not_prunable")


def test_a_store_that_an_operation_makes_is_not_a_leftover(rest: Rest, orders: Orders, system: Rest) -> None:
    child = rest.json(f"{orders.path}/operations/{orders.operation_id}")["plan"]["children"][0]
    descriptor = f"{child['hashRange']['start']:04x}-{child['hashRange']['end']:04x}-{child['segmentId']}"
    assert system.refused("DELETE", f"{ROOT}/{descriptor}") == (409, "segment_claimed")


def test_cursors_of_a_segment(rest: Rest, orders: Orders, system: Rest) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    cursor = f"{path_of(orders.free)}/subscription/s"
    segment_port().delete_cursor(key_of(orders.free), subscription="s")
    for _ in range(2):
        assert system.call("PUT", cursor).status_code == 204
    assert system.json(f"{cursor}/backlog") == 0
    assert system.refused("DELETE", cursor) == (409, "cursor_needed")
    segment_port().create_cursor(key_of(orders.free), subscription="left", position=None)
    for _ in range(2):
        assert system.call("DELETE", f"{path_of(orders.free)}/subscription/left").status_code == 204
    assert segment_port().cursor(key_of(orders.free), subscription="left") is None
    assert system.refused("PUT", f"{path_of(orders.free)}/subscription/left") == (
        404,
        "subscription_not_found",
    )


def test_backlog_seek_and_skip_of_one_segment(rest: Rest, orders: Orders, system: Rest) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    send(orders.free, 3)
    send(2, 2)
    cursor, other = (f"{path_of(key)}/subscription/s" for key in (orders.free, 2))
    assert system.json(f"{cursor}/backlog") == 3
    assert system.call("POST", f"{cursor}/skip-all").status_code == 204
    assert (system.json(f"{cursor}/backlog"), system.json(f"{other}/backlog")) == (0, 2)
    assert system.call("POST", f"{cursor}/seek?timestamp=0&authoritative=true").status_code == 204
    assert system.json(f"{cursor}/backlog") == 3
    assert system.refused("POST", f"{cursor}/seek") == (400, "invalid_parameter")
    for end in ("/backlog", "/seek?timestamp=0", "/skip-all"):
        method = "GET" if end == "/backlog" else "POST"
        unknown = f"{path_of(orders.free)}/subscription/unknown{end}"
        assert system.refused(method, unknown) == (404, "subscription_not_found")


def test_a_segment_that_is_not_loaded_is_told_from_an_unknown_subscription(
    rest: Rest, orders: Orders, system: Rest
) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    cursor = f"{path_of(orders.free)}/subscription/s"
    segment_port().delete(key_of(orders.free))
    assert system.refused("POST", f"{cursor}/seek?timestamp=0") == (503, "segment_not_loaded")
    assert system.refused("POST", f"{cursor}/skip-all") == (503, "segment_not_loaded")
    assert system.refused("GET", f"{cursor}/backlog") == (404, "segment_store_missing")


def test_a_segment_in_numbers(rest: Rest, orders: Orders) -> None:
    rest.call("PUT", f"{orders.path}/subscriptions/s")
    send(orders.free, 3)
    stats = rest.json(f"{orders.path}/segments/{orders.free}/stats")
    assert (stats["startOffset"], stats["endOffset"], stats["terminated"]) == (0, 3, False)
    assert stats["storageSize"] > 0
    assert stats["backlogSize"] == stats["subscriptions"]["s"]["backlogSize"] > 0
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    assert rest.refused("GET", f"{orders.path}/segments/99/stats") == (404, "segment_not_found")


def test_migrate_is_for_the_adapter(rest: Rest) -> None:
    assert rest.refused("POST", f"{NAMESPACE}/old/migrate?force=true") == (501, "not_supported")
