"""What a consumer holds of its segments: nothing handed out twice, nothing skipped."""

from __future__ import annotations

from scalable.client.checkpoint_consumer import CheckpointSegment
from scalable.client.inbox import Inbox, Message, OwnedSegment
from scalable.domain.checkpoint import Skipped
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey
from scalable.wire.batch import Record, encode_batch
from scalable.wire.frames import Acked, AssignedSegment, Assignment, Delivery

TOPIC = TopicName("public", "default", "t")


def assigned(segment_id: int, *, generation: int = 1, position: int = 0) -> AssignedSegment:
    return AssignedSegment(
        segment_id=segment_id,
        start=0,
        end=65535,
        name=f"segment://public/default/t/0000-ffff-{segment_id}",
        state="ACTIVE",
        generation=generation,
        position=position,
        url="http://node",
    )


def assignment(
    *segments: AssignedSegment, generation: int = 1, term: int = 1, releasing: tuple[int, ...] = ()
) -> Assignment:
    return Assignment(
        term=term,
        generation=generation,
        epoch=0,
        incarnation=1,
        segments=list(segments),
        releasing=[(segment_id, 0) for segment_id in releasing],
    )


def delivery(
    first: int, count: int, *, skip_to: int | None = None, segment_id: int = 0, generation: int = 1
) -> Delivery:
    records = [Record("k", str(first + index).encode(), sequence=first + index) for index in range(count)]
    batch = encode_batch(records, published_at_ms=7)
    return Delivery(segment_id, generation, first, first if skip_to is None else skip_to, batch)


def take(inbox: Inbox) -> list[Message]:
    taken = []
    while (message := inbox.next_message()) is not None:
        taken.append(message)
    return taken


def offsets(messages: list[Message]) -> list[int]:
    return [message.message_id.offset for message in messages]


def owning(*segments: AssignedSegment) -> Inbox:
    inbox = Inbox(TOPIC)
    inbox.apply(assignment(*segments))
    return inbox


def test_messages_come_in_order_with_their_places() -> None:
    inbox = owning(assigned(0, position=2))
    inbox.deliver(delivery(0, 4, skip_to=2))
    inbox.deliver(delivery(4, 2))
    messages = take(inbox)
    assert offsets(messages) == [2, 3, 4, 5]
    assert [message.value for message in messages] == [b"2", b"3", b"4", b"5"]
    assert messages[0].message_id.index == 2
    assert messages[0].published_at_ms == 7


def test_a_new_socket_delivers_from_the_cursor_and_nothing_is_handed_out_twice() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 3))
    first = inbox.next_message()
    inbox.owned[BucketKey(0)].lose_connection()
    inbox.deliver(delivery(0, 3))
    inbox.deliver(delivery(3, 2))
    assert first is not None
    assert offsets(take(inbox)) == [1, 2, 3, 4]


def test_an_older_assignment_is_ignored_and_a_newer_term_counts_more_than_a_generation() -> None:
    inbox = owning(assigned(0))
    assert inbox.apply(assignment(assigned(1), generation=1, term=2))
    assert not inbox.apply(assignment(assigned(0), generation=9, term=1))
    assert list(inbox.owned) == [(1, 0)]


def test_what_another_owner_has_is_dropped_and_late_deliveries_with_it() -> None:
    inbox = owning(assigned(0), assigned(1))
    inbox.deliver(delivery(0, 3))
    inbox.apply(assignment(assigned(1), generation=2))
    inbox.deliver(delivery(3, 1))
    assert take(inbox) == []
    assert not inbox.acknowledge(0, 1)


def test_a_new_generation_of_a_segment_starts_from_its_own_position() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 3))
    (old, *_) = take(inbox)
    inbox.apply(assignment(assigned(0, generation=2, position=1), generation=2))
    inbox.deliver(delivery(0, 3, generation=1))
    assert take(inbox) == []
    inbox.deliver(delivery(0, 3, skip_to=1, generation=2))
    assert offsets(take(inbox)) == [1, 2]
    assert not inbox.acknowledge(0, 1, generation=old.generation)


def test_a_segment_is_released_only_when_what_was_handed_out_is_durably_acknowledged() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 4))
    held, first, second = inbox.owned[BucketKey(0)], inbox.next_message(), inbox.next_message()
    held.attached = True
    inbox.apply(assignment(assigned(0), generation=2, releasing=(0,)))
    assert inbox.next_message() is None, "what was not handed out goes to the next owner"
    held.attached = False
    assert first is not None
    assert second is not None
    assert not held.may_be_released
    inbox.acknowledge(0, 2)
    assert not held.may_be_released
    inbox.owned[BucketKey(0)].on_acked(Acked(segment_id=0, position=1))
    assert not held.may_be_released
    inbox.owned[BucketKey(0)].on_acked(Acked(segment_id=0, position=2))
    assert held.may_be_released


def test_a_hand_over_that_is_called_off_skips_nothing() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 4))
    assert offsets([message for message in [inbox.next_message()] if message]) == [0]
    held = inbox.owned[BucketKey(0)]
    held.attached = True
    inbox.apply(assignment(assigned(0), generation=2, releasing=(0,)))
    inbox.apply(assignment(assigned(0), generation=3))
    inbox.deliver(delivery(4, 2))
    assert take(inbox) == [], "it follows messages that were dropped"
    held.end_attachment()
    inbox.deliver(delivery(0, 6))
    assert offsets(take(inbox)) == [1, 2, 3, 4, 5]


def test_acknowledging_never_goes_beyond_what_was_handed_out() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 4))
    inbox.next_message()
    inbox.acknowledge(0, 1_000)
    assert inbox.owned[BucketKey(0)].acknowledged == 1


def test_permits_come_back_for_every_message_that_was_delivered() -> None:
    inbox = owning(assigned(0))
    inbox.deliver(delivery(0, 3))
    inbox.deliver(delivery(0, 3))
    take(inbox)
    assert inbox.owned[BucketKey(0)].owed_permits == 6


def test_segments_take_turns() -> None:
    inbox = owning(assigned(0), assigned(1))
    inbox.deliver(delivery(0, 3, segment_id=0))
    inbox.deliver(delivery(0, 3, segment_id=1))
    ids = [message.message_id.segment_id for message in take(inbox)]
    assert sorted(ids[:2]) == sorted(ids[2:4]) == [0, 1]


def test_what_is_pruned_under_a_checkpoint_reader_is_noted() -> None:
    skipped: list[Skipped] = []
    inbox = Inbox(TOPIC, lambda one: CheckpointSegment(one, skipped.append))
    inbox.apply(assignment(assigned(0)))
    inbox.deliver(delivery(0, 2))
    inbox.deliver(delivery(2, 2))
    assert skipped == []
    inbox.deliver(delivery(7, 2))
    assert (offsets(take(inbox)), skipped) == ([0, 1, 2, 3, 7, 8], [Skipped(0, (0,))])


def test_what_waits_of_many_segments_is_found_without_a_look_at_the_others() -> None:
    looked_at: list[int] = []

    class Watched(OwnedSegment):
        def hand_out(self) -> Message | None:
            looked_at.append(self.segment_id)
            return super().hand_out()

    inbox = Inbox(TOPIC, Watched)
    inbox.apply(assignment(*map(assigned, range(100))))
    inbox.deliver(delivery(0, 2, segment_id=70))
    assert (offsets(take(inbox)), looked_at) == ([0, 1], [70, 70])


def test_what_is_done_with_is_given_up_once_and_not_when_the_hand_over_was_called_off() -> None:
    inbox = owning(assigned(0), assigned(1), assigned(2))
    inbox.owned[BucketKey(2)].attached = True
    inbox.apply(assignment(assigned(0), assigned(1), assigned(2), generation=2, releasing=(0, 1, 2)))
    inbox.apply(assignment(assigned(0), assigned(1), assigned(2), generation=3, releasing=(1, 2)))
    assert [held.segment_id for held in inbox.take_released()] == [1]
    inbox.owned[BucketKey(2)].end_attachment()
    inbox.note(inbox.owned[BucketKey(2)])
    assert [held.segment_id for held in inbox.take_released()] == [2]
    assert (inbox.take_released(), list(inbox.owned)) == ([], [BucketKey(0)])
