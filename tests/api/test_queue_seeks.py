"""What consumers of a queue hear of a seek: at once, on every node, of every segment they have attached."""

from launch.sandbox import ProcessFactory
from scalable.wire.frames import SegmentDone, SegmentReopened
from tests.api.peers import ask, rest
from tests.api.queues import make_queue, offsets, publish, queue_peer
from tests.api.test_queue_socket import some, split

SUBSCRIPTION = "public/default/orders/subscriptions/q"


async def test_what_a_seek_gives_back_wakes_the_consumers_of_every_node(processes: ProcessFactory) -> None:
    quiet = {"SCALABLE_WATCH_RESYNC_SECONDS": "600"}
    near, far = processes.node(**quiet), processes.node(**quiet)
    topic = await ask(make_queue)
    await publish(topic, some(3))
    async with queue_peer(near, "a") as consumer:
        await consumer.attach()
        await consumer.acknowledge(*await consumer.take(3))
        await consumer.nothing_comes(0.3)
        rest(far, "POST", f"{SUBSCRIPTION}/seek?timestamp=0")
        again = await consumer.take(3)
        assert offsets(again) == [0, 1, 2]


async def test_a_sealed_segment_that_a_seek_drains_is_done_and_one_that_it_opens_comes_again(
    processes: ProcessFactory,
) -> None:
    node = processes.node(SCALABLE_WATCH_RESYNC_SECONDS="600")
    topic = await ask(make_queue)
    await publish(topic, some(3))
    await ask(split, topic)
    async with queue_peer(node, "a") as consumer:
        await consumer.attach()
        await consumer.take(3)  # and acknowledges none
        await consumer.nothing_comes(0.3)
        rest(node, "POST", f"{SUBSCRIPTION}/skip-all")
        assert await consumer.wait_for(SegmentDone) == SegmentDone(segment_id=0)
        rest(node, "POST", f"{SUBSCRIPTION}/seek?timestamp=0")
        assert await consumer.wait_for(SegmentReopened) == SegmentReopened(segment_id=0)
        await consumer.attach()
        assert offsets(await consumer.take(3)) == [0, 1, 2]
