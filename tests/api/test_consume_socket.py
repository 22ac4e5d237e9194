"""The controller and consume sockets against a real node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from launch.sandbox import LiveNode
from scalable.domain.names import TopicName
from scalable.services import topics
from scalable.wire.frames import (
    Ack,
    Acked,
    Assignment,
    Attach,
    Delivery,
    Publish,
    Receipt,
    Register,
    Welcome,
)
from tests.api.peers import Peer, any_keys, batch, socket

PRODUCE = "produce/public/default/orders"
CONSUME = "consume/public/default/orders/s"
CONTROL = "controller/public/default/orders/s"
NAME = TopicName("public", "default", "orders")


@pytest.fixture
def topic(live_node: LiveNode) -> topics.TopicView:
    """The topic `orders` with one segment."""
    return topics.create_topic(name=NAME, actor="test")


@asynccontextmanager
async def member(node: LiveNode, name: str) -> AsyncIterator[tuple[Peer, Assignment]]:
    """A registered consumer and its first assignment."""
    async with socket(node, CONTROL, consumer=name) as peer:
        await peer.expect(Welcome)
        await peer.send(Register())
        yield peer, await peer.expect(Assignment)


async def test_messages_reach_their_consumer(live_node: LiveNode, topic: topics.TopicView) -> None:
    async with (
        socket(live_node, PRODUCE, producer="p") as producer,
        member(live_node, "c") as (_, assignment),
        socket(live_node, CONSUME, consumer="c") as consumer,
    ):
        (owned,) = assignment.segments
        await producer.wait_for(Welcome)
        await producer.send(Publish(1, 0, False, batch(any_keys(3))))
        await producer.expect(Receipt)
        await consumer.expect(Welcome)
        await consumer.send(Attach(segment_id=0, generation=owned.generation, permits=100))
        delivery = await consumer.expect(Delivery)
        assert (delivery.base_offset, delivery.first_offset) == (0, 0)
        await producer.send(Publish(2, 0, False, batch(any_keys(2), first_sequence=3)))
        assert (await consumer.expect(Delivery)).base_offset == 3
        await consumer.send(Ack(segment_id=0, generation=owned.generation, position=5))
        assert await consumer.expect(Acked) == Acked(segment_id=0, position=5)
