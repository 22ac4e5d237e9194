"""What consumers own after seeks, where keys are shared, and as statistics show it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction

from scalable.domain.errors import GenerationSuperseded, KeySharingMismatch, SegmentNotOwned
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.models import Topic
from scalable.segments.registry import segment_port
from scalable.services import assignment, controller, settling, subscriptions
from scalable.services.assignment import AssignmentView, Release
from scalable.services.membership import membership
from scalable.services.topics import TopicView
from scalable.store import subscriptions as store
from tests.services.group import Group
from tests.topology import append, append_everywhere, drive, make_topic, request

pytestmark = pytest.mark.django_db

FOUR_BUCKETS = [(0x0000, 0x3FFF), (0x4000, 0x7FFF), (0x8000, 0xBFFF), (0xC000, 0xFFFF)]


def split(topic: TopicView) -> None:
    """Split segment 0 into 1 and 2, or into the next two."""
    drive(request(OperationKind.SPLIT, topic))


# Crowds.


def test_those_who_register_together_are_settled_once() -> None:
    group = Group(make_topic(segments=8))
    before = group.subscription.generation
    names = [f"c{number}" for number in range(8)]
    controller.register_consumers(leader=group.leader, subscription_id=group.subscription_id, consumers=names)
    assert sorted(group.owners().values()) == names
    assert group.subscription.generation == before + 1
    controller.register_consumers(leader=group.leader, subscription_id=group.subscription_id, consumers=names)
    assert group.subscription.generation == before + 1


def test_those_who_leave_together_are_settled_once() -> None:
    group = Group(make_topic(segments=4))
    group.join("a", "b")
    controller.remove_consumers(
        leader=group.leader, subscription_id=group.subscription_id, consumers=["a", "c"]
    )
    assert store.consumers(group.subscription_id) == ["b"]
    assert set(group.owners().values()) == {"b"}


def test_of_releases_that_come_together_each_is_judged_for_itself() -> None:
    group = Group(make_topic(segments=4))
    group.join("a")
    group.join("b")
    first, second = group.releasing("a")
    version = group.subscription.generation
    held = {segment_id: group.generation(segment_id) for segment_id in (first, second)}
    refusals = assignment.release_segments(
        leader=group.leader,
        subscription_id=group.subscription_id,
        releases=[
            Release("a", first, held[first]),
            Release("a", first, held[first]),
            Release("b", second, held[second]),
            Release("a", 99, 1),
            Release("a", second, held[second] - 1),
            Release("a", second, held[second]),
        ],
    )
    assert [type(refusal) for refusal in refusals] == [
        type(None),
        GenerationSuperseded,
        SegmentNotOwned,
        SegmentNotOwned,
        GenerationSuperseded,
        type(None),
    ]
    assert {first, second} == set(group.owned("b"))
    assert group.subscription.generation == version + 1
    assert {key: group.generation(key) for key in held} == {key: value + 1 for key, value in held.items()}


@pytest.mark.django_db(transaction=True)
def test_who_is_told_waits_for_nobody_who_changes() -> None:
    group = Group(make_topic(segments=2))
    group.join("a")

    def view() -> AssignmentView:
        try:
            return group.view("a")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as elsewhere, transaction.atomic():
        store.lock(group.subscription_id)
        controller.require(group.leader)
        group.join("b")
        seen = elsewhere.submit(view).result(timeout=60)
    assert (len(seen.segments), seen.releasing) == (2, ())
    assert group.view("a").generation == seen.generation + 1


# Seeks.


def test_a_seek_back_withdraws_what_came_after() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "b")
    append_everywhere(topic, "first")
    split(topic)
    append_everywhere(topic, "second")
    group.drain(0)
    before = {segment_id: group.generation(segment_id) for segment_id in group.owners()}
    assert set(before) == {1, 2}
    group.seek({0: 0})
    assert set(group.owners()) == {0}
    for segment_id, generation in before.items():
        with pytest.raises(GenerationSuperseded):
            group.acknowledge(segment_id, 1, generation=generation)
    group.drain(0)
    assert set(group.owners()) == {1, 2}
    assert all(group.generation(segment_id) > before[segment_id] for segment_id in before)


def test_a_seek_leaves_the_owner_and_refuses_what_was_delivered_before() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    before = group.generation(0)
    group.acknowledge(0, 1)
    version = group.subscription.generation
    group.seek({0: 0})
    (owned,) = group.view("a").segments
    assert (owned.position, owned.generation, group.owners()) == (0, before + 1, {0: "a"})
    assert group.subscription.generation > version
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 1, generation=before)
    with pytest.raises(GenerationSuperseded):
        group.release("a", 0, generation=before)


def test_a_seek_to_the_end_of_a_sealed_segment_opens_its_children() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "skipped")
    split(topic)
    group.seek({0: 1})
    assert group.owners() == {1: "a", 2: "a"}


def test_a_seek_without_consumers_still_refuses_late_acknowledgements() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    generation = group.generation(0)
    group.leave("a")
    group.seek({0: 0})
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 1, generation=generation)


def test_a_seek_during_a_hand_over_keeps_it_going() -> None:
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a", "b")
    (moving,) = group.releasing("a")
    group.seek({0: 0, 1: 0})
    assert group.releasing("a") == [moving]
    group.release("a", moving)
    assert set(group.owned("b")) == {moving}


# Keys shared.


def test_vector_77_entry_buckets_are_shared_by_as_many_consumers_as_there_are() -> None:
    group = Group(make_topic(segments=1), key_shared=True)
    group.join("c1")
    alone = group.view("c1")
    assert {owned.bucket for owned in alone.segments} == {0, 1, 2, 3}
    assert alone.shared == {}
    group.join("c2")
    group.release_all("c1")
    for name in ("c1", "c2"):
        view = group.view(name)
        assert len(view.segments) == 2
        assert [(one.start, one.end) for one in view.shared[0]] == FOUR_BUCKETS
    group.join("c3", "c4", "c5")
    group.release_all("c1")
    group.release_all("c2")
    assert sorted(len(group.view(f"c{number}").segments) for number in range(1, 6)) == [0, 1, 1, 1, 1]


def test_a_bucket_moves_only_when_its_own_messages_are_acknowledged() -> None:
    group = Group(make_topic(segments=1), key_shared=True)
    group.join("a")
    before = group.units("a")
    group.join("b")
    first, second = group.view("a").releasing
    group.release("a", first.segment_id, bucket=first.bucket)
    assert group.units("b") == {first: before[first] + 1}
    assert group.view("a").releasing == (second,)
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 0, bucket=first.bucket, generation=before[first])
    group.acknowledge(0, 0, bucket=second.bucket, generation=before[second])
    with pytest.raises(SegmentNotOwned):
        group.release("b", 0, bucket=second.bucket)


def test_a_shared_segment_is_drained_when_all_its_buckets_are() -> None:
    topic = make_topic(segments=1)
    group = Group(topic, key_shared=True)
    group.join("a", "b")
    group.release_all("a")
    append(topic, 0, "only")
    split(topic)
    for bucket in range(4):
        assert set(group.owners()) == {0}
        group.drain(0, bucket=bucket)
    assert Counter(group.bucket_owners().values()) == {"a": 2, "b": 2}
    assert set(group.owners()) == {1, 2}


def test_a_childs_bucket_goes_to_who_read_it_in_the_parent() -> None:
    topic = make_topic(segments=1)
    group = Group(topic, key_shared=True)
    group.join("a", "b")
    group.release_all("a")
    owners = group.bucket_owners()
    drive(request(OperationKind.REBUCKET, topic))
    after = group.bucket_owners()
    assert {key.segment_id for key in after} == {1}
    kept = sum(after[key] == owners[BucketKey(0, key.bucket // 2)] for key in after)
    assert kept == len(after) == 8


def test_a_seek_of_a_shared_segment_touches_all_its_buckets() -> None:
    topic = make_topic(segments=1)
    group = Group(topic, key_shared=True)
    group.join("a", "b")
    group.release_all("a")
    append(topic, 0, "only")
    before = {**group.units("a"), **group.units("b")}
    group.seek({0: 0})
    assert {**group.units("a"), **group.units("b")} == {key: old + 1 for key, old in before.items()}


@pytest.mark.parametrize("key_shared", [True, False])
def test_whether_keys_are_shared_is_decided_once(key_shared: bool) -> None:
    topic = make_topic(segments=1)
    Group(topic, key_shared=key_shared).join("a")
    with pytest.raises(KeySharingMismatch) as caught:
        controller.find_or_create(name=topic.name, subscription="s", key_shared=not key_shared)
    assert caught.value.key_shared is key_shared


# Statistics.


def test_statistics_tell_who_owns_what_and_what_waits_for_what() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "b")
    append(topic, 0, "unread")
    split(topic)
    seen = membership(subscription_id=group.subscription_id)
    assert [consumer.name for consumer in seen.consumers] == ["a", "b"]
    assert [(unit.key, unit.owner) for unit in seen.units] == [(BucketKey(0), "a")]
    assert seen.waits == {1: (0,), 2: (0,)}
    assert (seen.is_standby("a"), seen.is_standby("b")) == (False, True)
    assert (seen.term, seen.leader_url) == (group.leader.term, "http://node")
    group.drain(0)
    assert membership(subscription_id=group.subscription_id).waits == {}


def test_who_is_to_get_a_segment_does_not_stand_by() -> None:
    group = Group(make_topic(segments=2))
    for consumer in "abc":
        group.join(consumer)
    surplus = group.view("c")
    assert [group.view(consumer).standby for consumer in "abc"] == [False, False, True]
    group.leave("b")
    chosen = group.view("c")
    assert (chosen.segments, chosen.standby) == ((), False)
    assert chosen.told != surplus.told
    assert chosen.generation > surplus.generation, "or the consumer would ignore what it is told"


def test_statistics_of_a_queue_show_nothing_that_waits() -> None:
    topic = make_topic(segments=1)
    append(topic, 0, "unread")
    queue = controller.find_or_create(name=topic.name, subscription="q", kind=SubscriptionType.QUEUE)
    split(topic)
    assert membership(subscription_id=queue.subscription_id).waits == {}


def test_statistics_name_no_leader_while_none_lives() -> None:
    group = Group(make_topic(segments=2))
    group.join("a", "b")
    controller.remove_node(node_id=group.leader.node_id)
    seen = membership(subscription_id=group.subscription_id)
    assert seen.leader_url is None
    (moving,) = [unit for unit in seen.units if unit.next_owner]
    assert (moving.owner, moving.next_owner, seen.is_standby("b")) == ("a", "b", False)
    assert moving.release_deadline_ms is not None


# Without a leader.


def test_consumers_go_on_acknowledging_and_segments_open_while_nobody_leads() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a", "b")
    append(topic, 0, "only")
    controller.remove_node(node_id=group.leader.node_id)
    split(topic)
    right = subscriptions.reading_right(
        subscription=group.subscription, consumer="a", segment_id=0, generation=group.generation(0)
    )
    assert right.position == 0
    group.drain(0)
    assert sorted(group.owners()) == [1, 2]
    Topic.objects.get(pk=topic.incarnation).lease.delete()
    append_everywhere(topic, "more")
    group.drain(1)
    assert segment_port().cursor(group.key(1), subscription="s").position == 1  # type: ignore[union-attr]


def test_a_failover_leaves_the_generations_of_segments_as_they_are() -> None:
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a")
    before = group.owned("a")
    controller.remove_node(node_id=group.leader.node_id)
    after = Group(topic)
    after.join("a")
    assert (after.leader.term, after.owned("a")) == (group.leader.term + 1, before)
    settling.settle_subscription(subscription_id=after.subscription_id)
    assert after.owned("a") == before
