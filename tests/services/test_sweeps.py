"""When topics are swept: the more rarely, the longer there was nothing to do, and each at little cost."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from scalable.models import Topic
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.services import pruning, topics
from scalable.store import retention
from scalable.store.clock import database_now, milliseconds, moment
from tests.services.ageing import acknowledge, keep, split, subscribe
from tests.topology import append, append_everywhere, make_topic

pytestmark = pytest.mark.django_db(transaction=True)


def pauses(topic: topics.TopicView, times: int) -> list[int]:
    """Sweep a topic so many times, each when it is due, and give the pauses after them in whole seconds."""
    found = []
    for _ in range(times):
        retention.sweep_soon(topic.incarnation)
        swept_ms = milliseconds(database_now())
        assert topic.incarnation in pruning.sweep_due_topics()
        next_sweep_at = Topic.objects.values_list("next_sweep_at", flat=True).get(pk=topic.incarnation)
        assert next_sweep_at is not None
        found.append((milliseconds(next_sweep_at) - swept_ms) // 1000)
    return found


def doubling(pauses_seconds: list[int], first: int) -> bool:
    """Tell whether each pause is twice the one before, but for the moments that the sweeps took."""
    expected = [first * 2**power for power in range(len(pauses_seconds))]
    return all(0 <= pause - due <= 5 for pause, due in zip(pauses_seconds, expected, strict=True))


def test_a_quiet_topic_is_swept_more_and_more_rarely_until_something_goes(
    settings: Settings, port: SegmentPort
) -> None:
    settings.SCALABLE_RETENTION_SWEEP_SECONDS = 30
    topic = make_topic("quiet", segments=1)
    subscribe(topic)
    append(topic, 0, "first")
    assert doubling(pauses(topic, 4), 60)
    assert pauses(topic, 2) == pytest.approx([480, 480], abs=6)  # never more than 16 intervals
    acknowledge(topic, 1)
    assert pauses(topic, 1)[0] in range(30, 36)  # messages went, so that more may go
    assert doubling(pauses(topic, 2), 60)


def test_a_topic_with_sealed_segments_is_never_quiet_and_swept_at_once_when_one_is_sealed(
    settings: Settings, port: SegmentPort
) -> None:
    settings.SCALABLE_RETENTION_SWEEP_SECONDS = 30
    topic = make_topic("sealed", segments=1)
    append(topic, 0, "first")
    subscribe(topic)
    pauses(topic, 3)
    assert topic.incarnation not in pruning.sweep_due_topics()
    split(topic, 0)
    assert topic.incarnation in pruning.sweep_due_topics()
    assert all(pause in range(30, 36) for pause in pauses(topic, 3))


def test_messages_that_go_by_age_wait_little_longer_than_that(settings: Settings, port: SegmentPort) -> None:
    settings.SCALABLE_RETENTION_SWEEP_SECONDS = 30
    topic = make_topic("aged", segments=1)
    subscribe(topic)
    keep(topic, 900)
    assert max(pauses(topic, 5)) in range(90, 96)


def test_an_idle_topic_costs_a_sweep_the_same_few_statements(port: SegmentPort) -> None:
    topic = make_topic("idle", segments=8)
    subscribe(topic)
    append_everywhere(topic, "first")
    for segment_id in range(8):
        acknowledge(topic, 1, segment_id=segment_id)
    pruning.sweep_topic(incarnation=topic.incarnation)
    assert all(segment_port().stats(SegmentKey(topic.incarnation, key)).start_offset for key in range(8))
    with CaptureQueriesContext(connection) as asked:
        pruning.sweep_topic(incarnation=topic.incarnation)
    assert len(asked) <= 8, [query["sql"][:80] for query in asked.captured_queries]
    assert not any("FOR NO KEY UPDATE" in query["sql"] for query in asked.captured_queries)


def test_a_tick_goes_on_with_what_is_due_for_its_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "TOPICS_AT_ONCE", 2)
    settings.SCALABLE_RETENTION_SWEEP_SECONDS = 30
    made = {make_topic(f"many-{number}", segments=1).incarnation for number in range(5)}
    Topic.objects.exclude(pk__in=made).update(
        next_sweep_at=moment(32_503_680_000_000)
    )  # not in this millennium
    assert len(pruning.sweep_due_topics()) == 2
    assert len(pruning.sweep_due_topics(seconds=60)) == 3
    assert pruning.sweep_due_topics(seconds=60) == []
