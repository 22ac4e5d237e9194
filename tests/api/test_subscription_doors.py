"""Subscriptions over REST: made, looked at, moved and refused, as documented."""

from base64 import b64decode
from typing import Any

import pytest

from scalable.domain.names import TopicName
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import topics
from tests.api.rest import NAMESPACE, Rest, settle
from tests.segments.samples import LOW, batch
from tests.topology import append

PATH = f"{NAMESPACE}/orders"
SUBSCRIPTION = f"{PATH}/subscriptions/s"


@pytest.fixture
def grown(rest: Rest) -> Rest:
    """A topic whose only segment was split: ten messages in it, two in each child."""
    assert rest.call("PUT", PATH).status_code == 204
    topic = topics.get_topic(name=TopicName("public", "default", "orders"))
    for number in range(10):
        append(topic, 0, f"message {number}")
    settle(rest, f"{PATH}/split/0")
    for segment_id in (1, 1, 2, 2):
        append(topic, segment_id, "child")
    return rest


def done(rest: Rest, method: str, path: str, body: object = None) -> None:
    """Call a door that answers without a body."""
    answer = rest.call(method, path, body)
    assert (answer.status_code, answer.content) == (204, b"")


def backlog(rest: Rest) -> dict[str, int]:
    """What is left of each segment."""
    return {key: one["msgBacklog"] for key, one in rest.json(SUBSCRIPTION)["segments"].items()}


def preview(rest: Rest, path: str, body: object = None) -> Any:
    """What a move would do."""
    answer = rest.call("POST", path, body)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_one_is_made_looked_at_and_deleted(grown: Rest) -> None:
    done(grown, "PUT", f"{SUBSCRIPTION}?keyShared=true&holdsPruning=false")
    done(grown, "PUT", SUBSCRIPTION)  # again is fine and changes nothing
    (listed,) = grown.json(f"{PATH}/subscriptions")["subscriptions"]
    assert {**listed, "createdAtMs": 0} == {
        "name": "s",
        "type": "STREAM",
        "keyShared": True,
        "holdsPruning": False,
        "createdAtMs": 0,
    }
    told = grown.json(SUBSCRIPTION)
    assert (told["msgBacklog"], told["backlogExact"], told["consumers"]) == (14, True, [])
    assert told["segments"]["1"]["waitsFor"] == [{"segmentId": 0, "unackedMessages": 10}]
    assert grown.refused("PUT", f"{SUBSCRIPTION}?type=QUEUE") == (409, "subscription_type_mismatch")
    done(grown, "DELETE", SUBSCRIPTION)
    assert grown.refused("GET", SUBSCRIPTION) == (404, "subscription_not_found")


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("initialPosition=earliest", None, {"0": 10, "1": 2, "2": 2}),
        ("initialPosition=latest", None, {"0": 0, "1": 0, "2": 0}),
        ("timestamp=0", None, {"0": 10, "1": 2, "2": 2}),
        ("timestamp=253402300799000", None, {"0": 0, "1": 0, "2": 0}),
        ("type=CHECKPOINT", {"positions": {"0": 4, "2": 1}}, {"0": 6, "1": 2, "2": 1}),
    ],
)
def test_it_begins_where_it_is_told(grown: Rest, query: str, body: object, expected: dict[str, int]) -> None:
    done(grown, "PUT", f"{SUBSCRIPTION}?{query}", body)
    assert backlog(grown) == expected


def test_a_seek_is_previewed_then_done(grown: Rest) -> None:
    done(grown, "PUT", f"{SUBSCRIPTION}?initialPosition=latest")
    told = preview(grown, f"{SUBSCRIPTION}/seek?timestamp=0&preview=true")
    assert (told["backlogBefore"], told["backlogAfter"], told["epoch"]) == (0, 14, 1)
    assert told["segments"][0] == {
        "segmentId": 0,
        "state": "SEALED",
        "fromPosition": 10,
        "toPosition": 0,
        "backlogBefore": 0,
        "backlogAfter": 10,
    }
    assert backlog(grown) == {"0": 0, "1": 0, "2": 0}
    done(grown, "POST", f"{SUBSCRIPTION}/seek?timestamp=0")
    assert backlog(grown) == {"0": 10, "1": 2, "2": 2}
    done(grown, "POST", f"{SUBSCRIPTION}/seek", {"positions": {"0": 8}})
    assert backlog(grown) == {"0": 2, "1": 2, "2": 2}


def test_messages_are_peeked_at_and_skipped(grown: Rest) -> None:
    done(grown, "PUT", SUBSCRIPTION)
    peeked = grown.json(f"{SUBSCRIPTION}/peek?count=11")
    assert [b64decode(each["value"]).decode() for each in peeked["messages"]] == [
        *(f"message {number}" for number in range(10)),
        "child",
    ]
    assert (peeked["complete"], len(grown.json(f"{SUBSCRIPTION}/peek")["messages"])) == (True, 10)
    assert preview(grown, f"{SUBSCRIPTION}/skip?count=3&preview=true")["backlogAfter"] == 11
    done(grown, "POST", f"{SUBSCRIPTION}/skip?count=3")
    assert backlog(grown) == {"0": 7, "1": 2, "2": 2}
    assert preview(grown, f"{SUBSCRIPTION}/skip-all?preview=true")["backlogAfter"] == 0
    done(grown, "POST", f"{SUBSCRIPTION}/skip-all")
    assert backlog(grown) == {"0": 0, "1": 0, "2": 0}
    assert grown.json(f"{SUBSCRIPTION}/peek")["messages"] == []


def test_stats_and_assignments_of_nobody(grown: Rest) -> None:
    done(grown, "PUT", SUBSCRIPTION)
    stats = grown.json(f"{PATH}/stats")
    assert stats["layout"]["epoch"] == 1
    assert stats["layout"]["segments"]["1"]["parentIds"] == [0]
    assert stats["subscriptions"] == {"s": grown.json(SUBSCRIPTION)}
    one = stats["subscriptions"]["s"]
    sizes = {key: each["storageSize"] for key, each in stats["layout"]["segments"].items()}
    assert sizes == {key: each["backlogSize"] for key, each in one["segments"].items()}
    assert stats["storageSize"] == stats["backlogSize"] == one["backlogSize"] == sum(sizes.values()) > 0
    assert one["unackedMessages"] is None
    told = grown.json(f"{SUBSCRIPTION}/assignments")
    assert (told["epoch"], told["consumers"]) == (1, [])
    assert told["waitsFor"] == {"1": [0], "2": [0]}


def test_stats_tell_what_is_out_with_a_queue_and_who_produced(grown: Rest) -> None:
    done(grown, "PUT", f"{SUBSCRIPTION}?type=QUEUE")
    topic = topics.get_topic(name=TopicName("public", "default", "orders")).incarnation
    segment_port().append(SegmentKey(topic, 1), [batch(0, 3, within=LOW)], producer="till")
    segment_port().claim(
        SegmentKey(topic, 0),
        subscription="s",
        consumer="c",
        session="x",
        max_messages=4,
        max_bytes=10**6,
        lease_seconds=3_600.0,
    )
    stats = grown.json(f"{PATH}/stats")
    one = stats["subscriptions"]["s"]
    assert (one["unackedMessages"], one["msgBacklog"]) == (4, 17)
    assert {number: each["unackedMessages"] for number, each in one["segments"].items()} == {
        "0": 4,
        "1": 0,
        "2": 0,
    }
    assert stats["producers"] == [{"producerName": "till", "lastSequence": 2}]
    assert stats["averageMsgSize"] == 0.0
    assert grown.json(f"{SUBSCRIPTION}/assignments")["waitsFor"] == {}
    assert all(part["waitsFor"] == [] for part in grown.json(SUBSCRIPTION)["segments"].values())


REFUSED: list[tuple[str, str, object, int, str]] = [
    ("PUT", "?type=QUEUE&keyShared=true", None, 400, "invalid_parameter"),
    ("PUT", "?initialPosition=middle", None, 400, "invalid_parameter"),
    ("PUT", "?initialPosition=latest&timestamp=1", None, 400, "invalid_parameter"),
    ("PUT", "?timestamp=1", {"positions": {}}, 400, "invalid_parameter"),
    ("PUT", "?keyShared=perhaps", None, 400, "invalid_parameter"),
    ("PUT", "", {"positions": {"nine": 1}}, 400, "unreadable_body"),
    ("PUT", "", {"positions": {"0": -1}}, 400, "unreadable_body"),
    ("PUT", "", {"positions": {"0": 1.5}}, 400, "unreadable_body"),
    ("PUT", "", {"position": {}}, 400, "unknown_field"),
    ("PUT", "", b"{", 400, "unreadable_body"),
    ("PUT", "", {"positions": {"9": 0}}, 404, "segment_not_found"),
    ("PUT", "", {"positions": {"0": 11}}, 400, "position_invalid"),
    ("PUT", "", {"positions": {}, "incarnation": 1}, 400, "invalid_parameter"),
    ("POST", "/seek", None, 400, "invalid_parameter"),
    ("POST", "/seek?timestamp=yesterday", None, 400, "invalid_parameter"),
    ("POST", "/seek?timestamp=-1", None, 400, "invalid_parameter"),
    ("POST", "/seek?timestamp=NaN", None, 400, "invalid_parameter"),
    ("POST", "/seek?timestamp=1&when=2", None, 400, "unknown_field"),
    ("POST", "/seek?timestamp=1&preview=true", None, 404, "subscription_not_found"),
    ("POST", "/seek?timestamp=1", {"positions": {}}, 400, "invalid_parameter"),
    ("POST", "/skip-all", None, 404, "subscription_not_found"),
    ("POST", "/skip-all", {}, 400, "unreadable_body"),
    ("POST", "/skip?count=0", None, 400, "invalid_parameter"),
    ("POST", "/skip?count=9223372036854775808", None, 400, "invalid_parameter"),
    ("GET", "/peek?count=101", None, 400, "invalid_parameter"),
    ("GET", "/peek", None, 404, "subscription_not_found"),
    ("GET", "/assignments", None, 404, "subscription_not_found"),
]


@pytest.mark.parametrize(("method", "door", "body", "status", "code"), REFUSED)
def test_what_is_refused_changes_nothing(
    grown: Rest, method: str, door: str, body: object, status: int, code: str
) -> None:
    assert grown.refused(method, f"{SUBSCRIPTION}{door}", body) == (status, code)
    assert grown.json(f"{PATH}/subscriptions")["subscriptions"] == []


def test_a_checkpoint_group_is_not_moved(grown: Rest) -> None:
    done(grown, "PUT", f"{SUBSCRIPTION}?type=CHECKPOINT")
    for door in ("/seek?timestamp=1", "/skip-all", "/skip?count=1"):
        assert grown.refused("POST", f"{SUBSCRIPTION}{door}") == (409, "subscription_type_mismatch")


@pytest.mark.parametrize(
    ("query", "parameter", "value"),
    [
        ("initialPosition=latest&timestamp=7", "timestamp", 7),
        ("initialPosition=latest", "initialPosition", "latest"),
    ],
)
def test_two_places_to_begin_are_told_by_the_value_that_was_given(
    grown: Rest, query: str, parameter: str, value: object
) -> None:
    answer = grown.call("PUT", f"{SUBSCRIPTION}?{query}", {"positions": {"0": 1}})
    fields = answer.json()["fields"]
    assert (answer.status_code, fields["parameter"], fields["value"]) == (400, parameter, value)
