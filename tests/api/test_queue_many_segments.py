"""One consumer of a QUEUE subscription with many segments at once: each gets its turn, in any order."""

from launch.sandbox import LiveNode
from tests.api.peers import ask
from tests.api.queues import make_queue, queue_peer
from tests.topology import append_everywhere

SEGMENTS = 40
"""Many more than a socket may read at once."""


async def test_every_segment_of_many_is_delivered_though_all_were_attached_at_once(
    live_node: LiveNode,
) -> None:
    topic = await ask(make_queue, segments=SEGMENTS)
    first = await ask(append_everywhere, topic, "first")
    async with queue_peer(live_node, "a") as a:
        for segment_id in range(SEGMENTS):
            await a.attach(segment_id)
        assert {each.value.decode() for each in await a.take(SEGMENTS)} == first
        second = await ask(append_everywhere, topic, "second")
        assert {each.value.decode() for each in await a.take(SEGMENTS)} == second
