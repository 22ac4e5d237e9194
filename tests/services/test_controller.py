"""The controller: who leads, who reads which segment, when children open, how segments change hands."""

import random

import pytest
from pytest_django import Settings

from scalable.domain.errors import (
    GenerationSuperseded,
    SegmentNotOwned,
    SubscriptionTypeMismatch,
)
from scalable.domain.operations import OperationKind, Outcome
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import ConsumerRegistration
from scalable.segments.registry import segment_port
from scalable.services import scaling, settling, subscriptions
from scalable.services.topics import TopicView
from tests.services.group import Group
from tests.topology import ACTOR, append, append_everywhere, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db


def split(topic: TopicView, segment_id: int) -> None:
    """Split a segment."""
    operation = scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED


# Parents before children.


@pytest.mark.parametrize("consumers", [1, 2, 5])
def test_a_lineage_opens_generation_by_generation(consumers: int) -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join(*(f"c{number}" for number in range(consumers)))
    append_everywhere(topic, "first")
    split(topic, 0)
    append_everywhere(topic, "second")
    split(topic, 1)
    assert set(group.owners()) == {0}
    group.drain(0)
    assert set(group.owners()) == {1, 2}
    group.drain(1)
    assert set(group.owners()) == {2, 3, 4}


def test_a_merged_segment_waits_for_both_parents() -> None:
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a", "b")
    append_everywhere(topic, "unread")
    drive(request(OperationKind.MERGE, topic))
    group.drain(0)
    assert set(group.owners()) == {1}
    group.leave("a")
    assert set(group.owners()) == {1}
    group.drain(1)
    assert set(group.owners()) == {2}


def test_a_subscription_made_after_splits_begins_with_the_oldest_segment() -> None:
    topic = make_topic(segments=1)
    append_everywhere(topic, "first")
    split(topic, 0)
    append_everywhere(topic, "second")
    split(topic, 1)
    group = Group(topic)
    group.join("a")
    assert set(group.owners()) == {0}


def test_a_subscription_at_latest_skips_what_is_sealed() -> None:
    topic = make_topic(segments=1)
    append_everywhere(topic, "first")
    split(topic, 0)
    append_everywhere(topic, "second")
    group = Group(topic, initial_position="latest")
    group.join("a")
    assert {owned.name.segment_id: owned.position for owned in group.view("a").segments} == {1: 1, 2: 1}


def test_empty_sealed_segments_are_passed_over_at_once() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    split(topic, 0)
    split(topic, 1)
    assert set(group.owners()) == {2, 3, 4}


def test_the_seal_sees_an_acknowledgement_that_was_in_flight() -> None:
    """The last acknowledgement commits before the seal, and looks at the layout before it too."""
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    port, generation = segment_port(), group.generation(0)
    port.acknowledge(group.key(0), subscription="s", generation=generation, position=1)
    split(topic, 0)
    assert set(group.owners()) == {1, 2}


def test_an_acknowledgement_sees_a_seal_before_it() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    split(topic, 0)
    assert set(group.owners()) == {0}
    group.acknowledge(0, 1)
    assert set(group.owners()) == {1, 2}


def test_the_sweep_heals_a_lost_evaluation() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    split(topic, 0)
    segment_port().acknowledge(group.key(0), subscription="s", generation=group.generation(0), position=1)
    assert set(group.owners()) == {0}
    assert settling.sweep() == 0
    assert set(group.owners()) == {1, 2}


def test_a_drained_parent_is_owned_by_nobody_and_not_counted() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    append(topic, 0, "only")
    operation = scaling.request_split(
        name=topic.name, segment_id=0, boundaries=[0x4000, 0x8000, 0xC000], actor=ACTOR
    )
    drive(operation)
    group.join(*"abcde")
    group.drain(0)
    owners = group.owners()
    assert set(owners) == {1, 2, 3, 4}
    assert len(set(owners.values())) == 4
    (idle,) = set("abcde") - set(owners.values())
    assert group.view(idle).segments == ()


def test_a_late_acknowledgement_of_a_drained_segment_is_accepted() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    split(topic, 0)
    generation = group.generation(0)
    group.drain(0)
    group.acknowledge(0, 1, generation=generation)


def test_the_parents_consumer_is_preferred_for_a_child() -> None:
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a", "b")
    group.release_all("a")
    assert group.owners() == {0: "a", 1: "b"}
    split(topic, 1)
    assert "b" in {group.owners()[2], group.owners()[3]}
    assert group.owners()[0] == "a"


# Changing hands.


def test_a_segment_changes_hands_when_its_owner_releases_it() -> None:
    group = Group(make_topic(segments=2))
    group.join("a")
    before = group.owned("a")
    group.join("b")
    assert group.owned("b") == {}
    (moving,) = group.releasing("a")
    assert group.owned("a") == before
    group.release("a", moving)
    assert group.owned("b") == {moving: before[moving] + 1}
    assert group.view("a").releasing == ()
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(moving, 0, generation=before[moving])


def test_an_owner_that_does_not_release_loses_the_segment_at_the_deadline(settings: Settings) -> None:
    settings.SCALABLE_HANDOVER_SECONDS = 0
    group = Group(make_topic(segments=2))
    group.join("a", "b")
    (moving,) = group.releasing("a")
    old_generation = group.owned("a")[moving]
    settling.force_releases()
    assert group.owned("b") == {moving: old_generation + 1}
    with pytest.raises(GenerationSuperseded):
        group.release("a", moving, generation=old_generation)


def test_a_hand_over_that_is_abandoned_leaves_one_owner() -> None:
    group = Group(make_topic(segments=2))
    group.join("a")
    before = group.owned("a")
    group.join("b")
    group.leave("b")
    assert (group.owned("a"), group.view("a").releasing) == (before, ())
    group.join("c")
    (moving,) = group.releasing("a")
    group.release("a", moving)
    assert sorted(group.owners()) == [0, 1]
    assert set(group.owned("a")) | set(group.owned("c")) == {0, 1}


def test_the_segments_of_a_leaver_go_to_the_others_at_once() -> None:
    group = Group(make_topic(segments=4))
    group.join("a", "b")
    group.release_all("a")
    group.leave("a")
    assert set(group.owned("b")) == {0, 1, 2, 3}
    group.leave("b")
    assert group.owners() == {}
    group.leave("b")


def test_only_the_owner_can_release() -> None:
    group = Group(make_topic(segments=2))
    group.join("a", "b")
    (moving,) = group.releasing("a")
    with pytest.raises(SegmentNotOwned):
        group.release("b", moving, generation=group.generation(moving))
    with pytest.raises(SegmentNotOwned):
        group.release("a", 7, generation=1)


def test_registering_again_moves_nothing() -> None:
    group = Group(make_topic(segments=3))
    group.join("a")
    before = group.subscription.generation
    group.join("a")
    assert group.subscription.generation == before
    assert ConsumerRegistration.objects.count() == 1


def test_two_different_assignments_never_share_a_version() -> None:
    random.seed(7)
    topic = make_topic(segments=3)
    group = Group(topic)
    seen: dict[tuple[str, int, int], object] = {}
    for _ in range(20):
        act_at_random(group)
        for consumer in "abc":
            view = group.view(consumer)
            content = (frozenset(group.owned(consumer).items()), view.releasing)
            assert seen.setdefault((consumer, view.generation, view.epoch), content) == content


def test_joins_leaves_releases_and_splits_leave_one_owner_each(settings: Settings) -> None:
    random.seed(11)
    topic = make_topic(segments=2)
    group = Group(topic)
    group.join("a")
    for step in range(24):
        settings.SCALABLE_HANDOVER_SECONDS = random.choice([0, 100])
        act_at_random(group)
        if step % 10 == 5:
            append_everywhere(topic, f"step {step}")
            split(topic, layout_of(topic).active[0].segment_id)
        for segment_id in group.owners():
            (owner,) = [name for name in "abc" if segment_id in group.owned(name)]
            group.acknowledge(segment_id, 0, generation=group.owned(owner)[segment_id])


def act_at_random(group: Group) -> None:
    """Join, leave, release, drain or sweep."""
    consumer = random.choice("abc")
    match random.randrange(5):
        case 0 | 1:
            group.join(consumer)
        case 2:
            group.leave(consumer)
        case 3:
            group.release_all(consumer)
        case 4:
            for segment_id in group.owners():
                group.drain(segment_id)
            settling.force_releases()
            settling.sweep()


# Subscriptions.


def test_a_subscription_keeps_its_type() -> None:
    topic = make_topic()
    subscriptions.create_subscription(name=topic.name, subscription="s", kind=SubscriptionType.QUEUE)
    with pytest.raises(SubscriptionTypeMismatch):
        Group(topic).join("a")


def test_a_subscription_whose_cursor_fails_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(segments=3)
    port = segment_port()
    create_cursor = port.create_cursor

    def fail_at_the_last(key, *, subscription, position):  # type: ignore[no-untyped-def]
        if key.segment_id == 2:
            raise ConnectionError("no more")
        create_cursor(key, subscription=subscription, position=position)

    monkeypatch.setattr(port, "create_cursor", fail_at_the_last)
    with pytest.raises(ConnectionError):
        subscriptions.create_subscription(name=topic.name, subscription="s", kind=SubscriptionType.STREAM)
    assert subscriptions.list_subscriptions(name=topic.name) == []


def test_a_subscription_made_again_takes_no_acknowledgement_meant_for_the_former() -> None:
    topic = make_topic(segments=1)
    group = Group(topic)
    group.join("a")
    append(topic, 0, "only")
    generation = group.generation(0)
    subscriptions.delete_subscription(name=topic.name, subscription="s")
    group.join("a")
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 1, generation=generation)
    assert group.view("a").segments[0].position == 0


def test_a_deleted_subscription_is_gone_with_its_cursors() -> None:
    group = Group(make_topic(segments=2))
    group.join("a")
    subscriptions.delete_subscription(name=group.topic.name, subscription="s")
    assert segment_port().cursors(group.key(0)) == []
    assert subscriptions.list_subscriptions(name=group.topic.name) == []
