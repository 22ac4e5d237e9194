"""Answers that nobody takes: they are given up, and hold nothing that others need."""

import socket
import struct
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.unfinished import callers, head
from tests.faults.waiting import until
from tests.processes import LiveNode, ProcessFactory

TOPIC = "/admin/v2/scalable/public/default/large"
SEGMENTS = 6_000
"""An answer of more than a megabyte, several of which no kernel takes in."""
WAIT_SECONDS = 60
SHORT, LONG = "1", "600"


def connect(node: LiveNode) -> socket.socket:
    """Connect as somebody who can keep little of what comes."""
    place = urlsplit(node.url)
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    link.settimeout(WAIT_SECONDS)
    link.connect((place.hostname, place.port))
    return link


def get(path: str, **headers: str) -> bytes:
    return head(f"GET {path}", Host="127.0.0.1", **headers) + b"\r\n"


def answers(node: LiveNode) -> Sequence[int]:
    """Ask the database for more than it has connections, one after the other."""
    with httpx.Client(
        base_url=node.url, headers=node.headers, timeout=WAIT_SECONDS, trust_env=False
    ) as client:
        return [client.get("/admin/v2/tenants").status_code for _ in range(4)]


def make_large(node: LiveNode) -> None:
    with httpx.Client(
        base_url=node.url, headers=node.headers, timeout=WAIT_SECONDS, trust_env=False
    ) as client:
        assert client.put(TOPIC, params={"numInitialSegments": SEGMENTS}).status_code == 204


@pytest.mark.parametrize("requests", [1, 2, 5])
def test_strangers_who_are_gone_take_no_connection_along(processes: ProcessFactory, requests: int) -> None:
    """By a session that is none: it is looked for in the database. Each is gone while it is answered."""
    node = processes.node(SCALABLE_REQUEST_CONNECTIONS="2", SCALABLE_EXECUTOR_THREADS="1")
    name = f"scalable_session_{urlsplit(node.url).port}"
    asked = get("/admin/v2/tenants", Cookie=f"{name}=abcdefghijklmnopqrstuvwxyz012345") * requests
    for number in range(40):
        link = connect(node)
        link.sendall(asked)
        if number % 2:
            link.recv(1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()
    assert answers(node) == [200] * 4


@pytest.mark.slow
@pytest.mark.parametrize("requests", [2, 6])
def test_who_takes_no_answer_keeps_no_connection(processes: ProcessFactory, requests: int) -> None:
    node = processes.node(
        SCALABLE_REQUEST_CONNECTIONS="2", SCALABLE_EXECUTOR_THREADS="1", SCALABLE_REQUEST_ANSWER_SECONDS=LONG
    )
    make_large(node)
    links = [connect(node) for _ in range(4)]
    for link in links:
        link.sendall(get(TOPIC, **node.headers) * requests)
        assert link.recv(1) == b"H"
    assert answers(node) == [200] * 4
    for link in links:
        link.close()


@pytest.mark.slow
def test_who_takes_no_answer_for_long_is_cut(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_ANSWER_SECONDS=SHORT)
    make_large(node)
    with connect(node) as link:
        link.sendall(get(TOPIC, **node.headers) * 6)
        assert link.recv(1) == b"H"
        assert link.getsockname() in callers(node)
        until(lambda: link.getsockname() not in callers(node), what="the end of the connection")
