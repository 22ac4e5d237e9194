"""Sockets of peers that break the protocol, or use it up: a close with a code, and no line of a fault."""

import asyncio
import signal
import socket

import httpx
import pytest

from scalable.api.socket_protocol import CONTROLS_PER_SECOND_MAX, FRAGMENTS_MAX
from scalable.domain.names import TopicName
from tests.api import peers
from tests.api.peers import ask
from tests.api.rough import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    accepted,
    code_at_the_end,
    handshake,
    link_to,
    piece,
)
from tests.api.test_unread_sockets import SEGMENTS
from tests.api.unfinished import Begun, ends_of
from tests.api.watchers import create
from tests.processes import LiveNode, ProcessFactory

TOPICS = "topics/public/default"
NAME = TopicName("public", "default", "rough")
NO_TEXT = b"\xff\xfe"
BROKEN = {
    "no text": (piece(TEXT, NO_TEXT), 1007),
    "no text in two pieces": (piece(TEXT, NO_TEXT[:1], final=False) + piece(CONTINUATION, NO_TEXT[1:]), 1007),
    "no mask": (b"\x81\x01a", 1002),
    "a bit that has no meaning": (b"\xc1\x80" + bytes(4), 1002),
    "a continuation of nothing": (piece(CONTINUATION, b"a"), 1002),
    "a close of one byte": (piece(CLOSE, b"\x03"), 1002),
    "fragments without an end": (
        piece(BINARY, final=False) + piece(CONTINUATION, final=False) * FRAGMENTS_MAX,
        1008,
    ),
    "many pings": (piece(PING) * (CONTROLS_PER_SECOND_MAX + 1), 1008),
    "a close, then no text": (piece(CLOSE, b"\x03\xe8") + piece(TEXT, NO_TEXT), 1000),
}
LONG = {
    "a header": {"Cookie": "a=" + 9_000 * "x"},
    "many headers": {f"X-{number}": "a" for number in range(200)},
}
CHUNKED = b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {"pings": (b"", piece(PING) * 9_999), "chunks": (CHUNKED, b"1\r\na\r\n" * 9_999)}
WITH_BODY = {
    "a length": {"Content-Length": "10"},
    "chunks": {"Transfer-Encoding": "chunked"},
}


def faults(node: LiveNode) -> list[str]:
    """The lines of a node's log that tell of a fault."""
    lines = node.process.log.tail(2_000).splitlines()
    return [line for line in lines if "Traceback" in line or "ERROR" in line or "Error" in line]


@pytest.mark.parametrize("what", BROKEN)
def test_who_breaks_the_protocol_is_closed_with_a_code(live_node: LiveNode, what: str) -> None:
    sent, code = BROKEN[what]
    with accepted(live_node, TOPICS) as link:
        link.sendall(sent)
        assert code_at_the_end(link) == code
    assert httpx.get(f"{live_node.url}/livez").status_code == 200
    assert faults(live_node) == []


@pytest.mark.parametrize("what", BROKEN)
def test_frames_wait_for_the_answer_to_the_handshake(live_node: LiveNode, what: str) -> None:
    """Whoever shows a session has the handshake wait for the database."""
    cookie = {"Cookie": f"scalable_session_{live_node.url.rpartition(':')[2]}={32 * 'a'}"}
    for _ in range(10):
        with link_to(live_node) as link:
            link.sendall(handshake(live_node, TOPICS, cookie))
            link.sendall(BROKEN[what][0])
            assert link.recv(12) == b"HTTP/1.1 401"
            code_at_the_end(link)
    assert faults(live_node) == []


def test_a_handshake_that_cannot_be_read_is_answered(live_node: LiveNode) -> None:
    begun = {what: Begun(handshake(live_node, TOPICS, headers)) for what, headers in LONG.items()}
    begun["a path"] = Begun(handshake(live_node, f"{TOPICS}?{9_000 * 'a'}", {}))
    ends = asyncio.run(ends_of(live_node, begun))
    assert {what: end.statuses for what, end in ends.items()} == {
        **dict.fromkeys(LONG, (431,)),
        "a path": (414,),
    }


def test_a_handshake_with_a_body_is_no_handshake(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS="0.5")
    begun = {
        what: Begun(handshake(node, TOPICS, {**node.headers, **headers}))
        for what, headers in WITH_BODY.items()
    }
    ends = asyncio.run(ends_of(node, begun))
    assert {what: end.statuses for what, end in ends.items()} == dict.fromkeys(WITH_BODY, (404,))


def test_a_message_must_come_to_its_end(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_BODY_SECONDS="0.5")
    unfinished = {
        "a frame": piece(TEXT, b"abc")[:-1],
        "a head": piece(TEXT, b"abc")[:1],
        "fragments": piece(TEXT, b"a", final=False),
    }
    for what, sent in unfinished.items():
        with accepted(node, TOPICS) as link:
            link.sendall(sent)
            assert (what, code_at_the_end(link)) == (what, 1008)


@pytest.mark.slow
async def test_a_node_ends_in_order_whoever_is_leaving(processes: ProcessFactory) -> None:
    """One peer has begun to close and reads nothing, another one's handshake could not be read."""
    node = processes.node()
    await ask(create, NAME, segments=SEGMENTS)
    async with peers.socket(node, TOPICS) as watcher:
        leaving = await asyncio.to_thread(accepted, node, f"lookup/{NAME.path}", receive_bytes=4_096)
        long = await asyncio.to_thread(link_to, node)
        with leaving, long:
            long.sendall(handshake(node, TOPICS, LONG["a header"]))
            leaving.sendall(piece(CLOSE, b"\x03\xe8"))
            await asyncio.to_thread(code_at_the_end, long)
            node.process.send_signal(signal.SIGTERM)
            await watcher.connection.wait_closed()
            assert watcher.connection.close_code == 1012
            assert await asyncio.to_thread(node.process.wait, 20) in (0, -signal.SIGTERM)
    assert faults(node) == []


@pytest.mark.parametrize("flood", ["pings", "chunks"])
def test_who_floods_a_node_is_not_read_for_ever(live_node: LiveNode, flood: str) -> None:
    """Be it before a handshake is answered, or behind the answer to a request."""
    with link_to(live_node) as link:
        link.sendall(
            FLOODS[flood][0] if flood == "chunks" else handshake(live_node, TOPICS, live_node.headers)
        )
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            _send_for_ever(link, FLOODS[flood][1])
    assert httpx.get(f"{live_node.url}/livez").status_code == 200


def _send_for_ever(link: socket.socket, data: bytes) -> None:
    while True:
        link.sendall(data)
