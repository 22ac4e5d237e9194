"""A name that is given again is another topic: what was opened on the former one cannot touch it.

The node hears no hints, so that the frames arrive before it knows that the topic was made again.
"""

from collections.abc import Callable

import pytest
from pytest_django import Settings
from websockets.exceptions import ConnectionClosed

from launch.sandbox import LiveNode, ProcessFactory
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Assignment as AssignmentRow
from scalable.models import ConsumerRegistration
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import subscriptions, topics
from scalable.services.topics import TopicView
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Ack,
    Acked,
    Assignment,
    CheckpointBody,
    Commit,
    Committed,
    ErrorFrame,
    Frame,
    Gone,
    Hello,
    Leave,
    Publish,
    QueueAck,
    QueueAcked,
    Receipt,
    Refused,
    Register,
    Released,
    Restore,
    SegmentEnded,
    Welcome,
)
from tests.api.members import CONSUME, CONTROL, PRODUCE, attach, member, reader
from tests.api.peers import Peer, any_keys, ask, batch, raw_socket, socket
from tests.api.queues import queue_peer
from tests.topology import ACTOR, make_topic, read_all

KEYS = any_keys(3)
GROUP = "controller/public/default/orders/g"
SUBSCRIPTIONS = {"s": SubscriptionType.STREAM, "q": SubscriptionType.QUEUE, "g": SubscriptionType.CHECKPOINT}


@pytest.fixture
def node(processes: ProcessFactory, settings: Settings) -> LiveNode:
    """A node that hears of nothing by itself."""
    settings.SCALABLE_HINTS_ENABLED = False
    return processes.node(SCALABLE_HINTS_ENABLED="false", SCALABLE_WATCH_RESYNC_SECONDS="600")


def begin() -> TopicView:
    """The topic `orders` with a segment, three messages, and its subscriptions."""
    topic = make_topic("orders", segments=1)
    for name, kind in SUBSCRIPTIONS.items():
        subscriptions.create_subscription(name=topic.name, subscription=name, kind=kind)
    segment_port().append(SegmentKey(topic.incarnation, 0), [batch(KEYS)], producer=None)
    return topic


def begin_again(former: TopicView) -> TopicView:
    """Delete the topic and make it again, alike to the last message."""
    topics.delete_topic(name=former.name, force=True, actor=ACTOR)
    return begin()


def untouched(topic: TopicView) -> bool:
    """Nothing was appended, acknowledged or registered on the new topic."""
    key = SegmentKey(topic.incarnation, 0)
    state = segment_port().cursors(key)
    rows = [
        model.objects.filter(subscription__topic_id=topic.incarnation).exists()
        for model in (AssignmentRow, ConsumerRegistration)
    ]
    return (
        len(read_all(topic)) == len(KEYS)
        and all(cursor.position == 0 and not cursor.acknowledged for cursor in state)
        and rows == [False, False]
    )


async def test_a_producer_of_the_former_topic_is_told_that_it_is_gone(node: LiveNode, db: None) -> None:
    former = await ask(begin)
    async with socket(node, PRODUCE, producer="p") as producer:
        await producer.expect(Welcome)
        await producer.send(Publish(request_id=1, segment_id=0, batch=batch(KEYS), restart=False))
        await producer.expect(Receipt)
        again = await ask(begin_again, former)
        await producer.send(
            Publish(request_id=2, segment_id=0, batch=batch(KEYS, first_sequence=9), restart=False)
        )
        assert (await producer.expect(Refused)).code == "topic_deleted"
        assert (await producer.expect(Gone)).incarnation == former.incarnation
        assert await producer.close_code() == 4410
    assert await ask(untouched, again)


async def test_an_acknowledgement_of_the_former_topic_is_refused(node: LiveNode, db: None) -> None:
    former = await ask(begin)
    async with member(node, "c") as consumer, reader(node, "c") as peer:
        await attach(peer, consumer, 0)
        await peer.receive()
        again = await ask(begin_again, former)
        await peer.send(Ack(segment_id=0, generation=consumer.owned[0], position=3))
        await is_refused(peer)
    assert await ask(untouched, again)


async def test_an_acknowledgement_of_a_former_queue_is_refused(node: LiveNode, db: None) -> None:
    former = await ask(begin)
    async with queue_peer(node, "c") as consumer:
        await consumer.attach()
        (taken, *_) = await consumer.take(3)
        again = await ask(begin_again, former)
        await consumer.peer.send(QueueAck(segment_id=0, incarnation=taken.incarnation, ranges=[(0, 3)]))
        await is_refused(consumer.peer)
    assert await ask(untouched, again)


def checkpoint_of(topic: TopicView) -> CheckpointBody:
    """A checkpoint behind the first message of a topic."""
    return CheckpointBody(incarnation=topic.incarnation, positions={"0": 1})


GROUP_FRAMES: tuple[Callable[[TopicView, int], Frame], ...] = (
    lambda topic, _: Commit(request_id=1, checkpoint=checkpoint_of(topic)),
    lambda topic, _: Restore(request_id=1, checkpoint=checkpoint_of(topic)),
    lambda _, generation: SegmentEnded(segment_id=0, generation=generation, position=3),
    lambda _, generation: Released(segment_id=0, generation=generation, position=1),
)


async def test_checkpoints_and_ends_of_the_former_topic_move_nothing(node: LiveNode, db: None) -> None:
    topic = await ask(begin)
    for make in GROUP_FRAMES:
        former = topic
        async with socket(node, GROUP, consumer="c") as peer:
            await peer.expect(Welcome)
            await peer.send(Register(kind="CHECKPOINT"))
            (owned,) = (await peer.expect(Assignment)).segments
            topic = await ask(begin_again, former)
            await peer.send(make(former, owned.generation))
            await is_refused(peer)
        assert await ask(untouched, topic)


CONTROLLER_FRAMES: dict[str, Callable[[int], Frame]] = {
    "released": lambda generation: Released(segment_id=0, generation=generation),
    "leave": lambda _: Leave(),
}


@pytest.mark.parametrize("make", CONTROLLER_FRAMES.values(), ids=CONTROLLER_FRAMES.keys())
async def test_a_session_with_the_former_topic_ends(
    node: LiveNode, db: None, make: Callable[[int], Frame]
) -> None:
    former = await ask(begin)
    async with member(node, "c") as consumer:
        again = await ask(begin_again, former)
        await consumer.peer.send(make(consumer.owned[0]))
        await is_refused(consumer.peer)
    assert await ask(untouched, again)


DOORS = {
    "produce": PRODUCE,
    "controller": CONTROL,
    "a controller's new subscription": CONTROL.removesuffix("/s") + "/new",
    "consume": CONSUME,
    "consume what is not there": CONSUME.removesuffix("/s") + "/new",
    "queue": CONSUME.replace("consume", "queue").removesuffix("/s") + "/q",
    "queue that is not there": CONSUME.replace("consume", "queue").removesuffix("/s") + "/new",
}


@pytest.mark.parametrize("path", DOORS.values(), ids=DOORS.keys())
async def test_who_comes_back_knowing_the_former_topic_hears_that_it_is_gone(
    node: LiveNode, db: None, path: str
) -> None:
    former = await ask(begin)
    again = await ask(begin_again, former)
    names = await ask(names_of_subscriptions, again)
    async with raw_socket(node, path) as peer:
        await peer.send(Hello(protocol=PROTOCOL_VERSION, consumer="c", incarnation=former.incarnation))
        if path.startswith("controller"):
            await peer.expect(Welcome)
            await peer.send(Register())
        assert (await peer.expect(ErrorFrame)).code == "topic_deleted"
        assert await peer.close_code() == 4410
    assert await ask(untouched, again)
    assert await ask(names_of_subscriptions, again) == names


def names_of_subscriptions(topic: TopicView) -> set[str]:
    return {found.name for found in subscriptions.list_subscriptions(name=topic.name)}


async def is_refused(peer: Peer) -> None:
    """The peer hears that what it names is not there, or is closed."""
    try:
        frame = await peer.receive()
        while not isinstance(frame, ErrorFrame | Gone):
            assert not isinstance(frame, Acked | QueueAcked | Assignment | Committed), frame
            frame = await peer.receive()
    except ConnectionClosed:
        assert await peer.close_code() in {1000, 4404, 4410}
