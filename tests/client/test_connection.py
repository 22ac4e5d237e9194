"""Addresses, pauses, and what a user is told when the node is not there."""

from __future__ import annotations

import pytest

from launch.ports import free_port
from scalable.client import Admin, ConnectionLost, Endpoint, Producer, StreamConsumer
from scalable.client.connection import Backoff, keep_running
from scalable.domain.errors import ReaderTooSlow, TopicDeleted
from scalable.domain.names import TopicName

TOPIC = "topic://public/default/t"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://host", "http://"])
def test_what_is_no_url_of_a_node_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="URL of a node"):
        Producer(url, TOPIC, "token")


def test_names_are_quoted_in_socket_addresses_and_the_token_never_is_in_one() -> None:
    endpoint = Endpoint("https://host:8443/prefix", "secret-token")
    url = endpoint.socket_url("consume", TopicName("a b", "n?", "t#ü"), "s/1")
    assert url == "wss://host:8443/prefix/ws/v2/scalable/consume/a%20b/n%3F/t%23%C3%BC/s%2F1"
    assert "secret-token" not in url + repr(endpoint)
    assert endpoint.headers == {"Authorization": "Bearer secret-token"}


def test_pauses_grow_with_jitter_up_to_a_limit_and_start_again_after_a_success() -> None:
    backoff = Backoff(first_seconds=1.0, limit_seconds=8.0)
    waits = [backoff.next_seconds() for _ in range(50)]
    for attempt, wait in enumerate(waits):
        span = min(8.0, 2.0**attempt)
        assert span / 2 <= wait <= span
    assert len(set(waits)) == 50
    backoff.reset()
    assert backoff.next_seconds() <= 1.0


async def test_a_session_runs_again_after_what_a_new_connection_may_mend_and_ends_by_anything_else() -> None:
    ends: list[Exception] = [ConnectionLost(1006, "cut"), ReaderTooSlow(limit=1), TopicDeleted(topic=TOPIC)]

    async def session() -> None:
        raise ends.pop(0)

    with pytest.raises(TopicDeleted):
        await keep_running(session, backoff=Backoff(first_seconds=0.001), what="test")
    assert not ends


async def test_a_node_that_is_not_there_is_named_as_the_reason() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLost, match=r"refused|failed"):
        await Producer(url, TOPIC, "token").start(timeout_seconds=0.5)
    with pytest.raises(ConnectionLost, match=r"refused|failed"):
        await StreamConsumer(url, TOPIC, "s", "token").start(timeout_seconds=0.5)
    with Admin(url, "token") as admin, pytest.raises(ConnectionLost, match=r"refused|failed"):
        admin.get_topic(TOPIC)
