"""Subscriptions: made on every segment or not at all, deleted whole, told in numbers that are true."""

import pytest

from scalable.domain.errors import (
    GenerationSuperseded,
    InvalidParameter,
    PositionInvalid,
    SegmentNotFound,
    SegmentStoreMissing,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
)
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Subscription
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port, use_port
from scalable.services import peeking, subscription_stats, subscriptions
from scalable.services.membership import membership
from scalable.services.positions import AtPositions, Start
from scalable.services.topics import TopicView
from scalable.store.subscriptions import SubscriptionView
from tests.services.group import Group
from tests.topology import append, append_everywhere, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db

STREAM, QUEUE, CHECKPOINT = SubscriptionType
KINDS = [(STREAM, False), (STREAM, True), (QUEUE, False), (CHECKPOINT, False)]


def create(
    topic: TopicView,
    name: str = "s",
    *,
    kind: SubscriptionType = STREAM,
    start: Start = "earliest",
    key_shared: bool = False,
) -> SubscriptionView:
    """Make a subscription."""
    return subscriptions.create_subscription(
        name=topic.name, subscription=name, kind=kind, start=start, key_shared=key_shared
    )


def backlog(topic: TopicView, name: str = "s") -> dict[int, int]:
    """Give what is left of each segment."""
    return subscription_stats.subscription_stats(name=topic.name, subscription=name).backlog.pending


def waits(topic: TopicView, name: str = "s") -> dict[int, list[tuple[int, int]]]:
    """Give what each shut segment waits for, with the number of messages."""
    found = subscription_stats.subscription_stats(name=topic.name, subscription=name).backlog.waits
    return {key: [(each.segment_id, each.unacknowledged) for each in waited] for key, waited in found.items()}


def cursor_names(topic: TopicView) -> dict[int, list[str]]:
    """Name the cursors of each store of the topic."""
    port = segment_port()
    keys = port.keys(incarnation=topic.incarnation)
    return {key.segment_id: [each.subscription for each in port.cursors(key)] for key in keys}


def grow(topic: TopicView) -> None:
    """Split 0 into 1 and 2, then 1 into 3 and 4, with ten messages before, between and after."""
    for number in range(10):
        append(topic, 0, f"first {number}")
    drive(request(OperationKind.SPLIT, topic))
    for number in range(5):
        append_everywhere(topic, f"second {number}")


# Creation.


@pytest.mark.parametrize(("kind", "key_shared"), KINDS)
def test_one_made_after_a_split_receives_everything(
    port: SegmentPort, kind: SubscriptionType, key_shared: bool
) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    create(topic, kind=kind, key_shared=key_shared)
    assert backlog(topic) == {0: 10, 1: 5, 2: 5}
    seen = [
        each.value.decode() for each in peeking.peek(name=topic.name, subscription="s", count=100).messages
    ]
    assert seen[:10] == [f"first {number}" for number in range(10)]
    assert len(set(seen)) == 20


def test_a_key_shared_one_has_a_cursor_for_each_entry_bucket(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic, key_shared=True)
    assert cursor_names(topic) == {0: ["s/0000-3fff", "s/4000-7fff", "s/8000-bfff", "s/c000-ffff"]}
    subscriptions.delete_subscription(name=topic.name, subscription="s")
    assert cursor_names(topic) == {0: []}


def test_only_a_stream_shares_keys(port: SegmentPort) -> None:
    topic = make_topic()
    with pytest.raises(InvalidParameter):
        create(topic, kind=QUEUE, key_shared=True)
    assert cursor_names(topic) == {0: [], 1: []}


def test_one_that_exists_stays_as_it_is(port: SegmentPort) -> None:
    topic = make_topic()
    append_everywhere(topic, "before")
    made = create(topic, start="latest")
    assert create(topic, start="earliest", key_shared=True) == made
    assert backlog(topic) == {0: 0, 1: 0}
    for kind in (QUEUE, CHECKPOINT):
        with pytest.raises(SubscriptionTypeMismatch):
            create(topic, kind=kind)
    assert cursor_names(topic) == {0: ["s"], 1: ["s"]}


class _Embedded(EmbeddedSegments):
    """Loses its connection at the cursor of one segment."""

    def create_cursor(self, key: SegmentKey, *, subscription: str, position: int | None) -> None:
        if key.segment_id == 2:
            raise SegmentStoreMissing(segment_id=2)
        super().create_cursor(key, subscription=subscription, position=position)


class _Memory(MemorySegments):
    """Fails at the cursor of one segment, once."""

    failed = False

    def create_cursor(self, key: SegmentKey, *, subscription: str, position: int | None) -> None:
        if key.segment_id == 2 and not self.failed:
            self.failed = True
            raise SegmentStoreMissing(segment_id=2)
        super().create_cursor(key, subscription=subscription, position=position)


@pytest.mark.parametrize("adapter", [_Embedded, _Memory])
def test_when_one_cursor_fails_nothing_half_made_remains(adapter: type[SegmentPort]) -> None:
    with use_port(adapter()):
        topic = make_topic(segments=4)
        with pytest.raises(SegmentStoreMissing):
            create(topic)
        assert not Subscription.objects.filter(topic_id=topic.incarnation).exists()
        assert cursor_names(topic) == {0: [], 1: [], 2: [], 3: []}


def test_after_a_failure_it_is_made_whole(external: MemorySegments) -> None:
    topic = make_topic(segments=4)
    append_everywhere(topic, "before")
    external.create_cursor(SegmentKey(topic.incarnation, 2), subscription="s", position=1)
    create(topic)  # what a process that died left behind is no position of the new one
    assert backlog(topic) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_an_idle_one_receives_what_comes_during_and_after_a_split(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    grow(topic)
    assert sum(backlog(topic).values()) == 20


# Where it begins.


def test_it_begins_at_the_end(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    create(topic, start="latest")
    append_everywhere(topic, "later")
    assert backlog(topic) == {0: 0, 1: 1, 2: 1}


def test_it_begins_at_positions_and_what_they_do_not_name_is_unread(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    create(topic, start=AtPositions({0: 10, 1: 3}, topic.incarnation))
    assert backlog(topic) == {0: 0, 1: 2, 2: 5}


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (AtPositions({9: 0}), SegmentNotFound),
        (AtPositions({0: 11}), PositionInvalid),
        (AtPositions({0: 0}, incarnation=1), InvalidParameter),
    ],
)
def test_positions_that_do_not_fit_are_refused_and_nothing_is_made(
    port: SegmentPort, start: Start, error: type[Exception]
) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    with pytest.raises(error):
        create(topic, start=start)
    assert subscriptions.list_subscriptions(name=topic.name) == []
    assert cursor_names(topic) == {0: [], 1: [], 2: []}


# Backlog, and what waits for what.


def test_delivered_is_not_acknowledged(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    for number in range(100):
        append(topic, 0, str(number))
    drive(request(OperationKind.SPLIT, topic))
    append_everywhere(topic, "child")
    group.acknowledge(0, 50)
    group.leave("a")
    group.join("b")
    assert group.owners() == {0: "b"}
    assert backlog(topic) == {0: 50, 1: 1, 2: 1}
    assert waits(topic) == {1: [(0, 50)], 2: [(0, 50)]}
    group.acknowledge(0, 100)
    assert group.owners() == {1: "b", 2: "b"}
    assert waits(topic) == {}
    assert backlog(topic) == {0: 0, 1: 1, 2: 1}


def test_stats_say_what_keeps_a_child_shut(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "standby")
    grow(topic)
    assert waits(topic) == {1: [(0, 10)], 2: [(0, 10)]}
    stats = subscription_stats.topic_stats(name=topic.name)
    (one,) = stats.subscriptions
    assert [(each.name, each.segment_ids, each.standby) for each in one.consumers] == [
        ("a", (0,), False),
        ("standby", (), True),
    ]
    assert stats.term == group.leader.term
    group.drain(0)
    assert waits(topic) == {}


def test_a_child_without_messages_is_shut_and_says_so_too(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "standby")
    append(topic, 0, "before")
    drive(request(OperationKind.SPLIT, topic))
    assert waits(topic) == {1: [(0, 1)], 2: [(0, 1)]}
    shut = membership(subscription_id=group.subscription_id).waits
    assert {key: [one for one, _ in waited] for key, waited in waits(topic).items()} == {
        key: list(waited) for key, waited in shut.items()
    }
    group.drain(0)
    assert waits(topic) == {}


def test_sizes_are_those_of_what_is_left(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    create(topic, "q", kind=QUEUE)
    create(topic, "shared", key_shared=True)
    grow(topic)
    key = SegmentKey(topic.incarnation, 0)
    stored = segment_port().sizes(incarnation=topic.incarnation)
    whole = dict.fromkeys(("s", "q", "shared"), stored)

    def sizes() -> dict[str, dict[int, int]]:
        stats = subscription_stats.topic_stats(name=topic.name)
        assert stats.sizes == stored
        return {
            each.subscription.name: {key: usage.backlog_bytes for key, usage in each.usage.items()}
            for each in stats.subscriptions
        }

    assert sizes() == whole
    segment_port().acknowledge(key, subscription="s", generation=0, position=10)
    segment_port().acknowledge_ranges(key, subscription="q", generation=None, ranges=[(2, 7)])
    left = sizes()
    assert left["s"] == {**stored, 0: 0}
    assert left["q"] == {**stored, 0: pytest.approx(stored[0] / 2, rel=0.01)}
    assert left["shared"] == stored


def test_a_queue_waits_for_nothing_and_counts_what_was_acknowledged_one_by_one(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic, kind=QUEUE)
    grow(topic)
    key = SegmentKey(topic.incarnation, 0)
    segment_port().acknowledge_ranges(key, subscription="s", generation=None, ranges=[(2, 4), (9, 10)])
    assert waits(topic) == {}
    assert backlog(topic) == {0: 7, 1: 5, 2: 5}
    peeked = peeking.peek(name=topic.name, subscription="s", count=100).messages
    assert [each.offset for each in peeked if each.segment_id == 0] == [0, 1, 4, 5, 6, 7, 8]


def test_a_trimmed_beginning_is_no_backlog(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    grow(topic)
    segment_port().trim(SegmentKey(topic.incarnation, 0), before_offset=4, max_batches=100)
    assert backlog(topic) == {0: 6, 1: 5, 2: 5}


# Peek.


def test_a_look_moves_nothing_and_cuts_large_values(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    append(topic, 0, "x" * 100_000)
    append(topic, 0, "small")
    large, small = peeking.peek(name=topic.name, subscription="s", count=10).messages
    assert (large.size_bytes, large.truncated, len(large.value)) == (100_000, True, peeking.VALUE_BYTES)
    assert (small.value, small.truncated, small.offset) == (b"small", False, 1)
    assert backlog(topic) == {0: 2}
    assert peeking.peek(name=topic.name, subscription="s", count=1).messages == (large,)
    with pytest.raises(SubscriptionNotFound):
        peeking.peek(name=topic.name, subscription="unknown", count=1)


# Deletion.


@pytest.mark.parametrize(("kind", "key_shared"), KINDS)
def test_a_deleted_one_leaves_nothing_and_its_name_begins_afresh(
    port: SegmentPort, kind: SubscriptionType, key_shared: bool
) -> None:
    topic = make_topic(segments=1)
    grow(topic)
    create(topic, kind=kind, key_shared=key_shared, start="latest")
    subscriptions.delete_subscription(name=topic.name, subscription="s")
    assert set(map(tuple, cursor_names(topic).values())) == {()}
    with pytest.raises(SubscriptionNotFound):
        subscriptions.delete_subscription(name=topic.name, subscription="s")
    create(topic, kind=kind, key_shared=key_shared)
    assert sum(backlog(topic).values()) == 20


def test_acknowledgements_of_a_former_life_are_refused(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    append(topic, 0, "one")
    group = Group(topic)
    group.join("a")
    former = group.generation(0)
    subscriptions.delete_subscription(name=topic.name, subscription="s")
    assert list(layout_of(topic).segments) == [0]
    group.join("a")
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 1, generation=former)
    assert backlog(topic) == {0: 1}
