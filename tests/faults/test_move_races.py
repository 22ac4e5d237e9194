"""Seeks and skips beside splits, merges and acknowledgements: all segments or none, and nothing is lost."""

import pytest

from scalable.domain.errors import GenerationSuperseded, PositionInvalid, SegmentNotOwned
from scalable.domain.operations import Outcome
from scalable.segments.registry import segment_port
from scalable.services import seeking, subscription_stats, sweeping
from scalable.services.topics import TopicView
from tests.faults.conftest import Plane
from tests.faults.test_races import ROUNDS, publish, reshape, side_by_side
from tests.services.group import Group
from tests.topology import layout_of, make_topic, read_all

pytestmark = pytest.mark.django_db(transaction=True)


def move_about(topic: TopicView) -> None:
    """Seek to the end and back, and skip a little."""
    for _ in range(ROUNDS):
        seeking.clear_backlog(name=topic.name, subscription="s")
        seeking.seek(name=topic.name, subscription="s", start="earliest", preview=True)
        seeking.seek(name=topic.name, subscription="s", start="earliest")
        seeking.skip(name=topic.name, subscription="s", count=3)


def drain_about(group: Group) -> None:
    """Acknowledge whatever is owned, as long as it is."""
    for _ in range(4 * ROUNDS):
        for owned in group.view("a").segments:
            segment_id = owned.name.segment_id
            try:
                end = segment_port().stats(group.key(segment_id)).end_offset
                group.acknowledge(segment_id, end, generation=owned.generation)
            except (GenerationSuperseded, SegmentNotOwned, PositionInvalid):
                continue


def test_moves_beside_splits_and_acknowledgements_leave_true_positions(plane: Plane) -> None:
    sweeping.sweep_stores()
    topic = make_topic("moved", segments=2)
    group = Group(topic)
    group.join("a")
    with side_by_side() as run:
        reshaped = [run(reshape, topic, 0, 32767), run(reshape, topic, 32768, 65535)]
        run(move_about, topic)
        run(drain_about, group)
        published = [run(publish, topic, hash16) for hash16 in (0, 65_535)]
    assert [future.result() for future in reshaped] == [[Outcome.SUCCEEDED] * ROUNDS] * 2
    accepted = [value for future in published for value in future.result()]  # type: ignore[attr-defined]
    assert sorted(read_all(topic)) == sorted(accepted)
    seeking.seek(name=topic.name, subscription="s", start="earliest")
    stats = subscription_stats.subscription_stats(name=topic.name, subscription="s")
    assert stats.backlog.messages == len(accepted)
    drain_in_order(group)
    stats = subscription_stats.subscription_stats(name=topic.name, subscription="s")
    assert (stats.backlog.messages, stats.backlog.waits) == (0, {})


def drain_in_order(group: Group) -> None:
    """Acknowledge what is owned until nothing of the topic is left, parents before children."""
    layout, port = layout_of(group.topic), segment_port()
    ends = {key: port.stats(group.key(key)).end_offset for key in layout.segments}
    holding = {key for key, end in ends.items() if end}  # an empty one that is sealed is drained by itself
    seen: set[int] = set()
    while found := group.owners().keys() - seen:
        for segment_id in found:
            assert layout.ancestors(segment_id) & holding <= seen
            seen.add(segment_id)
            group.acknowledge(segment_id, ends[segment_id])
    assert holding <= seen
