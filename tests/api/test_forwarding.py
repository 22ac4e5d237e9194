"""Any node tells who is connected, though only the topic's leader remembers it."""

from typing import Any

import pytest

from tests.api.members import member
from tests.api.peers import rest
from tests.processes import LiveNode, ProcessFactory

TOPIC = "public/default/orders"
DOORS = (f"{TOPIC}/subscriptions/s", f"{TOPIC}/subscriptions/s/assignments", f"{TOPIC}/stats")


def consumers(node: LiveNode, door: str) -> list[tuple[str, str]]:
    """Name the consumers with what is known of their sessions."""
    body: Any = rest(node, "GET", door).json()
    found = body["subscriptions"]["s"] if "subscriptions" in body else body
    return [(each["consumerName"], each["session"]) for each in found["consumers"]]


@pytest.mark.parametrize("door", DOORS)
async def test_a_node_that_does_not_lead_asks_the_one_that_does(
    live_node: LiveNode, processes: ProcessFactory, door: str
) -> None:
    other = processes.node()
    rest(live_node, "PUT", TOPIC)
    async with member(live_node, "a"):
        assert consumers(live_node, door) == [("a", "CONNECTED")]
        assert consumers(other, door) == [("a", "CONNECTED")]


async def test_without_an_answer_of_the_leader_it_is_unknown(
    live_node: LiveNode, processes: ProcessFactory
) -> None:
    other = processes.node()
    rest(live_node, "PUT", TOPIC)
    async with member(live_node, "a"):
        pass
    live_node.process.kill_group()
    assert consumers(other, DOORS[0]) in ([("a", "UNKNOWN")], [("a", "GRACE")])
