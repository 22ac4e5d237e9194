"""Whoever reads nothing is cut off: the node keeps neither the connection nor what waits in it."""

import asyncio
import socket
from urllib.parse import urlsplit

import msgspec
import pytest

from scalable.domain.names import TopicName
from scalable.services import tokens
from scalable.wire.frames import PROTOCOL_VERSION, Hello
from tests.api.peers import ROOT, ask, eventually
from tests.api.test_hosts import UPGRADE, request
from tests.api.unfinished import callers
from tests.api.watchers import ACTOR, create, split
from tests.processes import LiveNode, ProcessFactory

NAME = TopicName("public", "default", "unread")
SEGMENTS = 24_000
"""Their snapshot is larger than what operating systems take for a peer that does not read it."""


def unread(node: LiveNode, token: str) -> socket.socket:
    """Begin a watch, say hello, and read nothing but the answer to the handshake."""
    place = urlsplit(node.url)
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.settimeout(20)
    link.connect((place.hostname, place.port))
    headers = {"Authorization": f"Bearer {token}", **UPGRADE}
    link.sendall(request(f"{ROOT}/lookup/{NAME.path}", (place.netloc,), headers).sent)
    assert link.recv(12) == b"HTTP/1.1 101"
    hello = msgspec.json.encode(Hello(protocol=PROTOCOL_VERSION))
    link.sendall(bytes((0x81, 0xFE, *len(hello).to_bytes(2), 0, 0, 0, 0)) + hello)
    return link


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["too slow", "turned out"])
async def test_whoever_reads_nothing_is_cut_off(processes: ProcessFactory, reason: str) -> None:
    node = processes.node(SCALABLE_SOCKET_SEND_SECONDS="1")
    await ask(create, NAME, segments=SEGMENTS)
    issued = await ask(tokens.issue_token, role="admin", actor=ACTOR)
    with await asyncio.to_thread(unread, node, issued.token) as link:

        async def has_all() -> bool:
            """Something fills the connection, so that more of it waits in the node."""
            before = link.recv(65_536, socket.MSG_PEEK)
            await asyncio.sleep(0.5)
            return len(before) > 0 and link.recv(65_536, socket.MSG_PEEK) == before

        async def is_cut() -> bool:
            return link.getsockname() not in await asyncio.to_thread(callers, node)

        await eventually(has_all)
        assert not await is_cut()
        if reason == "too slow":
            await ask(split, NAME, 0)
        else:
            await ask(tokens.revoke_token, token_id=issued.token_id, actor=ACTOR)
        await eventually(is_cut)
