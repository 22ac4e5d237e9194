"""CHECKPOINT groups: ends open children, commits move forward only, restores withdraw what came after."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scalable.domain.checkpoint import Checkpoint, Skipped
from scalable.domain.errors import (
    CheckpointSuperseded,
    GenerationSuperseded,
    InvalidParameter,
    PositionInvalid,
    SegmentNotOwned,
    TermSuperseded,
)
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.registry import segment_port
from scalable.services import (
    checkpoints,
    controller,
    membership,
    pruning,
    subscription_stats,
    subscriptions,
)
from scalable.services.topics import TopicView, delete_topic
from scalable.store import checkpoints as checkpoint_rows
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView
from tests.services.group import Group, leader_of
from tests.topology import append, drive, make_topic, request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("port")]


class CheckpointGroup(Group):
    """The CHECKPOINT group `s` of a topic of one segment, which was split after three messages."""

    @property
    def subscription(self) -> SubscriptionView:
        return controller.find_or_create(
            name=self.topic.name, subscription="s", kind=SubscriptionType.CHECKPOINT
        )

    def end(self, consumer: str, segment_id: int, position: int, generation: int | None = None) -> None:
        checkpoints.report_end(
            leader=self.leader,
            subscription_id=self.subscription_id,
            consumer=consumer,
            segment_id=segment_id,
            generation=self.generation(segment_id) if generation is None else generation,
            position=position,
        )

    def commit(self, **positions: int) -> checkpoints.Held:
        return checkpoints.commit(
            leader=self.leader, subscription_id=self.subscription_id, checkpoint=self.at(**positions)
        )

    def restore(self, **positions: int) -> checkpoints.Held:
        return checkpoints.restore(
            leader=self.leader, subscription_id=self.subscription_id, checkpoint=self.at(**positions)
        )

    def at(self, **positions: int) -> Checkpoint:
        return Checkpoint(self.topic.incarnation, {int(key[1:]): value for key, value in positions.items()})

    def floor(self, segment_id: int) -> int:
        state = segment_port().cursor(self.key(segment_id), subscription="s")
        return -1 if state is None else state.position


def split_group() -> CheckpointGroup:
    topic: TopicView = make_topic(segments=1)
    group = CheckpointGroup(topic)
    group.join("a")
    for number in range(3):
        append(topic, 0, str(number))
    drive(request(OperationKind.SPLIT, topic))
    return group


def test_a_reported_end_opens_the_children_and_may_be_reported_again() -> None:
    group = split_group()
    assert group.owners() == {0: "a"}
    generation = group.generation(0)
    with pytest.raises(PositionInvalid):
        group.end("a", 0, 2)
    group.end("a", 0, 3)
    group.end("a", 0, 3, generation)
    assert group.owners() == {1: "a", 2: "a"}
    assert group.floor(0) == 0, "an end lets nothing go"


def test_stats_say_what_waits_for_a_reported_end_and_not_for_a_commit() -> None:
    group = split_group()
    for segment_id in (1, 2):
        append(group.topic, segment_id, "4")

    def waiting() -> set[int]:
        found = subscription_stats.subscription_stats(name=group.topic.name, subscription="s")
        return set(found.backlog.waits)

    group.commit(s0=3)
    assert waiting() == {1, 2} == set(membership.membership(subscription_id=group.subscription_id).waits)
    group.restore(s0=0)
    group.end("a", 0, 3)
    assert waiting() == set()


def test_only_the_owner_reports_an_end() -> None:
    group = split_group()
    with pytest.raises(SegmentNotOwned):
        group.end("b", 0, 3)
    with pytest.raises(GenerationSuperseded):
        group.end("a", 0, 3, group.generation(0) - 1)


def test_a_commit_moves_floors_forward_only() -> None:
    group = split_group()
    assert group.commit(s0=2).checkpoint.positions[0] == 2
    assert group.commit(s0=1).checkpoint.positions[0] == 2
    assert group.floor(0) == 2
    with pytest.raises(InvalidParameter):
        group.commit(s0=4)
    assert group.floor(0) == 2


def test_a_restore_goes_back_and_withdraws_the_children() -> None:
    group = split_group()
    group.end("a", 0, 3)
    before = group.generation(1)
    group.restore(s0=1)
    assert group.owners() == {0: "a"}
    assert group.generation(1) > before
    assert [owned.position for owned in group.view("a").segments] == [1]
    group.restore(s1=0)
    assert group.owners() == {1: "a", 2: "a"}, "a child with an entry tells that its parent was read"


def test_a_checkpoint_of_another_topic_changes_nothing() -> None:
    group, other = split_group(), make_topic("other", segments=1)
    with pytest.raises(InvalidParameter):
        checkpoints.restore(
            leader=group.leader,
            subscription_id=group.subscription_id,
            checkpoint=Checkpoint(other.incarnation, {0: 1}),
        )
    assert group.owners() == {0: "a"}


def test_the_next_owner_goes_on_where_the_last_one_stopped() -> None:
    group = split_group()
    group.release("a", 0, position=2)
    group.leave("a")
    group.join("b")
    assert [owned.position for owned in group.view("b").segments] == [2]


def test_the_first_member_s_checkpoint_restores_the_group_and_a_later_one_s_does_not() -> None:
    group = split_group()
    group.end("a", 0, 3)
    group.leave("a")
    for consumer, position, held in (("b", 1, True), ("c", 0, False)):
        _, restored = checkpoints.join(
            leader=group.leader, subscription="s", consumer=consumer, checkpoint=group.at(s0=position)
        )
        assert (restored is not None) is held
    assert group.owners() == {0: "b"}
    assert [owned.position for owned in group.view("b").segments] == [1]


def test_a_member_that_crashed_and_comes_back_in_its_grace_goes_on_at_its_checkpoint() -> None:
    """What it kept before it died is before or behind what the group knows of it: the checkpoint counts."""
    group = split_group()
    generation = group.generation(0)
    for position in (2, 1):
        _, held = checkpoints.join(
            leader=group.leader, subscription="s", consumer="a", checkpoint=group.at(s0=position)
        )
        assert held is not None
        assert [owned.position for owned in group.view("a").segments] == [position]
        assert group.generation(0) > generation, "nothing of its former life is taken any more"
        generation = group.generation(0)
    group.join("b")
    _, held = checkpoints.join(leader=group.leader, subscription="s", consumer="a", checkpoint=group.at(s0=0))
    assert held is None, "others read on"


def test_a_group_is_made_at_a_checkpoint_whose_segments_are_pruned() -> None:
    """B45: it goes on at the successors, and says what is gone."""
    group = split_group()
    subscriptions.delete_subscription(name=group.topic.name, subscription="s")
    assert pruning.prune_topic(incarnation=group.topic.incarnation) == (0,)
    _, held = checkpoints.join(leader=group.leader, subscription="s", consumer="b", checkpoint=group.at(s0=2))
    assert held is not None
    assert (held.skipped, held.checkpoint.positions) == ((Skipped(0, (1, 2)),), {1: 0, 2: 0})
    assert group.owners() == {1: "b", 2: "b"}


def test_a_restore_notes_what_is_pruned_and_unread_and_a_commit_what_it_names() -> None:
    """A member's checkpoint names its own segments: of the others a commit says nothing."""
    group = split_group()
    append(group.topic, 1, "4")
    group.end("a", 0, 3)
    group.commit(s1=0, s2=0)
    assert pruning.prune_topic(incarnation=group.topic.incarnation) == (0,)
    assert group.commit().skipped == ()
    tried = checkpoints.commit(
        leader=group.leader,
        subscription_id=group.subscription_id,
        checkpoint=group.at(s0=2, s1=1),
        preview=True,
    )
    assert (tried.skipped, group.floor(1)) == ((Skipped(0, (1, 2)),), 0)
    assert group.commit(s0=2).skipped == (Skipped(0, (1, 2)),)
    assert group.restore(s1=0).skipped == ()
    assert group.restore().skipped == (Skipped(0, (1, 2)),)


def test_a_join_that_is_refused_leaves_no_group_behind() -> None:
    topic = make_topic("refused", segments=1)
    leader = leader_of(topic)
    with pytest.raises(InvalidParameter):
        checkpoints.join(
            leader=leader, subscription="s", consumer="a", checkpoint=Checkpoint(topic.incarnation, {0: 1})
        )
    assert subscriptions.list_subscriptions(name=topic.name) == []


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_join_at_a_checkpoint_of_another_life_is_refused_as_such(is_gone: bool) -> None:
    topic, other = make_topic("living", segments=1), make_topic("other", segments=1)
    if is_gone:
        delete_topic(name=other.name, force=True, actor="admin")
    elsewhere = Checkpoint(other.incarnation, {})
    with pytest.raises(InvalidParameter):
        checkpoints.join(leader=leader_of(topic), subscription="s", consumer="a", checkpoint=elsewhere)
    assert subscriptions.list_subscriptions(name=topic.name) == []


WRITES: dict[str, Callable[[CheckpointGroup], object]] = {
    "register": lambda group: group.join("c"),
    "join at a checkpoint": lambda group: checkpoints.join(
        leader=group.leader, subscription="s", consumer="c", checkpoint=group.at(s0=1)
    ),
    "leave": lambda group: group.leave("b"),
    "release": lambda group: group.release("a", 0, position=2),
    "end": lambda group: group.end("a", 0, 3),
    "commit": lambda group: group.commit(s0=2),
    "restore": lambda group: group.restore(s0=1),
}
"""All that a member's session has its leader write."""


@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_written_by_a_session_with_a_leader_that_was_followed(write: str) -> None:
    group = split_group()
    group.join("b")
    former = group.leader
    controller.remove_node(node_id=former.node_id)
    group.leader = leader_of(group.topic)
    before = _written(group)
    present, group.leader = group.leader, former
    with pytest.raises(TermSuperseded):
        WRITES[write](group)
    assert _written(group) == before
    group.leader = present
    WRITES[write](group)
    assert _written(group) != before


def _written(group: CheckpointGroup) -> list[object]:
    """Give all that is kept of a group."""
    owned = store.ownerships(group.subscription_id)
    stopped = checkpoint_rows.positions(group.subscription_id)
    return [group.subscription, store.consumers(group.subscription_id), owned, stopped, group.floor(0)]


def test_a_commit_of_a_checkpoint_from_before_a_restore_is_refused() -> None:
    group = split_group()
    held = group.restore(s0=1)
    with pytest.raises(CheckpointSuperseded):
        group.commit(s0=2)
    assert group.floor(0) == 1
    later = replace(group.at(s0=2), restored=held.checkpoint.restored)
    checkpoints.commit(leader=group.leader, subscription_id=group.subscription_id, checkpoint=later)
    assert group.floor(0) == 2


def test_a_segment_that_never_was_is_refused() -> None:
    group = split_group()
    with pytest.raises(InvalidParameter):
        group.restore(s3=0)
    assert group.owners() == {0: "a"}


def test_a_reader_without_a_position_begins_where_the_last_owner_stopped() -> None:
    group = split_group()
    group.release("a", 0, position=2)
    right = subscriptions.reading_right(
        subscription=group.subscription, consumer="a", segment_id=0, generation=group.generation(0)
    )
    assert right.position == 2
