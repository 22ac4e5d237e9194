"""Consumers of the subscription `s` of the topic `orders`, as bare peers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from launch.sandbox import LiveNode
from scalable.wire.frames import Assignment, Attach, Register, Welcome
from tests.api.peers import Peer, socket

PRODUCE = "produce/public/default/orders"
CONSUME = "consume/public/default/orders/s"
CONTROL = "controller/public/default/orders/s"


class Member:
    """A registered consumer, and the newest assignment that it was told."""

    def __init__(self, peer: Peer, assignment: Assignment) -> None:
        self.peer = peer
        self.assignment = assignment

    @property
    def owned(self) -> dict[int, int]:
        """The generations of the segments that it owns."""
        return {segment.segment_id: segment.generation for segment in self.assignment.segments}

    async def next_assignment(self) -> Assignment:
        """The next assignment, which must be newer."""
        newer = await self.peer.expect(Assignment)
        before = self.assignment
        assert version(newer) > version(before)
        self.assignment = newer
        return newer

    async def until_owned(self, *segment_ids: int) -> None:
        """Take assignments until these are the owned segments and none is asked back."""
        while set(self.owned) != set(segment_ids) or self.assignment.releasing:
            await self.next_assignment()


def version(assignment: Assignment) -> tuple[int, int, int]:
    """What assignments are ordered by."""
    return assignment.term, assignment.generation, assignment.epoch


@asynccontextmanager
async def member(
    node: LiveNode, name: str, *, session_id: str = "", register: Register | None = None
) -> AsyncIterator[Member]:
    """A consumer with its controller session."""
    async with socket(node, CONTROL, consumer=name, session_id=session_id) as peer:
        await peer.expect(Welcome)
        await peer.send(register or Register())
        yield Member(peer, await peer.expect(Assignment))


@asynccontextmanager
async def reader(node: LiveNode, name: str) -> AsyncIterator[Peer]:
    """A consume socket, with nothing attached."""
    async with socket(node, CONSUME, consumer=name) as peer:
        await peer.expect(Welcome)
        yield peer


async def attach(peer: Peer, owner: Member, segment_id: int, *, permits: int = 1_000) -> None:
    """Attach a segment under the generation that its owner was told."""
    await peer.send(Attach(segment_id=segment_id, generation=owner.owned[segment_id], permits=permits))
