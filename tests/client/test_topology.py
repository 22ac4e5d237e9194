"""The watch against a real node: nothing is missed while the socket is down, and nothing goes back."""

from __future__ import annotations

import asyncio

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, Endpoint, TopologyWatch
from scalable.client.topology import RevisionGap, Topology, apply_delta, with_successors
from scalable.domain.errors import TopicDeleted
from scalable.domain.names import TopicName
from scalable.wire.frames import Delta, SegmentFrame
from tests.client.proxy import Relay
from tests.processes import LiveNode


def endpoint(node: LiveNode, url: str | None = None) -> Endpoint:
    return Endpoint(url or node.url, node.admin_token)


async def test_a_split_while_the_socket_is_down_is_seen_after_the_reconnect(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    seen: list[tuple[int, int]] = []
    async with Relay(live_node.url) as relay:
        watch = TopologyWatch(
            endpoint(live_node, relay.url),
            TopicName.parse(topic),
            on_change=lambda topology: seen.append((topology.epoch, topology.revision)),
        )
        async with watch:
            for epoch in (1, 2):
                relay.hold()
                relay.cut()
                await asyncio.to_thread(
                    admin.split, topic, watch.current.active[0].segmentId if watch.current else 0
                )
                relay.let_go()
                topology = await watch.wait_for_epoch(above=epoch - 1, timeout_seconds=10)
                assert topology.epoch == epoch
    assert seen == sorted(set(seen)), "each state once, never an older one"


async def test_a_deleted_topic_ends_the_watch_even_when_its_name_is_taken_again(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with (
        Relay(live_node.url) as relay,
        TopologyWatch(endpoint(live_node, relay.url), TopicName.parse(topic)) as watch,
    ):
        relay.hold()
        await asyncio.to_thread(admin.delete_topic, topic, force=True)
        await asyncio.to_thread(admin.create_topic, topic)
        relay.cut()
        relay.let_go()
        with pytest.raises(TopicDeleted):
            await watch.wait_for(lambda _: False, timeout_seconds=10)


def segment(
    segment_id: int, start: int, end: int, *, state: str = "ACTIVE", parents: tuple[int, ...] = ()
) -> SegmentFrame:
    return SegmentFrame(
        segmentId=segment_id,
        start=start,
        end=end,
        state="ACTIVE" if state == "ACTIVE" else "SEALED",
        parentIds=list(parents),
        childIds=[],
        createdAtEpoch=0,
        sealedAtEpoch=0,
        createdAtMs=0,
        sealedAtMs=-1,
    )


def topology(*segments: SegmentFrame, revision: int = 3) -> Topology:
    return Topology(1, 0, revision, 1, 9, None, None, {each.segmentId: each for each in segments})


def delta(base_revision: int, *, incarnation: int = 1) -> Delta:
    return Delta(
        session_id="",
        incarnation=incarnation,
        base_revision=base_revision,
        epoch=1,
        revision=base_revision + 1,
        term=1,
        next_segment_id=3,
        controller_url=None,
        controller_url_tls=None,
        segments=[segment(1, 0, 9)],
        removed=[0],
    )


def test_a_delta_of_another_revision_or_life_is_a_gap() -> None:
    held = topology(segment(0, 0, 65535))
    with pytest.raises(RevisionGap):
        apply_delta(held, delta(2))
    with pytest.raises(RevisionGap):
        apply_delta(held, delta(3, incarnation=2))
    assert list(apply_delta(held, delta(3)).segments) == [1]


def test_a_hash_finds_the_active_segment_of_its_range() -> None:
    held = topology(segment(0, 0, 65535, state="SEALED"), segment(2, 0x8000, 0xFFFF), segment(1, 0, 0x7FFF))
    assert [held.find_active(at).segmentId for at in (0, 0x7FFF, 0x8000, 0xFFFF)] == [1, 1, 2, 2]
    assert not held.is_active(0)
    assert not held.is_active(7)


def active_ids(found: Topology | None) -> list[int]:
    assert found is not None
    return [each.segmentId for each in found.active]


def test_successors_of_a_sealed_segment_complete_a_layout() -> None:
    held = topology(segment(0, 0, 0x7FFF), segment(1, 0x8000, 0xFFFF))
    split = with_successors(
        held, 1, [segment(2, 0, 0x3FFF, parents=(0,)), segment(3, 0x4000, 0x7FFF, parents=(0,))]
    )
    assert (active_ids(split), split and split.epoch) == ([2, 3, 1], 1)
    merged = with_successors(held, 1, [segment(2, 0, 0xFFFF, parents=(0, 1))])
    assert active_ids(merged) == [2]
    both = [
        segment(2, 0, 0xFFFF, state="SEALED", parents=(0, 1)),
        segment(3, 0, 0x7FFF, parents=(2,)),
        segment(4, 0x8000, 0xFFFF, parents=(2,)),
    ]
    assert active_ids(with_successors(held, 2, both)) == [3, 4]
    assert active_ids(held) == [0, 1], "what is held stays as it is"


def test_successors_that_do_not_fit_or_are_not_new_change_nothing() -> None:
    held = topology(segment(0, 0, 0x7FFF), segment(1, 0x8000, 0xFFFF))
    half = [segment(2, 0, 0x3FFF, parents=(0,))]
    assert with_successors(held, 1, half) is None
    children = [*half, segment(3, 0x4000, 0x7FFF, parents=(0,))]
    later = with_successors(held, 3, children)
    assert later is not None
    assert with_successors(later, 2, [segment(4, 0, 0x7FFF, parents=(2, 3))]) is None, "an older epoch"
    assert with_successors(later, 3, children) is None
