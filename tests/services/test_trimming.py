"""Messages that every cursor and the retention have passed go from the front of segments, active ones too."""

import time

import pytest
from django.db import connection

from scalable.domain.errors import PositionInvalid
from scalable.domain.lifetimes import Resolved, SettingSource
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port, use_port
from scalable.services import lifetimes, messages, pruning, topics
from scalable.services.sampling import SAMPLES_TOPIC
from scalable.services.topics import TopicView
from tests.services.ageing import FOR_EVER, acknowledge, keep, kept, split_topic, subscribe
from tests.services.group import Group
from tests.topology import append, make_topic

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = 3_600


def filled(*, batches: int = 10) -> TopicView:
    """A topic of one active segment with as many batches of one message."""
    topic = make_topic("trimmed", segments=1)
    for number in range(batches):
        append(topic, 0, f"message {number}")
    return topic


def start_of(topic: TopicView, segment_id: int = 0) -> int:
    """Sweep, and give the first offset that is left."""
    pruning.trim_topic(incarnation=topic.incarnation)
    return segment_port().stats(SegmentKey(topic.incarnation, segment_id)).start_offset


def test_an_active_segment_is_trimmed_up_to_its_slowest_cursor(port: SegmentPort) -> None:
    topic = filled()
    subscribe(topic, "fast")
    subscribe(topic, "slow")
    assert start_of(topic) == 0
    acknowledge(topic, 9, cursor="fast")
    assert start_of(topic) == 0
    acknowledge(topic, 4, cursor="slow")
    assert start_of(topic) == 4
    page = port.read(SegmentKey(topic.incarnation, 0), offset=0, max_bytes=10_000, max_batches=99)
    assert [batch.base_offset for batch in page.batches] == [4, 5, 6, 7, 8, 9]
    append(topic, 0, "later")
    assert port.stats(SegmentKey(topic.incarnation, 0)).end_offset == 11


def test_every_entry_bucket_and_every_floor_counts(port: SegmentPort) -> None:
    topic = filled()
    subscribe(topic, "shared", key_shared=True)
    subscribe(topic, "group", kind=SubscriptionType.CHECKPOINT)
    subscribe(topic, "loose", kind=SubscriptionType.CHECKPOINT, holds_pruning=False)
    key = SegmentKey(topic.incarnation, 0)
    buckets = [
        cursor.subscription for cursor in port.cursors(key) if cursor.subscription.startswith("shared/")
    ]
    for number, cursor in enumerate(sorted(buckets)):
        assert start_of(topic) == 0
        acknowledge(topic, 5 + number, cursor=cursor)
    assert start_of(topic) == 0
    acknowledge(topic, 3, cursor="group")
    assert start_of(topic) == 3
    acknowledge(topic, 10, cursor="group")
    assert start_of(topic) == 5


def test_what_nobody_has_subscribed_to_yet_is_kept_for_the_first_who_does(port: SegmentPort) -> None:
    topic = filled()
    assert start_of(topic) == 0
    subscribe(topic, "loose", holds_pruning=False)
    assert start_of(topic) == 0


def test_a_time_lets_go_without_any_subscription() -> None:
    topic = filled()
    keep(topic, HOUR)
    assert start_of(topic) == 0
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE segment_batch SET appended_at = appended_at - interval '2 hours' WHERE base_offset < 4"
        )
    assert start_of(topic) == 4
    subscribe(topic)
    assert start_of(topic) == 4


def test_a_time_and_a_cursor_both_hold() -> None:
    now_ms = time.time_ns() // 1_000_000
    clock_ms = [now_ms - 2 * HOUR * 1_000]
    with use_port(MemorySegments(now_ms=lambda: clock_ms[0])):
        topic = filled(batches=4)
        clock_ms[0] = now_ms
        for number in range(3):
            append(topic, 0, f"recent {number}")
        keep(topic, HOUR)
        subscribe(topic)
        acknowledge(topic, 2)
        assert start_of(topic) == 2
        acknowledge(topic, 6)
        assert start_of(topic) == 4


def test_a_sealed_segment_is_trimmed_before_it_goes(port: SegmentPort) -> None:
    topic = split_topic(messages=3)
    subscribe(topic)
    acknowledge(topic, 2)
    assert start_of(topic) == 2
    acknowledge(topic, 3)
    pruning.sweep_topic(incarnation=topic.incarnation)
    assert kept(topic) == {1, 2}


def test_readers_of_what_was_trimmed_go_on_at_the_start(port: SegmentPort) -> None:
    topic = filled()
    subscribe(topic, "fast")
    acknowledge(topic, 6, cursor="fast")
    assert start_of(topic) == 6
    page = messages.read_by_name(name=topic.name, segment_id=0, offset=2, max_bytes=10_000, max_batches=99)
    assert (page.batches[0].base_offset, page.next_offset) == (6, 10)
    group = Group(topic)
    group.join("consumer")
    (owned,) = group.view("consumer").segments
    assert owned.position == 6
    with pytest.raises(PositionInvalid):
        group.seek({0: 2})


def test_samples_of_the_load_are_kept_for_an_hour() -> None:
    samples = topics.get_topic(name=SAMPLES_TOPIC)
    effective = lifetimes.effective_lifetimes(name=SAMPLES_TOPIC)
    assert effective.retention_seconds == Resolved(HOUR, SettingSource.NAMESPACE)
    for number in range(5):
        append(samples, 0, f"sample {number}")
    assert start_of(samples) == 0
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE segment_batch SET appended_at = appended_at - interval '61 minutes' WHERE base_offset < 3"
        )
    assert samples.incarnation in pruning.sweep_due_topics()
    assert segment_port().stats(SegmentKey(samples.incarnation, 0)).start_offset == 3


def test_minus_one_keeps_all(port: SegmentPort) -> None:
    topic = filled()
    keep(topic, FOR_EVER)
    subscribe(topic)
    acknowledge(topic, 10)
    assert start_of(topic) == 0


def test_a_time_holds_what_is_acknowledged(port: SegmentPort) -> None:
    topic = filled()
    keep(topic, HOUR)
    subscribe(topic)
    acknowledge(topic, 10)
    assert start_of(topic) == 0


def test_a_large_backlog_goes_in_bounded_rounds(monkeypatch: pytest.MonkeyPatch, port: SegmentPort) -> None:
    monkeypatch.setattr(pruning, "BATCHES_PER_ROUND", 2)
    monkeypatch.setattr(pruning, "ROUNDS_PER_SWEEP", 3)
    topic = filled()
    subscribe(topic)
    acknowledge(topic, 9)
    pruning.sweep_topic(incarnation=topic.incarnation)
    assert port.stats(SegmentKey(topic.incarnation, 0)).start_offset == 6
    assert topic.incarnation in pruning.sweep_due_topics()  # the rest is due at once
    assert port.stats(SegmentKey(topic.incarnation, 0)).start_offset == 9
