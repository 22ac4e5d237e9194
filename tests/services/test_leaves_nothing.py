"""Deletion leaves nothing behind: the rows of every table of every database are counted."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from scalable import announce
from scalable.domain.access import Scope
from scalable.domain.errors import (
    NamespaceDeleting,
    NamespaceFixed,
    NamespaceNotEmpty,
    NamespaceNotFound,
    ScalableError,
    TopicNotFound,
)
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Namespace, Topic
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port, use_port
from scalable.services import (
    autoscaling,
    controller,
    grants,
    loads,
    messages,
    namespaces,
    pruning,
    scaling,
    subscriptions,
    sweeping,
    topics,
)
from scalable.services.topics import TopicView
from scalable.store import retention
from scalable.wire.batch import Record, encode_batch
from tests.services.ageing import acknowledge, subscribe
from tests.services.group import Group, leader_of, new_node
from tests.topology import ACTOR, append_everywhere, drive, layout_of

pytestmark = pytest.mark.django_db(transaction=True)

WITHOUT_MIGRATIONS = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
KEPT = {"scalable_auditevent", "scalable_topicchange", "scalable_retiredcount"}
"""What tells of what is gone: the audit, what it counted, and for an hour what watchers may have missed."""


@pytest.fixture(params=["embedded", "second database", "memory"])
def plane(request: pytest.FixtureRequest) -> Iterator[SegmentPort]:
    """Each data plane there is."""
    chosen: dict[str, Callable[[], SegmentPort]] = {
        "embedded": EmbeddedSegments,
        "second database": lambda: request.getfixturevalue("external_port"),
        "memory": MemorySegments,
    }
    with use_port(chosen[request.param]()) as port:
        yield port


def counts() -> dict[tuple[str, str], int]:
    """Count the rows of every table of every database, and the stores."""
    found: dict[tuple[str, str], int] = {}
    for alias in connections.settings:
        with connections[alias].cursor() as cursor:
            cursor.execute(WITHOUT_MIGRATIONS)
            for (table,) in cursor.fetchall():
                if table in KEPT:
                    continue
                cursor.execute(f"SELECT count(*) FROM {table}")
                found[alias, table] = cursor.fetchone()[0]
    found["port", "stores"] = len(segment_port().keys(incarnation=None))
    return found


def make(name: str, namespace: str = "default") -> TopicView:
    return topics.create_topic(
        name=TopicName("public", namespace, name), initial_segments=2, properties={"owner": "me"}, actor=ACTOR
    )


def live_a_life(topic: TopicView, node_id: Any) -> None:
    """Let a topic have rows in every table that can have rows of a topic."""
    leader = leader_of(topic, node_id)
    name = topic.name
    grants.grant(
        scope=Scope(name.tenant, name.namespace, name.name), role="r", actions=["produce"], actor=ACTOR
    )
    for kind in SubscriptionType:
        subscribe(topic, kind.value, kind=kind)
    subscribe(topic, "shared", key_shared=True)
    for subscription in (SubscriptionType.STREAM.value, "shared"):
        found = subscriptions.find_subscription(
            name=topic.name, subscription=subscription, kind=SubscriptionType.STREAM
        )
        controller.register_consumer(
            leader=leader, subscription_id=found.subscription_id, consumer="consumer"
        )
    append_everywhere(topic, "message")
    produce(topic, segment_id=1)
    consume_as_queue(topic, segment_id=1)
    reshape(topic)
    report(topic)
    autoscaling.evaluate_topic(incarnation=topic.incarnation)
    scaling.request_split(name=topic.name, segment_id=layout_of(topic).active[-1].segment_id, actor=ACTOR)


def produce(topic: TopicView, *, segment_id: int, producer: str = "producer") -> None:
    """Store a batch with marks of its producer."""
    batch = encode_batch([Record(None, b"value", n, 0) for n in range(3)], published_at_ms=0)
    messages.append(
        name=topic.name,
        incarnation=topic.incarnation,
        segment_id=segment_id,
        batches=[batch],
        producer=producer,
    )


def consume_as_queue(topic: TopicView, *, segment_id: int) -> None:
    """Leave claims and holes of a queue."""
    key, queue = SegmentKey(topic.incarnation, segment_id), SubscriptionType.QUEUE.value
    segment_port().claim(
        key,
        subscription=queue,
        consumer="c",
        session="x",
        max_messages=1,
        max_bytes=10**6,
        lease_seconds=60,
    )
    segment_port().acknowledge_ranges(key, subscription=queue, generation=None, ranges=[(2, 3)])


def reshape(topic: TopicView) -> None:
    """Split, merge, rebucket, and prune what nobody needs."""
    drive(scaling.request_split(name=topic.name, segment_id=0, actor=ACTOR))
    drive(scaling.request_merge(name=topic.name, segment_ids=[2, 3], actor=ACTOR))
    drive(scaling.request_rebucket(name=topic.name, segment_id=1, bucket_count=8, actor=ACTOR))
    for state in segment_port().cursors(SegmentKey(topic.incarnation, 0)):
        acknowledge(topic, 1, cursor=state.subscription)
    assert 0 in pruning.prune_topic(incarnation=topic.incarnation)


def report(topic: TopicView) -> None:
    """Report loads and tiles of the topic."""
    (first, *_) = layout_of(topic).active
    about = {"topic": str(topic.name), "incarnation": topic.incarnation, "segmentId": first.segment_id}
    rates = {"msgRateIn": 1.0, "bytesRateIn": 1.0, "msgRateOut": 1.0, "bytesRateOut": 1.0}
    now_ms = topic.created_at_ms
    assert loads.report_loads(reporter="r", watermark_ms=now_ms, loads=[{**about, **rates}]).written
    minute = {"minuteMs": now_ms // 60_000 * 60_000, "mean": [1.0] * 32, "max": [1.0] * 32}
    assert loads.report_tiles(tiles=[{**about, **minute}]).written


def test_a_topic_leaves_no_row_in_no_table(plane: SegmentPort) -> None:
    node_id = new_node()
    loads.report_loads(reporter="r", watermark_ms=1, loads=[])
    before = counts()
    topic = make("short-lived")
    live_a_life(topic, node_id)
    grown = {table for table, count in counts().items() if count > before.get(table, 0)}
    of_topics = {name for _, name in grown if name.startswith("scalable_")}
    assert of_topics >= {
        f"scalable_{name}"
        for name in (
            *("topic", "segment", "prunedsegment", "subscription", "consumerregistration", "assignment"),
            *("controllerlease", "operation", "operationclaim", "segmentload", "loadtile", "decision"),
        )
    }
    topics.delete_topic(name=topic.name, force=True, actor=ACTOR)
    assert counts() == before


def test_every_table_of_a_topic_is_filled_by_the_life_that_is_deleted() -> None:
    """A table that is added to the metadata is added to the life above as well, or to these few."""
    of_others = {"scalable_node", "scalable_namespace", "scalable_loadwatermark", "scalable_tenant"}
    of_nobody = {"scalable_servicetoken", "scalable_idempotentrequest", "scalable_sparkjob"}
    of_nobody.add("scalable_cursormove")  # goes with its subscription: tests/services/test_torn_moves.py
    before = {table for (_, table), count in counts().items() if table.startswith("scalable_") and count}
    live_a_life(make("full"), new_node())
    filled = {table for (_, table), count in counts().items() if table.startswith("scalable_") and count}
    every = {table for _, table in counts() if table.startswith("scalable_")}
    assert every - filled == of_nobody
    assert of_others <= filled | before


def live_on(topic: TopicView, group: Group, *, generations: int) -> None:
    """Write, split, read, merge and prune, again and again."""
    for number in range(generations):
        (only,) = layout_of(topic).active
        produce(topic, segment_id=only.segment_id, producer=f"producer {number % 5}")
        drive(scaling.request_split(name=topic.name, segment_id=only.segment_id, actor=ACTOR))
        group.drain(only.segment_id)
        halves = [each.segment_id for each in layout_of(topic).active]
        drive(scaling.request_merge(name=topic.name, segment_ids=halves, actor=ACTOR))
        pruning.sweep_topic(incarnation=topic.incarnation)


def test_what_belongs_to_segments_goes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a topic is split and merged, it has as many rows as after the first few times."""
    monkeypatch.setattr(retention, "KEPT_HISTORY", 10)
    monkeypatch.setattr(retention, "KEPT_OPERATIONS", 12)
    node_id, before = new_node(), counts()
    topic = topics.create_topic(
        name=TopicName("public", "default", "restless"), initial_segments=1, actor=ACTOR
    )
    group = Group(topic, node_id=node_id)
    group.join("a")
    live_on(topic, group, generations=10)
    after_ten = counts()
    live_on(topic, group, generations=10)
    assert counts() == after_ten
    topics.delete_topic(name=topic.name, actor=ACTOR)
    assert counts() == before


# Namespaces


def create(namespace: str = "doomed", *, count: int = 3) -> None:
    namespaces.create_namespace(tenant="public", namespace=namespace, actor=ACTOR)
    for number in range(count):
        make(f"topic-{number}", namespace)


def delete(namespace: str = "doomed", *, force: bool = False) -> bool:
    return namespaces.delete_namespace(tenant="public", namespace=namespace, force=force, actor=ACTOR)


def test_a_namespace_with_topics_goes_by_force_only(plane: SegmentPort) -> None:
    before = counts()
    create(count=3)
    with pytest.raises(NamespaceNotEmpty) as refusal:
        delete()
    assert refusal.value.topics == 3
    make("another", "doomed")
    assert delete(force=True)
    assert counts() == before
    with pytest.raises(NamespaceNotFound):
        delete(force=True)


def test_an_empty_namespace_goes_and_can_be_made_again() -> None:
    create(count=0)
    assert delete()
    create(count=1)
    assert topics.list_topics(tenant="public", namespace="doomed", limit=9)[1] == 1


def test_the_namespaces_of_the_system_stay() -> None:
    with pytest.raises(NamespaceFixed):
        namespaces.delete_namespace(tenant="system", namespace="load", force=True, actor=ACTOR)


def test_a_deletion_that_a_process_died_over_is_finished_by_another(
    monkeypatch: pytest.MonkeyPatch, plane: SegmentPort
) -> None:
    before = counts()
    create(count=6)
    monkeypatch.setattr(namespaces, "TOPICS_PER_PAGE", 1)
    monkeypatch.setattr(namespaces, "TOPICS_PER_CALL", 2)
    assert not delete(force=True)
    assert Topic.objects.filter(namespace__name="doomed").count() == 4
    with pytest.raises(NamespaceDeleting):
        make("late", "doomed")
    with pytest.raises(NamespaceDeleting):
        namespaces.create_namespace(tenant="public", namespace="doomed", actor=ACTOR)
    assert namespaces.finish_deletions() == []
    assert not delete()  # begun with force, so it needs none
    assert namespaces.finish_deletions() == ["public/doomed"]
    assert counts() == before


def test_a_deletion_takes_no_longer_than_whoever_asked_waits(
    monkeypatch: pytest.MonkeyPatch, plane: SegmentPort
) -> None:
    before = counts()
    create(count=3)
    with monkeypatch.context() as hurried:
        hurried.setattr(namespaces, "SECONDS_PER_CALL", 0.0)
        assert not delete(force=True)
        assert Topic.objects.filter(namespace__name="doomed").count() == 2
    assert namespaces.finish_deletions() == ["public/doomed"]
    assert counts() == before


def test_a_deletion_leaves_the_topics_of_a_namespace_that_was_made_anew_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create(count=3)
    first = topics.delete_topic

    def overtaken(**topic: Any) -> None:
        monkeypatch.setattr(namespaces, "delete_topic", first)
        assert delete(force=True)
        create(count=3)
        first(**topic)

    monkeypatch.setattr(namespaces, "delete_topic", overtaken)
    assert delete(force=True)
    assert topics.list_topics(tenant="public", namespace="doomed", limit=9)[1] == 3


def test_the_database_refuses_a_topic_of_a_namespace_that_goes() -> None:
    create(count=1)
    Namespace.objects.filter(name="doomed").update(deleting=True)
    row = Topic.objects.get(namespace__name="doomed")
    with pytest.raises(IntegrityError, match="takes no topics"), transaction.atomic():
        Topic.objects.create(
            namespace_id=row.namespace_id,
            name="late",
            epoch=0,
            next_segment_id=1,
            created_at=row.created_at,
        )


@pytest.mark.slow
def test_two_hundred_topics_go_while_some_are_written_to_and_made() -> None:
    before = counts()
    create(count=200)
    written = topics.get_topic(name=TopicName("public", "doomed", "topic-199"))

    wrote, came = threading.Event(), threading.Event()

    def in_thread(act: Callable[[], object]) -> object:
        try:
            return act()
        finally:
            connections.close_all()

    def write() -> int:
        accepted = 0
        while True:
            try:
                append_everywhere(written, str(accepted))
            except (ScalableError, TopicNotFound):
                return accepted
            accepted += 1
            wrote.set()

    def come() -> int:
        made = 0
        while True:
            try:
                make(f"new-{made}", "doomed")
            except (NamespaceDeleting, NamespaceNotFound):
                return made
            made += 1
            came.set()

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(in_thread, act) for act in (write, come)]
        assert wrote.wait(60)
        assert came.wait(60)
        for other in [pool.submit(in_thread, lambda: delete(force=True)) for _ in range(2)]:
            assert other.result() in {True, False}
        done = [other.result() for other in others]
    assert all(isinstance(count, int) and count > 0 for count in done)
    while namespaces.finish_deletions():
        pass
    sweeping.sweep_stores()
    assert counts() == before


def test_a_deletion_is_announced() -> None:
    heard: list[announce.Notice] = []
    announce.listen(heard.append)
    try:
        create(count=1)
        topic = topics.get_topic(name=TopicName("public", "doomed", "topic-0"))
        delete(force=True)
    finally:
        announce.silence(heard.append)
    assert announce.TopicDeleted(topic.incarnation, str(topic.name)) in heard
    assert heard[-1] == announce.NamespaceChanged("public", "doomed")
