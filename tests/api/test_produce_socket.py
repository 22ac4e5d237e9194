"""The produce socket against a real node."""

import pytest

from launch.sandbox import LiveNode
from scalable.domain.names import TopicName
from scalable.services import topics
from scalable.wire.frames import Publish, Receipt, Welcome
from tests.api.peers import any_keys, batch, socket

PATH = "produce/public/default/orders"
NAME = TopicName("public", "default", "orders")


@pytest.fixture
def topic(live_node: LiveNode) -> topics.TopicView:
    """The topic `orders` with one segment."""
    return topics.create_topic(name=NAME, actor="test")


async def test_a_batch_is_stored_and_receipted(live_node: LiveNode, topic: topics.TopicView) -> None:
    async with socket(live_node, PATH, producer="p") as peer:
        welcome = await peer.expect(Welcome)
        assert (welcome.producer, welcome.last_sequence) == ("p", -1)
        assert welcome.incarnation == topic.incarnation
        await peer.send(Publish(1, 0, False, batch(any_keys(3))))
        await peer.send(Publish(2, 0, False, batch(any_keys(2), first_sequence=3)))
        assert await peer.expect(Receipt) == Receipt(request_id=1, segment_id=0, base_offset=0)
        assert await peer.expect(Receipt) == Receipt(request_id=2, segment_id=0, base_offset=3)
