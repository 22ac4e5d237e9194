"""Segments with very many entry buckets: what is done for them grows with their number alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from scalable.api.leader import SessionState
from scalable.api.subscription_answers import assignments_body, stats_body
from scalable.domain import buckets, keyspace
from scalable.domain.errors import TooManyBuckets
from scalable.domain.keyspace import HashRange
from scalable.services import scaling, settling
from scalable.services.subscription_stats import assignments, subscription_stats
from scalable.services.topics import TopicView
from scalable.store import assigned
from tests.services.group import Group
from tests.topology import ACTOR, append, drive, layout_of, make_topic

pytestmark = pytest.mark.django_db

MOST = buckets.MAX_PER_SEGMENT
FULL = buckets.MAX_PER_TOPIC // MOST


class Parts:
    """Counts the ranges that are cut out of others."""

    def __init__(self) -> None:
        self.made = 0


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    counted, split_at = Parts(), HashRange.split_at

    def counting(self: HashRange, boundaries: Sequence[int]) -> tuple[HashRange, ...]:
        counted.made += len(boundaries) + 1
        return split_at(self, boundaries)

    monkeypatch.setattr(keyspace.HashRange, "split_at", counting)
    return counted


def with_buckets(count: int, *, segments: int, name: str = "many") -> TopicView:
    """Create a topic whose active segments have so many entry buckets each."""
    topic = make_topic(name, segments=segments)
    for segment_id in range(segments):
        drive(ask(topic, segment_id, count))
    return topic


def ask(topic: TopicView, segment_id: int, count: int) -> scaling.OperationView:
    """Ask for a rebucket."""
    return scaling.request_rebucket(
        name=topic.name, segment_id=segment_id, bucket_count=count, actor=ACTOR, reason="manual"
    )


def everything(topic: TopicView) -> list[Any]:
    """Let consumers join, give up, be told, be shown and leave."""
    group = Group(topic, key_shared=True)
    group.join("a")
    group.join("b")
    group.view("a")
    group.leave("b")
    shown = assignments(name=topic.name, subscription="s")
    told = subscription_stats(name=topic.name, subscription="s")
    return [
        assignments_body(shown, lambda _: SessionState.UNKNOWN),
        stats_body(told, lambda _: SessionState.UNKNOWN),
    ]


def test_what_is_done_for_entry_buckets_grows_with_their_number_alone(parts: Parts) -> None:
    few, many = with_buckets(16, segments=2, name="few"), with_buckets(128, segments=2)
    parts.made = 0
    everything(few)
    for_few, parts.made = parts.made, 0
    everything(many)
    assert parts.made <= 8 * for_few


def test_the_splits_of_a_segment_are_read_once() -> None:
    topic = with_buckets(16, segments=2)
    group = Group(topic, key_shared=True)
    group.join("a", "b")
    found = assigned.read(group.subscription_id)
    active = [segment.segment_id for segment in layout_of(topic).active]
    assert found.splits == {key: buckets.equal_splits(16) for key in active}
    assert len(found.units) == 32


@pytest.mark.slow
def test_as_many_entry_buckets_as_a_topic_may_have_are_assigned_and_passed_on() -> None:
    topic = with_buckets(MOST, segments=FULL)
    group = Group(topic, key_shared=True)
    group.join("a")
    assert len(group.units("a")) == buckets.MAX_PER_TOPIC
    group.join("b")
    assert len(group.view("a").releasing) == buckets.MAX_PER_TOPIC // 2
    group.leave("a")
    assert len(group.units("b")) == buckets.MAX_PER_TOPIC


def test_more_entry_buckets_than_a_topic_may_have_are_refused() -> None:
    topic = with_buckets(MOST, segments=FULL)
    extra = scaling.request_split(
        name=topic.name, segment_id=layout_of(topic).active[0].segment_id, actor=ACTOR
    )
    drive(extra)
    with pytest.raises(TooManyBuckets, match=f"{buckets.MAX_PER_TOPIC + MOST // 2}"):
        ask(topic, layout_of(topic).active[0].segment_id, MOST)
    drive(ask(topic, layout_of(topic).active[0].segment_id, 1))


def test_entry_buckets_that_are_asked_for_and_not_there_yet_are_counted() -> None:
    topic = make_topic(segments=FULL + 1)
    for segment_id in range(FULL - 1):
        ask(topic, segment_id, MOST)
    running = ask(topic, FULL - 1, MOST - 1)
    assert ask(topic, FULL - 1, MOST - 1) == running
    with pytest.raises(TooManyBuckets):
        ask(topic, FULL, MOST)


@pytest.mark.parametrize("order", [1, -1, 37], ids=["first to last", "last to first", "mixed"])
def test_the_last_entry_bucket_that_is_read_settles_and_no_other(
    monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    """To settle costs as much as all of them together."""
    count = 64
    group = Group(with_buckets(count, segments=1), key_shared=True)
    group.join("a")
    (parent,) = layout_of(group.topic).active
    append(group.topic, parent.segment_id, "one")
    drive(ask(group.topic, parent.segment_id, 1))
    settled: list[int] = []
    settle = settling.settle_subscription

    def counting(*, subscription_id: int) -> bool:
        settled.append(bucket)
        return settle(subscription_id=subscription_id)

    monkeypatch.setattr(settling, "settle_subscription", counting)
    for number in range(count):
        bucket = (number * order) % count
        group.drain(parent.segment_id, bucket=bucket)
    assert settled == [bucket]
    (child,) = layout_of(group.topic).active
    assert set(group.owners()) == {child.segment_id}
