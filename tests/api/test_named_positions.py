"""Every place where a client names a position: below the start, at both ends, and behind the end.

What lies behind the end is refused by name and moves nothing; what was trimmed is passed over, or refused
where the client says with it which messages it means.
"""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from launch.sandbox import LiveNode
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import pruning, topics
from scalable.services.topics import TopicView
from scalable.wire.frames import (
    Ack,
    Acked,
    Assignment,
    Attach,
    CheckpointBody,
    Commit,
    Committed,
    Delivery,
    Detached,
    EndOfSegment,
    ErrorFrame,
    Frame,
    Leave,
    NegativeAck,
    QueueAck,
    Register,
    Released,
    Renew,
    Renewed,
    Restore,
    SegmentEnded,
    Welcome,
)
from tests.api.members import CONSUME, CONTROL
from tests.api.peers import Peer, ask, rest, socket
from tests.segments.samples import incarnation_of
from tests.services.ageing import acknowledge, subscribe
from tests.topology import append, drive, make_topic, request, topic_name

START, END = 4, 10
BELOW, BEHIND, FAR = START - 2, END + 1, 2**63 - 1
GROUP, GROUP_MESSAGES = f"{CONTROL[:-1]}g", f"{CONSUME[:-1]}g"
QUEUE = f"{CONSUME[:-1]}q".replace("consume", "queue")
CHECKPOINT = Register(kind="CHECKPOINT")
Door = Callable[[LiveNode, int], Awaitable[str]]


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders`: segment 0 is sealed and holds [START, END); `g` is the only one that is behind."""
    made = make_topic("orders", segments=1)
    subscribe(made)
    subscribe(made, "g", kind=SubscriptionType.CHECKPOINT, holds_pruning=False)
    subscribe(made, "q", kind=SubscriptionType.QUEUE)
    for number in range(END):
        append(made, 0, str(number))
    for cursor in ("s", "q"):
        acknowledge(made, START, cursor=cursor)
    pruning.trim_topic(incarnation=made.incarnation)
    drive(request(OperationKind.SPLIT, made))
    assert segment_port().stats(SegmentKey(made.incarnation, 0)).start_offset == START
    return made


def incarnation() -> int:
    """The incarnation of the topic."""
    return topics.get_topic(name=topic_name("orders")).incarnation


def life_of_queue() -> int:
    """The incarnation of the queue's cursor on segment 0."""
    return incarnation_of(segment_port(), SegmentKey(incarnation(), 0), "q")


async def checkpoint_at(position: int) -> CheckpointBody:
    """A checkpoint that stands there."""
    return CheckpointBody(incarnation=await ask(incarnation), positions={"0": position})


async def register(peer: Peer, frame: Register) -> Assignment:
    """Join, and give what is owned."""
    await peer.expect(Welcome)
    await peer.send(frame)
    return await peer.wait_for(Assignment)


async def generation_of(peer: Peer, frame: Register) -> int:
    """Join, and give the generation under which segment 0 is owned."""
    (owned,) = (await register(peer, frame)).segments
    assert owned.segment_id == 0
    return owned.generation


async def answer(peer: Peer, *frames: Frame) -> Frame | Delivery:
    """Send these, and give the first frame that answers them."""
    for frame in frames:
        await peer.send(frame)
    found = await peer.receive()
    assert isinstance(found, Frame | Delivery)
    return found


def told(found: Frame | Delivery) -> str:
    """Name an answer."""
    match found:
        case ErrorFrame():
            return found.code
        case Committed():
            return f"held at {found.checkpoint.positions['0']}, skipped {found.skipped}"
        case Acked():
            return f"acknowledged to {found.position}"
        case Delivery():
            return f"delivered from {found.first_offset}"
        case EndOfSegment():
            return f"ends at {found.end_offset}"
        case Renewed():
            return f"renewed, complete: {found.complete}"
        case Assignment():
            return f"owns {[(each.segment_id, each.position) for each in found.segments]}"
    return type(found).__name__


async def attach(node: LiveNode, position: int) -> str:
    """A member of a group begins there."""
    async with (
        socket(node, GROUP, consumer="a") as session,
        socket(node, GROUP_MESSAGES, consumer="a") as peer,
    ):
        generation = await generation_of(session, CHECKPOINT)
        await peer.expect(Welcome)
        found = await answer(
            peer, Attach(segment_id=0, generation=generation, permits=100, position=position)
        )
        if isinstance(found, ErrorFrame):
            assert (found.segment_id, found.generation) == (0, generation)
            assert await peer.expect(Detached) == Detached(segment_id=0, generation=generation)
        return told(found)


async def ack(node: LiveNode, position: int) -> str:
    """A stream consumer acknowledges up to there."""
    async with socket(node, CONTROL, consumer="a") as session, socket(node, CONSUME, consumer="a") as peer:
        generation = await generation_of(session, Register())
        await peer.expect(Welcome)
        return told(await answer(peer, Ack(segment_id=0, generation=generation, position=position)))


async def released(node: LiveNode, position: int) -> str:
    """A member stops there, and the next one goes on."""
    async with socket(node, GROUP, consumer="a") as peer:
        generation = await generation_of(peer, CHECKPOINT)
        look = Commit(request_id=1, checkpoint=await checkpoint_at(START), preview=True)
        found = await answer(
            peer, Released(segment_id=0, generation=generation, position=position), look, Leave()
        )
        if isinstance(found, ErrorFrame):
            assert (found.segment_id, found.request_id) == (0, None)
        await peer.close_code()
    async with socket(node, GROUP, consumer="b") as peer:
        next_owner = told(await register(peer, CHECKPOINT))
        await peer.send(Leave())
        await peer.close_code()
    return f"{found.code}, {next_owner}" if isinstance(found, ErrorFrame) else next_owner


async def segment_ended(node: LiveNode, position: int) -> str:
    """A member has read a segment up to there."""
    async with socket(node, GROUP, consumer="a") as peer:
        generation = await generation_of(peer, CHECKPOINT)
        return told(await answer(peer, SegmentEnded(segment_id=0, generation=generation, position=position)))


async def commit(node: LiveNode, position: int) -> str:
    """The application keeps a checkpoint that stands there."""
    async with socket(node, GROUP, consumer="a") as peer:
        await register(peer, CHECKPOINT)
        return told(await answer(peer, Commit(request_id=1, checkpoint=await checkpoint_at(position))))


async def restore(node: LiveNode, position: int) -> str:
    """A group goes on from there."""
    async with socket(node, GROUP, consumer="a") as peer:
        await register(peer, CHECKPOINT)
        await peer.send(Restore(request_id=1, checkpoint=await checkpoint_at(position)))
        while isinstance(found := await peer.receive(), Assignment):  # it may be told before the answer
            pass
        assert isinstance(found, Frame)
        return told(found)


async def register_group(node: LiveNode, position: int) -> str:
    """The first member of a group comes with a checkpoint that stands there."""
    async with socket(node, GROUP, consumer="a") as peer:
        await peer.expect(Welcome)
        frame = Register(kind="CHECKPOINT", checkpoint=await checkpoint_at(position))
        return told(await answer(peer, frame))


async def register_stream(node: LiveNode, position: int) -> str:
    """A consumer makes a subscription there."""
    async with socket(node, f"{CONTROL}-{position}", consumer="a") as peer:
        await peer.expect(Welcome)
        return told(await answer(peer, Register(checkpoint=await checkpoint_at(position))))


async def queue_ack(node: LiveNode, position: int) -> str:
    """A queue consumer acknowledges the message below."""
    async with socket(node, QUEUE, consumer="a") as peer:
        await peer.expect(Welcome)
        life = await ask(life_of_queue)
        frame = QueueAck(segment_id=0, incarnation=life, ranges=[(position - 1, position)])
        return told(await answer(peer, frame))


async def renew(node: LiveNode, position: int) -> str:
    """A queue consumer gives back, and holds on to, what it does not hold: neither is a fault."""
    ranges = [(position - 1, position)]
    async with socket(node, QUEUE, consumer="a") as peer:
        await peer.expect(Welcome)
        give_back = NegativeAck(segment_id=0, ranges=ranges)
        return told(await answer(peer, give_back, Renew(segment_id=0, ranges=ranges, request_id=1)))


async def seek(node: LiveNode, position: int) -> str:
    """A subscription is moved there."""
    path = "public/default/orders/subscriptions/s/seek"
    return await answer_of_rest(node, "POST", path, position)


async def create(node: LiveNode, position: int) -> str:
    """A subscription is made there."""
    path = f"public/default/orders/subscriptions/new-{position}"
    return await answer_of_rest(node, "PUT", path, position)


async def answer_of_rest(node: LiveNode, method: str, path: str, position: int) -> str:
    """Name what REST says of a position."""
    try:
        await asyncio.to_thread(rest, node, method, path, json={"positions": {"0": position}})
    except httpx.HTTPStatusError as refused:
        return str(refused.response.json()["code"])
    return "done"


SKIPPED = f"held at {START}, skipped [(0, [0])]"
HELD_AT_START, HELD_AT_END = f"held at {START}, skipped []", f"held at {END}, skipped []"
TABLE: dict[Door, tuple[str, str, str, str]] = {
    attach: (
        "position_invalid",
        f"delivered from {START}",
        f"delivered from {START}",
        f"ends at {END}",
    ),
    ack: (
        "position_invalid",
        f"acknowledged to {START}",
        f"acknowledged to {START}",
        f"acknowledged to {END}",
    ),
    released: (
        "position_invalid, owns [(0, 0)]",
        f"owns [(0, {BELOW})]",
        f"owns [(0, {START})]",
        f"owns [(0, {END})]",
    ),
    segment_ended: ("position_invalid", "position_invalid", "position_invalid", "owns [(1, 0), (2, 0)]"),
    commit: ("invalid_parameter", SKIPPED, HELD_AT_START, HELD_AT_END),
    restore: ("invalid_parameter", SKIPPED, HELD_AT_START, HELD_AT_END),
    register_group: ("invalid_parameter", SKIPPED, HELD_AT_START, HELD_AT_END),
    register_stream: (
        "position_invalid",
        "position_invalid",
        f"owns [(0, {START})]",
        "owns [(1, 0), (2, 0)]",
    ),
    queue_ack: ("position_invalid", "QueueAcked", "QueueAcked", "QueueAcked"),
    renew: ("renewed, complete: False",) * 4,
    seek: ("position_invalid", "position_invalid", "done", "done"),
    create: ("position_invalid", "position_invalid", "done", "done"),
}
"""By door what it says to a position behind the end, below the start, at the start, at the end."""


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("door", TABLE, ids=lambda door: door.__name__)
async def test_a_position_is_refused_or_taken_as_documented(live_node: LiveNode, door: Door) -> None:
    behind, *others = TABLE[door]
    expected = [behind, behind, *others]
    found = [await door(live_node, position) for position in (BEHIND, FAR, BELOW, START, END)]
    assert found == expected
