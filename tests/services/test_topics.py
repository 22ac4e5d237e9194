"""Topics: created whole or healed, listed by the page, deleted with everything that belongs to them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.apps import apps
from django.db import connection, models
from pytest_django import DjangoAssertNumQueries, Settings

from scalable.domain.errors import (
    InvalidInitialSegments,
    NamespaceNotFound,
    PolicyInvalid,
    PolicyUnreadable,
    ScalableError,
    SegmentClaimed,
    TopicExists,
    TopicNotFound,
    UnknownField,
)
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind
from scalable.domain.policy import PolicySource
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import Fence, NewStore, SegmentKey
from scalable.segments.registry import segment_port, use_port
from scalable.services import messages, sweeping, topics, watching
from scalable.wire.batch import Record, encode_batch
from tests.topology import (
    ACTOR,
    append_everywhere,
    drive,
    layout_of,
    make_topic,
    read_all,
    request,
    store_ids,
    topic_name,
)

pytestmark = pytest.mark.django_db


class BrokenDisk(Exception):
    """What a store answers when it cannot be made."""


class FailingSegments(MemorySegments):
    """A data plane outside the metadata database that makes `allowed` stores and then fails."""

    def __init__(self, *, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed

    def create(
        self, key: SegmentKey, *, hash_range: HashRange, subscriptions: object, fence: Fence | None
    ) -> None:
        if not self.allowed:
            raise BrokenDisk
        self.allowed -= 1
        super().create(key, hash_range=hash_range, subscriptions=subscriptions, fence=fence)  # type: ignore[arg-type]


class FailingEmbedded(EmbeddedSegments):
    """The embedded data plane, failing behind the first stores of a topic."""

    def create_all(self, *, incarnation: int, stores: Sequence[NewStore]) -> None:
        super().create_all(incarnation=incarnation, stores=stores[:1])
        raise BrokenDisk


@pytest.fixture
def memory() -> Iterator[MemorySegments]:
    """A data plane outside the metadata database."""
    port = MemorySegments()
    with use_port(port):
        yield port


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_a_new_topic_tiles_the_space_and_has_its_stores(count: int) -> None:
    topic = make_topic("fresh", segments=count, owner="me")
    assert topics.get_topic(name=topic.name) == topic
    assert (topic.epoch, topic.properties, len(layout_of(topic).active)) == (0, {"owner": "me"}, count)
    assert store_ids(topic) == set(range(count))


def test_a_name_is_given_once_and_an_incarnation_never_again() -> None:
    topic = make_topic("unique")
    with pytest.raises(TopicExists):
        make_topic("unique", segments=5)
    assert topics.get_topic(name=topic.name) == topic
    topics.delete_topic(name=topic.name, actor=ACTOR)
    assert make_topic("unique").incarnation > topic.incarnation


@pytest.mark.parametrize("count", [0, -1, 65537])
def test_a_topic_cannot_begin_with_no_segment_or_too_many(count: int) -> None:
    with pytest.raises(InvalidInitialSegments):
        make_topic("odd", segments=count)
    with pytest.raises(TopicNotFound):
        topics.get_topic(name=topic_name("odd"))


def test_a_topic_needs_its_namespace() -> None:
    with pytest.raises(NamespaceNotFound):
        topics.create_topic(name=TopicName("no", "where", "topic"), actor=ACTOR)


def test_a_store_that_fails_leaves_nothing_behind() -> None:
    with use_port(FailingEmbedded()), pytest.raises(BrokenDisk):
        make_topic("half")
    with pytest.raises(TopicNotFound):
        topics.get_topic(name=topic_name("half"))
    assert make_topic("half").epoch == 0


def test_a_half_created_topic_is_healed_by_the_sweep() -> None:
    port = FailingSegments(allowed=1)
    with use_port(port):
        with pytest.raises(BrokenDisk):
            make_topic("half", segments=3)
        topic = topics.get_topic(name=topic_name("half"))
        assert store_ids(topic) == {0}
        port.allowed = 100
        orphans, healed = sweeping.sweep_stores()
        assert (orphans, store_ids(topic)) == ([], {0, 1, 2})
        assert {key.segment_id for key in healed if key.incarnation == topic.incarnation} == {1, 2}
        append_everywhere(topic, "written after healing")


def test_a_sealed_segment_is_not_made_again(memory: MemorySegments) -> None:
    topic = make_topic("sealed")
    drive(request(OperationKind.SPLIT, topic))
    memory.delete(SegmentKey(topic.incarnation, 0))
    memory.delete(SegmentKey(topic.incarnation, 2))
    assert topics.heal_topic(incarnation=topic.incarnation) == (2,)
    assert store_ids(topic) == {1, 2, 3}


def test_an_orphaned_store_is_swept_and_a_planned_one_is_not(memory: MemorySegments) -> None:
    topic = make_topic("swept")
    operation = request(OperationKind.SPLIT, topic)
    for segment_id in (*operation.plan.child_ids, 77):
        memory.create(
            SegmentKey(topic.incarnation, segment_id),
            hash_range=HashRange(0, 1),
            subscriptions=[],
            fence=None,
        )
    gone = SegmentKey(topic.incarnation + 1_000, 0)
    memory.create(gone, hash_range=HashRange(0, 1), subscriptions=[], fence=None)
    orphans, _ = sweeping.sweep_stores()
    assert orphans == [SegmentKey(topic.incarnation, 77), gone]
    assert store_ids(topic) == {0, 1, *operation.plan.child_ids}


def test_topics_are_listed_by_page_and_by_property() -> None:
    for number in range(5):
        make_topic(f"listed-{number}", parity=str(number % 2), number=str(number))
    page, total = topics.list_topics(tenant="public", namespace="default", limit=2, offset=1)
    assert ([name.name for name in page], total) == (["listed-1", "listed-2"], 5)
    odd = {"parity": "1"}
    page, total = topics.list_topics(tenant="public", namespace="default", filters=odd, limit=9)
    assert ([name.name for name in page], total) == (["listed-1", "listed-3"], 2)
    both = {"parity": "1", "number": "2"}
    assert topics.list_topics(tenant="public", namespace="default", filters=both, limit=9) == ([], 0)
    with pytest.raises(NamespaceNotFound):
        topics.list_topics(tenant="public", namespace="other", limit=9)


def test_a_list_costs_the_same_however_many_topics_there_are(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(30):
        make_topic(f"many-{number:02}")
    with django_assert_num_queries(3):
        topics.list_topics(tenant="public", namespace="default", limit=20)


def row_counts() -> dict[str, int]:
    """Count the rows of every table of the product but those that tell of what is gone, too."""
    kept = {"AuditEvent", "RetiredCount"}  # the second has a row for each counter, not for each topic
    found: list[type[models.Model]] = [
        model for model in apps.get_app_config("scalable").get_models() if model.__name__ not in kept
    ]
    return {model.__name__: model._default_manager.count() for model in found}


def test_deleting_topics_returns_every_table_to_where_it_was() -> None:
    before, stores_before = row_counts(), set(segment_port().keys(incarnation=None))
    for number in range(3):
        topic = make_topic(f"deleted-{number}")
        append_everywhere(topic, "message")
        drive(request(OperationKind.SPLIT, topic))
        topics.set_auto_scale_policy(name=topic.name, override={"enabled": False}, actor=ACTOR)
        topics.delete_topic(name=topic.name, actor=ACTOR)
        with pytest.raises(TopicNotFound):
            topics.delete_topic(name=topic.name, actor=ACTOR)
    assert row_counts() == before
    assert set(segment_port().keys(incarnation=None)) == stores_before


def test_a_topic_with_an_unfinished_operation_is_deleted_by_force_only() -> None:
    topic = make_topic("busy")
    operation = request(OperationKind.SPLIT, topic)
    with pytest.raises(SegmentClaimed) as refusal:
        topics.delete_topic(name=topic.name, actor=ACTOR)
    assert refusal.value.operation_id == operation.operation_id
    append_everywhere(topic, "still there")
    topics.delete_topic(name=topic.name, force=True, actor=ACTOR)
    assert store_ids(topic) == set()


def test_a_policy_is_stored_as_given_and_resolved_with_sources() -> None:
    topic = make_topic("ruled")
    assert topics.get_auto_scale_policy(name=topic.name) is None
    override = {"maxSegments": 8, "splitMsgRateInThreshold": 2000}
    topics.set_auto_scale_policy(name=topic.name, override=override, actor=ACTOR)
    assert topics.get_auto_scale_policy(name=topic.name) == override
    effective = topics.effective_policy(name=topic.name)
    assert (effective.policy.max_segments, effective.policy.min_segments) == (8, 1)
    assert effective.sources["maxSegments"] is PolicySource.TOPIC
    assert effective.sources["minSegments"] is PolicySource.DEFAULT
    topics.remove_auto_scale_policy(name=topic.name, actor=ACTOR)
    assert topics.get_auto_scale_policy(name=topic.name) is None


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ({"minSegments": 1_000_000}, PolicyInvalid),
        ({"splitMsgRateInThreshold": 0}, PolicyInvalid),
        ({"splitMsgRateInThreshold": float("nan")}, PolicyUnreadable),
        ({"enabled": "yes"}, PolicyUnreadable),
        ({"maximumSegments": 8}, UnknownField),
        ([], PolicyUnreadable),
    ],
)
def test_a_bad_policy_changes_nothing(override: object, error: type[ScalableError]) -> None:
    topic = make_topic("ruled")
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 8}, actor=ACTOR)
    before = topics.get_topic(name=topic.name)
    with pytest.raises(error):
        topics.set_auto_scale_policy(name=topic.name, override=override, actor=ACTOR)
    assert topics.get_topic(name=topic.name) == before


def test_a_reshape_keeps_policy_and_properties() -> None:
    topic = make_topic("kept", owner="me", cost="42")
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 8}, actor=ACTOR)
    drive(request(OperationKind.SPLIT, topic))
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 9}, actor=ACTOR)
    after = topics.get_topic(name=topic.name)
    assert (after.epoch, after.properties) == (1, {"owner": "me", "cost": "42"})
    assert after.auto_scale_policy == {"maxSegments": 9}


def test_every_change_that_a_watcher_sees_raises_the_revision() -> None:
    topic = make_topic("revised")
    revisions = [topic.revision]
    topics.set_auto_scale_policy(name=topic.name, override={"maxSegments": 8}, actor=ACTOR)
    revisions.append(topics.get_topic(name=topic.name).revision)
    operation = request(OperationKind.SPLIT, topic)
    revisions.append(topics.get_topic(name=topic.name).revision)
    drive(operation)
    revisions.append(topics.get_topic(name=topic.name).revision)
    assert revisions == sorted(set(revisions))


@pytest.mark.django_db(transaction=True)
def test_of_twenty_who_create_the_same_topic_one_does() -> None:
    def create(_: int) -> str:
        try:
            return str(make_topic("raced", segments=3).incarnation)
        except TopicExists:
            return "exists"
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(create, range(20)))
    assert sorted(outcomes)[1:] == ["exists"] * 19
    topic = topics.get_topic(name=topic_name("raced"))
    assert (store_ids(topic), read_all(topic)) == ({0, 1, 2}, [])


def test_a_half_created_topic_is_healed_by_its_first_producer() -> None:
    port = FailingSegments(allowed=1)
    with use_port(port):
        with pytest.raises(BrokenDisk):
            make_topic("half", segments=3)
        topic = topics.get_topic(name=topic_name("half"))
        port.allowed = 100
        assert messages.producer_state(name=topic.name, producer="p").last_sequence == -1
        assert store_ids(topic) == {0, 1, 2}
        port.delete(SegmentKey(topic.incarnation, 1))
        batch = encode_batch([Record(None, b"healed", 0, 0)], published_at_ms=0)
        messages.append(
            name=topic.name, incarnation=topic.incarnation, segment_id=1, batches=[batch], producer=None
        )
        assert read_all(topic) == ["healed"]


def test_topics_are_made_on_demand_where_that_is_wanted(settings: Settings) -> None:
    name = topic_name("wanted")
    with pytest.raises(TopicNotFound):
        watching.find_incarnation(name=name)
    settings.SCALABLE_AUTO_CREATE_TOPICS = settings.SCALABLE_READ_ONLY = True
    with pytest.raises(TopicNotFound):
        watching.find_incarnation(name=name)
    settings.SCALABLE_READ_ONLY = False
    incarnation = watching.find_incarnation(name=name)
    topic = topics.get_topic(name=name)
    assert (topic.incarnation, store_ids(topic)) == (incarnation, {0})
    with pytest.raises(TopicNotFound):
        watching.find_incarnation(name=TopicName("system", "load", "more"))
    with pytest.raises(NamespaceNotFound):
        watching.find_incarnation(name=TopicName("no", "where", "wanted"))


@pytest.mark.django_db(transaction=True)
def test_of_twenty_first_look_ups_all_find_one_topic(settings: Settings) -> None:
    settings.SCALABLE_AUTO_CREATE_TOPICS = True

    def look_up(_: int) -> int:
        try:
            return watching.find_incarnation(name=topic_name("raced"))
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        (incarnation,) = set(pool.map(look_up, range(20)))
    topic = topics.get_topic(name=topic_name("raced"))
    assert (topic.incarnation, topic.epoch, store_ids(topic)) == (incarnation, 0, {0})
