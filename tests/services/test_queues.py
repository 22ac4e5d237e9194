"""Consumers of a QUEUE subscription: what they claim, settle and give back, whatever the layout does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from scalable import announce
from scalable.domain.errors import (
    CursorSought,
    PositionInvalid,
    SegmentNotFound,
    SegmentStoreMissing,
    SubscriptionNotFound,
    TopicDeleted,
)
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import ClaimedBatch, ClaimResult, SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.services import pruning, queues, scaling, seeking, subscriptions, topics
from scalable.services.positions import AtTime
from scalable.services.topics import TopicView
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.batch import Record, decode_batch, encode_batch
from tests.segments.samples import incarnation_of
from tests.topology import ACTOR, append, append_everywhere, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db

HOUR_SECONDS = 3_600.0
MIB = 1024 * 1024


def queue_of(topic: TopicView, name: str = "q") -> SubscriptionView:
    """Make a QUEUE subscription at earliest."""
    return subscriptions.create_subscription(name=topic.name, subscription=name, kind=SubscriptionType.QUEUE)


class Worker:
    """One consumer of a topic's segments."""

    def __init__(self, topic: TopicView, subscription: SubscriptionView, name: str = "a") -> None:
        self.topic, self.subscription, self.name = topic, subscription, name

    def claim(
        self, segment_id: int = 0, *, count: int = 1_000, lease_seconds: float = HOUR_SECONDS
    ) -> ClaimResult:
        """Claim messages of a segment."""
        return queues.claim(
            topic=self.topic.name,
            subscription=self.subscription,
            segment_id=segment_id,
            consumer=self.name,
            session=f"session of {self.name}",
            max_messages=count,
            max_bytes=MIB,
            lease_seconds=lease_seconds,
        )

    def acknowledge(self, *offsets: int, segment_id: int = 0, incarnation: int | None = None) -> None:
        """Acknowledge single messages, in the cursor's present life if nothing else is said."""
        queues.acknowledge(
            subscription=self.subscription,
            segment_id=segment_id,
            incarnation=self.life_of(segment_id) if incarnation is None else incarnation,
            ranges=[(offset, offset + 1) for offset in offsets],
        )

    def life_of(self, segment_id: int) -> int:
        """Give the incarnation of a segment's cursor; 0 when there is none."""
        with suppress(SegmentStoreMissing):
            key = SegmentKey(self.topic.incarnation, segment_id)
            return incarnation_of(segment_port(), key, self.subscription.name)
        return 0

    def give_back(self, *offsets: int, **options: float | bool) -> None:
        """Give single messages back, or all."""
        queues.give_back(
            subscription=self.subscription,
            segment_id=0,
            session=f"session of {self.name}",
            ranges=[(offset, offset + 1) for offset in offsets] or None,
            **options,  # type: ignore[arg-type]
        )


def places(result: ClaimResult) -> list[tuple[ClaimedBatch, int]]:
    """Name the claimed messages by batch and offset."""
    return [
        (batch, offset)
        for batch in result.batches
        for each in batch.ranges
        for offset in range(each.first, each.end)
    ]


def offsets(result: ClaimResult) -> list[int]:
    """Name the claimed messages."""
    return [offset for _, offset in places(result)]


def values(result: ClaimResult) -> set[str]:
    """Read the claimed messages."""
    return {
        decode_batch(batch.payload)[offset - batch.base_offset].value.decode()
        for batch, offset in places(result)
    }


@contextmanager
def noticing() -> Iterator[list[announce.Notice]]:
    """Hear what is announced."""
    heard: list[announce.Notice] = []
    announce.listen(heard.append)
    try:
        yield heard
    finally:
        announce.silence(heard.append)


def test_a_new_subscription_gets_every_kept_segment_exactly_once(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscriptions.create_subscription(name=topic.name, subscription="keeps", kind=SubscriptionType.STREAM)
    expected = {"before"}
    append(topic, 0, "before")
    drive(request(OperationKind.SPLIT, topic))
    expected |= append_everywhere(topic, "after one split")
    drive(scaling.request_split(name=topic.name, segment_id=1, actor=ACTOR))
    expected |= append_everywhere(topic, "after two splits")
    worker = Worker(topic, queue_of(topic))
    claimed = [worker.claim(segment_id) for segment_id in sorted(layout_of(topic).segments)]
    found = [value for result in claimed for value in values(result)]
    assert (len(found), set(found)) == (len(expected), expected)
    assert all(not worker.claim(segment_id).batches for segment_id in layout_of(topic).segments)


@pytest.mark.django_db(transaction=True)
def test_an_acknowledgement_in_a_segment_is_done_when_it_is_pruned_and_refused_when_it_never_was(
    port: SegmentPort,
) -> None:
    topic = make_topic(segments=1)
    worker = Worker(topic, queue_of(topic))
    append(topic, 0, "only")
    worker.claim()
    drive(request(OperationKind.SPLIT, topic))
    worker.acknowledge(0)
    assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    worker.acknowledge(0)
    never_was = layout_of(topic).next_segment_id
    for segment_id in (never_was, 99, 2**31, 2**63 - 1):
        with pytest.raises(SegmentNotFound):
            worker.acknowledge(0, segment_id=segment_id)
    with pytest.raises(PositionInvalid):
        worker.acknowledge(0, segment_id=never_was - 1)


@pytest.mark.django_db(transaction=True)
def test_a_delayed_message_keeps_its_sealed_segment_from_being_pruned(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    worker = Worker(topic, queue_of(topic))
    due_ms = time.time_ns() // 1_000_000 + 1_500
    late = encode_batch([Record(None, b"late")], published_at_ms=0, deliver_at_ms=due_ms)
    segment_port().append(SegmentKey(topic.incarnation, 0), [late], producer=None)
    append(topic, 0, "prompt")
    drive(request(OperationKind.SPLIT, topic))
    first = worker.claim()
    assert (values(first), first.at_end, first.drained) == ({"prompt"}, True, False)
    worker.acknowledge(1)
    assert pruning.prune_topic(incarnation=topic.incarnation) == ()
    waiting = worker.claim()
    assert (waiting.batches, waiting.drained) == ((), False)
    assert waiting.next_due_seconds is not None
    assert 0 < waiting.next_due_seconds <= 1.5
    time.sleep(waiting.next_due_seconds)
    assert values(worker.claim()) == {"late"}
    assert pruning.prune_topic(incarnation=topic.incarnation) == ()
    worker.acknowledge(0)
    assert worker.claim().drained
    assert pruning.prune_topic(incarnation=topic.incarnation) == (0,)
    # Whoever comes late finds nothing to do, and no fault of its own.
    worker.acknowledge(0)
    worker.give_back()
    with pytest.raises(SegmentNotFound):
        worker.claim()


def test_delivered_is_not_acknowledged(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscription = queue_of(topic)
    for number in range(100):
        append(topic, 0, str(number))
    drive(request(OperationKind.SPLIT, topic))
    dies, heir = Worker(topic, subscription, "dies"), Worker(topic, subscription, "heir")
    assert offsets(dies.claim()) == list(range(100))
    dies.acknowledge(*range(0, 100, 2))
    key = SegmentKey(topic.incarnation, 0)
    assert segment_port().backlog(key, subscription="q") == 50
    assert not heir.claim().batches
    dies.give_back()
    assert sorted(offsets(heir.claim())) == list(range(1, 100, 2))
    dies.acknowledge(1)
    assert segment_port().backlog(key, subscription="q") == 49


def test_one_unacknowledged_message_stops_nothing_behind_it(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    worker = Worker(topic, queue_of(topic))
    batches = [encode_batch([Record(None, b"x")], published_at_ms=0)] * 1_000
    key = SegmentKey(topic.incarnation, 0)
    for _ in range(3):
        segment_port().append(key, batches, producer=None)
    seen = 0
    while seen < 3_000:
        claimed = offsets(worker.claim(count=500))
        assert claimed
        seen += len(claimed)
        worker.acknowledge(*(offset for offset in claimed if offset % 3))
    state = segment_port().cursor(key, subscription="q")
    assert state is not None
    assert (state.position, segment_port().backlog(key, subscription="q")) == (0, 1_000)
    worker.acknowledge(*range(0, 3_000, 3))
    assert segment_port().backlog(key, subscription="q") == 0


def test_nothing_is_acknowledged_far_above_what_was_delivered(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    worker = Worker(topic, queue_of(topic))
    batches = [encode_batch([Record(None, b"x")], published_at_ms=0)] * 1_000
    for _ in range(2):
        segment_port().append(SegmentKey(topic.incarnation, 0), batches, producer=None)
    for offset in (1_999, 2_000, 9_000):
        with pytest.raises(PositionInvalid):
            worker.acknowledge(offset)
    assert segment_port().backlog(SegmentKey(topic.incarnation, 0), subscription="q") == 2_000


def test_a_seek_back_delivers_again_and_voids_earlier_acknowledgements(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscription = queue_of(topic)
    worker = Worker(topic, subscription)
    for number in range(3):
        append(topic, 0, str(number))
    drive(request(OperationKind.SPLIT, topic))
    before = worker.claim()
    worker.acknowledge(0, 1, 2, incarnation=before.incarnation)
    assert worker.claim().drained
    assert queues.reopened(topic=topic.name, subscription=subscription, segment_ids=[0]) == []
    seeking.seek(name=topic.name, subscription="q", start=AtTime(0))
    assert queues.reopened(topic=topic.name, subscription=subscription, segment_ids=[0, 1]) == [0]
    again = worker.claim()
    assert offsets(again) == [0, 1, 2]
    with pytest.raises(CursorSought):
        worker.acknowledge(0, incarnation=before.incarnation)
    worker.acknowledge(0, 1, 2, incarnation=again.incarnation)
    assert worker.claim().drained


@pytest.mark.parametrize("what", ["topic", "subscription"])
def test_a_name_that_was_made_anew_takes_no_acknowledgement_of_its_former_life(
    port: SegmentPort, what: str
) -> None:
    topic = make_topic(segments=2)
    append_everywhere(topic, "former")
    former = Worker(topic, queue_of(topic))
    claimed = [former.claim(segment_id).incarnation for segment_id in (0, 1)]
    if what == "topic":
        topics.delete_topic(name=topic.name, actor=ACTOR)
        topic = make_topic(segments=2)
        append_everywhere(topic, "later")
    else:
        subscriptions.delete_subscription(name=topic.name, subscription="q")
    worker = Worker(topic, queue_of(topic))
    for segment_id in (0, 1):
        for incarnation in claimed:
            with pytest.raises(CursorSought):
                worker.acknowledge(0, segment_id=segment_id, incarnation=incarnation)
        assert offsets(worker.claim(segment_id)) == [0]


@pytest.mark.django_db(transaction=True)
def test_what_is_given_back_wakes_the_others(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscription = queue_of(topic)
    worker = Worker(topic, subscription)
    append(topic, 0, "x")
    worker.claim()
    with noticing() as heard:
        worker.give_back(0, delay_seconds=0.0)
        queues.announce_drained(subscription=subscription, segment_id=0)
    assert heard == [announce.QueueChanged(subscription.subscription_id, 0)] * 2


@pytest.mark.django_db(transaction=True)
def test_nobody_is_woken_when_nothing_comes_back(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscription = queue_of(topic)
    worker, idle = Worker(topic, subscription), Worker(topic, subscription, "idle")
    append(topic, 0, "x")
    worker.claim()
    worker.acknowledge(0)
    with noticing() as heard:
        idle.give_back()
        worker.give_back()
        worker.give_back(0)
    assert heard == []


def test_what_is_gone_is_named(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    subscription = queue_of(topic)
    worker = Worker(topic, subscription)
    with pytest.raises(SegmentNotFound):
        worker.claim(7)
    subscriptions.delete_subscription(name=topic.name, subscription="q")
    with pytest.raises(SubscriptionNotFound):
        worker.claim()
    queue_of(topic)  # a later subscription of the name is another one
    with pytest.raises(SubscriptionNotFound):
        queues.reopened(topic=topic.name, subscription=subscription, segment_ids=[])
    topics.delete_topic(name=topic.name, actor=ACTOR)
    with pytest.raises(TopicDeleted):
        worker.claim()
    with pytest.raises(TopicDeleted):
        queues.reopened(topic=topic.name, subscription=subscription, segment_ids=[0])
    worker.give_back()


def test_a_message_that_is_never_due_waits_for_ever_and_in_nobodys_way(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    worker = Worker(topic, queue_of(topic))
    never = encode_batch([Record(None, b"never")], published_at_ms=0, deliver_at_ms=2**63 - 1)
    segment_port().append(SegmentKey(topic.incarnation, 0), [never], producer=None)
    append(topic, 0, "prompt")
    assert values(worker.claim()) == {"prompt"}
    worker.acknowledge(1)
    waiting = worker.claim()
    assert (waiting.batches, waiting.next_due_seconds is not None) == ((), True)
    assert segment_port().backlog(SegmentKey(topic.incarnation, 0), subscription="q") == 1
