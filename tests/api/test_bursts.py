"""What comes faster than it is handled waits its turn: nothing is dropped, and nobody turned out."""

import asyncio

import pytest

from launch.sandbox import LiveNode
from scalable.api.sockets.acknowledging import MAX_WAITING_ACKS
from scalable.api.sockets.controller import MAX_WAITING_FRAMES
from scalable.services.topics import TopicView
from scalable.wire.frames import (
    Ack,
    Assignment,
    CheckpointBody,
    Commit,
    Committed,
    ErrorFrame,
    Frame,
    Register,
    Welcome,
)
from tests.api.members import CONTROL, member, reader
from tests.api.peers import Peer, socket
from tests.topology import make_topic

MORE = 50
MORE_ACKS = 1_000
"""More than come while the first of them are gathered."""


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with one segment."""
    return make_topic("orders", segments=1)


async def send_all(peer: Peer, frames: list[Frame]) -> None:
    for frame in frames:
        await peer.send(frame)


async def test_every_commit_of_a_burst_is_answered_in_its_order(
    live_node: LiveNode, topic: TopicView
) -> None:
    asked = range(1, MAX_WAITING_FRAMES + MORE)
    checkpoint = CheckpointBody(incarnation=topic.incarnation, positions={"0": 0})
    async with socket(live_node, CONTROL, consumer="a") as peer:
        await peer.expect(Welcome)
        await peer.send(Register(kind="CHECKPOINT"))
        await peer.expect(Assignment)
        burst: list[Frame] = [Commit(request_id=each, checkpoint=checkpoint, preview=True) for each in asked]
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(peer, burst))
            answered = [(await peer.expect(Committed)).request_id for _ in asked]
    assert answered == list(asked)


async def test_every_acknowledgement_of_a_burst_is_answered(live_node: LiveNode, topic: TopicView) -> None:
    """Segments that are not there stand for those of a wide topic: each is refused for itself."""
    segment_ids = range(1, MAX_WAITING_ACKS + MORE_ACKS)
    async with member(live_node, "a"), reader(live_node, "a") as peer:
        burst: list[Frame] = [Ack(segment_id=each, generation=1, position=1) for each in segment_ids]
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(peer, burst))
            refused = [(await peer.expect(ErrorFrame)).segment_id for _ in segment_ids]
    assert sorted(each for each in refused if each is not None) == list(segment_ids)
