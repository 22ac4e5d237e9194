"""The checkpoint consumer against a real node and worker."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, CheckpointConsumer
from scalable.client.starts import Start
from scalable.domain.checkpoint import Checkpoint, Skipped
from scalable.domain.errors import CheckpointSuperseded, InvalidParameter, TopicDeleted
from scalable.domain.keyspace import FULL_RANGE
from scalable.domain.names import SegmentName, TopicName
from tests.client.proxy import Relay
from tests.client.test_consumer import fill
from tests.processes import LiveNode, ProcessFactory


def member(node: LiveNode, topic: str, name: str, start: Start = "earliest") -> CheckpointConsumer:
    return CheckpointConsumer(node.url, topic, node.admin_token, group="group", name=name, start=start)


async def values(consumer: CheckpointConsumer, count: int) -> list[int]:
    return [int((await consumer.receive(timeout_seconds=60)).value) for _ in range(count)]


async def test_a_checkpoint_survives_a_split_and_is_read_on_from(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 20)
    async with member(live_node, topic, "a") as consumer:
        assert await values(consumer, 12) == list(range(12))
        kept = consumer.checkpoint()
        assert (await consumer.commit(kept)).positions == {0: 12}
        await asyncio.to_thread(admin.split, topic, 0)
        await fill(live_node, topic, 20, 40)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))
        await consumer.restore(kept)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))
    async with member(live_node, topic, "b") as consumer:
        await consumer.restore(kept)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))


async def test_nothing_that_was_fetched_before_a_restore_is_handed_out_after_it(
    live_node: LiveNode, topic: str
) -> None:
    await fill(live_node, topic, 0, 300)
    async with member(live_node, topic, "a") as consumer:
        assert await values(consumer, 5) == list(range(5))
        kept = consumer.checkpoint()
        assert await values(consumer, 100) == list(range(5, 105))
        for _ in range(3):
            assert (await consumer.restore(kept)).positions == {0: 5}
            assert await values(consumer, 20) == list(range(5, 25))
            assert consumer.checkpoint().positions == {0: 25}


async def test_what_was_kept_before_a_restore_is_committed_no_more(live_node: LiveNode, topic: str) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a") as consumer:
        await values(consumer, 4)
        early = consumer.checkpoint()
        await values(consumer, 4)
        late = consumer.checkpoint()
        restored = await consumer.restore(early)
        with pytest.raises(CheckpointSuperseded):
            await consumer.commit(late)
        assert (await consumer.commit(restored)).positions == {0: 4}
        assert await values(consumer, 6) == list(range(4, 10))


async def test_a_refused_checkpoint_changes_nothing_and_the_session_goes_on(
    live_node: LiveNode, topic: str
) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a") as consumer:
        await values(consumer, 4)
        here = consumer.checkpoint()
        for positions in ({0: 11}, {7: 0}):
            for move in (consumer.commit, consumer.restore):
                with pytest.raises(InvalidParameter):
                    await move(replace(here, positions=positions))
        with pytest.raises(InvalidParameter):
            await consumer.restore(Checkpoint(here.incarnation + 1, {0: 1}))
        assert await values(consumer, 6) == list(range(4, 10))
        assert (await consumer.commit(consumer.checkpoint())).positions == {0: 10}


async def test_the_first_member_brings_the_checkpoint_and_others_join(
    live_node: LiveNode, topic: str
) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a") as consumer:
        await values(consumer, 10)
        kept = replace(consumer.checkpoint(), positions={0: 6})
    async with member(live_node, topic, "b", start=kept) as consumer:
        assert await values(consumer, 2) == [6, 7]
        async with member(live_node, topic, "c", start=replace(kept, positions={0: 0})) as late:
            assert late.standby
            assert await values(consumer, 2) == [8, 9], "who joins a group that reads moves nothing"


async def test_another_member_takes_over_from_the_committed_checkpoint(
    processes: ProcessFactory, topic: str
) -> None:
    node = processes.node(SCALABLE_SESSION_GRACE_SECONDS="1")
    await fill(node, topic, 0, 10)
    lost = member(node, topic, "lost")
    await lost.start()
    await values(lost, 4)
    await lost.commit(lost.checkpoint())
    await values(lost, 3)
    await lost._stop()  # as a process that dies: no goodbye
    async with member(node, topic, "heir") as heir:
        assert await values(heir, 6) == list(range(4, 10))


async def test_a_segment_that_is_pruned_while_it_is_read_is_noted(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 20)
    async with member(live_node, topic, "a") as consumer:
        assert await values(consumer, 12) == list(range(12))
        await asyncio.to_thread(admin.split, topic, 0)
        pruned = SegmentName(TopicName.parse(topic), FULL_RANGE, 0)
        with Admin(live_node.url, live_node.system_token) as system:
            await asyncio.to_thread(system.delete_segment, pruned, force=True)
        async with asyncio.timeout(60):
            while not consumer.skipped:
                await consumer._changed.wait()
        assert consumer.skipped == [Skipped(0, (1, 2))]
        await fill(live_node, topic, 20, 30)
        assert sorted(await values(consumer, 10)) == list(range(20, 30))
        await consumer.commit(consumer.checkpoint())
        assert consumer.skipped == [Skipped(0, (1, 2))]


async def test_a_deleted_topic_ends_the_members(live_node: LiveNode, admin: Admin, topic: str) -> None:
    await fill(live_node, topic, 0, 2)
    async with member(live_node, topic, "a") as consumer:
        await values(consumer, 2)
        await asyncio.to_thread(admin.delete_topic, topic, force=True)
        with pytest.raises(TopicDeleted):
            await consumer.receive(timeout_seconds=60)
        with pytest.raises(TopicDeleted):
            await consumer.commit(consumer.checkpoint())


@pytest.mark.parametrize("old_leader_dies", [False, True])
async def test_a_reported_end_outlives_the_leader(
    processes: ProcessFactory, admin: Admin, topic: str, reshaping: ManagedProcess, old_leader_dies: bool
) -> None:
    quick = {"SCALABLE_NODE_TIMEOUT_SECONDS": "2", "SCALABLE_NODE_HEARTBEAT_SECONDS": "0.5"}
    first, second = processes.node(**quick), processes.node(**quick)
    await fill(first, topic, 0, 10)
    consumer = CheckpointConsumer([first.url, second.url], topic, first.admin_token, group="group", name="a")
    async with consumer:
        await asyncio.to_thread(admin.split, topic, 0)
        await fill(second, topic, 10, 20)
        assert sorted(await values(consumer, 20)) == list(range(20))
        kept = consumer.checkpoint()
        if old_leader_dies:
            first.process.send_signal(signal.SIGKILL)
        await fill(second, topic, 20, 30)
        assert sorted(await values(consumer, 10)) == list(range(20, 30)), "nothing comes twice"
        assert sum((await consumer.commit(kept)).positions.values()) == 20


async def test_a_member_that_was_given_up_for_lost_goes_on_where_it_was(processes: ProcessFactory) -> None:
    """What its application did with the messages behind the last commit is not lost: they come no more."""
    topic = "topic://public/default/given-up"
    async with Relay() as relay:
        node = await asyncio.to_thread(
            lambda: processes.node(SCALABLE_NODE_URL=relay.url, SCALABLE_SESSION_GRACE_SECONDS="0.5")
        )
        relay.target_url = node.url
        with Admin(node.url, node.admin_token) as admin:
            await asyncio.to_thread(admin.create_topic, topic)
            await fill(node, topic, 0, 10)
            async with CheckpointConsumer(relay.url, topic, node.admin_token, group="group", name="a") as one:
                assert await values(one, 7) == list(range(7))
                relay.hold()
                relay.cut()
                async with asyncio.timeout(60):
                    # Nobody is told that a session ended.
                    while (await asyncio.to_thread(admin.assignments, topic, "group"))["consumers"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                relay.let_go()
                assert await values(one, 3) == [7, 8, 9]
                assert one.checkpoint().positions == {0: 10}


async def test_an_end_that_a_lost_session_did_not_tell_is_told_in_the_next(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    """The consume socket goes to the node and lives on; only the controller session is lost."""
    await fill(live_node, topic, 0, 5)
    async with (
        Relay(live_node.url) as relay,
        CheckpointConsumer(relay.url, topic, live_node.admin_token, group="group", name="a") as consumer,
    ):
        assert await values(consumer, 5) == list(range(5))
        await asyncio.to_thread(admin.split, topic, 0)
        await fill(live_node, topic, 5, 10)
        relay.lose()
        following = asyncio.create_task(values(consumer, 5))
        async with asyncio.timeout(60):
            await relay.lost.wait()
        relay.cut()
        assert sorted(await following) == list(range(5, 10))
