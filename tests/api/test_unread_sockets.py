"""Whoever reads nothing is cut off: the node keeps neither the connection nor what waits in it."""

import asyncio
import socket

import pytest

from scalable.domain.names import TopicName
from scalable.services import tokens
from tests.api.peers import ask, eventually
from tests.api.rough import accepted
from tests.api.unfinished import callers
from tests.api.watchers import ACTOR, create, split
from tests.processes import LiveNode, ProcessFactory

NAME = TopicName("public", "default", "unread")
SEGMENTS = 24_000
"""Their snapshot is larger than what operating systems take for a peer that does not read it."""


def watch(node: LiveNode, token: str) -> socket.socket:
    """Begin a watch whose snapshot nobody reads."""
    return accepted(node, f"lookup/{NAME.path}", token=token, receive_bytes=4_096)


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["too slow", "turned out"])
async def test_whoever_reads_nothing_is_cut_off(processes: ProcessFactory, reason: str) -> None:
    """Whoever may stay no longer has not the time that is given to slow readers."""
    node = processes.node(SCALABLE_SOCKET_SEND_SECONDS="1" if reason == "too slow" else "300")
    await ask(create, NAME, segments=SEGMENTS)
    issued = await ask(tokens.issue_token, role="admin", actor=ACTOR)
    with await asyncio.to_thread(watch, node, issued.token) as link:

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
