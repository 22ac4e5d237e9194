"""A deleted subscription ends the sockets of its consumers, by a code that says why."""

import pytest

from scalable.api.errors import ANSWERS
from scalable.wire.frames import Assignment, ErrorFrame, Register, Welcome
from tests.api.members import CONSUME, CONTROL
from tests.api.peers import rest, socket
from tests.processes import LiveNode

ENDED = ANSWERS["subscription_not_found"].close_code


@pytest.fixture
def subscribed(live_node: LiveNode) -> LiveNode:
    rest(live_node, "PUT", "public/default/orders")
    rest(live_node, "PUT", "public/default/orders/subscriptions/s")
    return live_node


async def test_the_controllers_and_the_readers_sockets_end(subscribed: LiveNode) -> None:
    async with (
        socket(subscribed, CONTROL, consumer="a") as session,
        socket(subscribed, CONSUME, consumer="a") as reader,
    ):
        await session.expect(Welcome)
        await reader.expect(Welcome)
        await session.send(Register())
        await session.expect(Assignment)
        rest(subscribed, "DELETE", "public/default/orders/subscriptions/s")
        for peer in (session, reader):
            assert (await peer.wait_for(ErrorFrame)).fields == {"subscription": "s"}
            assert await peer.close_code() == ENDED


async def test_the_end_of_the_topic_is_another_end(subscribed: LiveNode) -> None:
    async with socket(subscribed, CONSUME, consumer="a") as reader:
        await reader.expect(Welcome)
        rest(subscribed, "DELETE", "public/default/orders")
        assert await reader.close_code() == ANSWERS["topic_deleted"].close_code
