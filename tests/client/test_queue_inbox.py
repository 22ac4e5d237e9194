"""What a queue consumer holds: nothing handed out twice or too late, each outcome told once, permits even."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.client.membership import Membership
from scalable.client.queue_inbox import SEGMENTS_PER_SOCKET, QueueInbox, QueueMessage
from scalable.domain.names import TopicName
from scalable.wire.batch import Record, encode_batch
from scalable.wire.frames import (
    MAX_ATTACHED,
    DeliveredRange,
    Frame,
    NegativeAck,
    QueueAck,
    QueueDelivery,
    Renew,
)

TOPIC = TopicName("public", "default", "t")
LEASE_SECONDS = 40.0


def inbox_of(
    *segment_ids: int, max_deliveries: int | None = None, topic: TopicName = TOPIC, subscription_id: int = 5
) -> QueueInbox:
    inbox = QueueInbox(Membership("c", topic, "s", 1, subscription_id), max_deliveries=max_deliveries)
    inbox.lease_seconds = LEASE_SECONDS
    inbox.set_segments(segment_ids)
    return inbox


def delivery(
    *ranges: tuple[int, int, int], base: int = 0, segment_id: int = 0, incarnation: int = 1
) -> QueueDelivery:
    records = [Record("k", str(base + index).encode(), sequence=base + index) for index in range(10)]
    batch = encode_batch(records, published_at_ms=7)
    delivered = tuple(DeliveredRange(*each) for each in ranges)
    return QueueDelivery(segment_id, incarnation, base, delivered, batch)


def take(inbox: QueueInbox, now: float = 0.0) -> list[QueueMessage]:
    taken = []
    while (message := inbox.next_message(now)) is not None:
        taken.append(message)
    return taken


def offsets(messages: list[QueueMessage]) -> list[int]:
    return [message.message_id.offset for message in messages]


def outcomes(inbox: QueueInbox, segment_id: int = 0) -> list[Frame]:
    return inbox.take_outcomes(inbox.segments[segment_id])


def test_only_the_claimed_part_of_a_batch_is_handed_out_with_its_count() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((12, 14, 1), (17, 18, 3), base=10), since=0.0)
    messages = take(inbox)
    assert [(m.message_id.offset, m.message_id.index, m.deliveries) for m in messages] == [
        (12, 2, 1),
        (13, 3, 1),
        (17, 7, 3),
    ]
    assert [message.value for message in messages] == [b"12", b"13", b"17"]
    assert inbox.segments[0].owed_permits == 3


def test_segments_take_turns() -> None:
    inbox = inbox_of(0, 1)
    for segment_id in (0, 1):
        inbox.deliver(delivery((0, 3, 1), segment_id=segment_id), since=0.0)
    assert [message.message_id.segment_id for message in take(inbox)] in ([0, 1] * 3, [1, 0] * 3)


def test_acknowledgements_go_out_once_as_ranges_and_wait_for_their_answer() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 6, 1)), since=0.0)
    for message in take(inbox):
        if message.message_id.offset != 3:
            inbox.acknowledge(message)
    assert outcomes(inbox) == [QueueAck(segment_id=0, incarnation=1, ranges=[(0, 3), (4, 6)])]
    assert outcomes(inbox) == []
    assert inbox.has_unsettled
    inbox.on_acked(0, 1, [(0, 3)])
    assert inbox.has_unsettled
    inbox.on_acked(0, 1, [(4, 6)])
    assert not inbox.has_unsettled


def test_more_ranges_than_a_frame_carries_go_out_in_several() -> None:
    inbox = inbox_of(0)
    inbox.segments[0].acknowledged = {(1, offset) for offset in range(0, 4_002, 2)}
    frames = outcomes(inbox)
    assert [len(frame.ranges) for frame in frames if isinstance(frame, QueueAck)] == [1_000, 1_000, 1]


def test_unanswered_acknowledgements_are_sent_again_after_a_loss_and_what_waits_is_forgotten() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 4, 1)), since=0.0)
    first = inbox.next_message(0.0)
    assert first is not None
    inbox.acknowledge(first)
    outcomes(inbox)
    inbox.lose_connection(0)
    assert take(inbox) == []
    assert outcomes(inbox) == [QueueAck(segment_id=0, incarnation=1, ranges=[(0, 1)])]
    # The claims were given back; what was acknowledged here meanwhile is not handed out again.
    inbox.deliver(delivery((0, 4, 2)), since=1.0)
    assert offsets(take(inbox, 1.0)) == [1, 2, 3]


def test_what_waited_too_long_is_not_handed_out_unless_its_renewal_was_answered() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    (renewal,) = inbox.take_renewals(inbox.segments[0], LEASE_SECONDS / 4)
    assert renewal == Renew(segment_id=0, ranges=[(0, 3)], request_id=1)
    assert inbox.take_renewals(inbox.segments[0], LEASE_SECONDS / 3) == []
    assert inbox.next_message(LEASE_SECONDS * 0.5 + 1) is None  # asked is not answered
    inbox.deliver(delivery((0, 1, 2)), since=LEASE_SECONDS / 4)
    inbox.on_renewed(0, 1, complete=True)
    assert offsets(take(inbox, LEASE_SECONDS * 0.75)) == [0]
    assert inbox.segments[0].owed_permits == 4


def test_an_answered_renewal_counts_from_when_it_was_asked() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 2, 1)), since=0.0)
    inbox.take_renewals(inbox.segments[0], 10.0)
    inbox.on_renewed(0, 1, complete=True)
    assert inbox.next_message(10.0 + LEASE_SECONDS / 2) is not None
    assert inbox.next_message(10.1 + LEASE_SECONDS / 2) is None


def test_what_others_may_have_by_now_is_given_back_unseen() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    inbox.take_renewals(inbox.segments[0], 1.0)
    assert offsets([message for message in [inbox.next_message(1.0)] if message]) == [0]
    inbox.on_renewed(0, 1, complete=False)
    inbox.on_renewed(0, 1, complete=False)
    assert inbox.next_message(1.0) is None
    assert outcomes(inbox) == [NegativeAck(segment_id=0, ranges=[(1, 3)], count_delivery=False)]
    assert inbox.segments[0].owed_permits == 3
    assert inbox.take_renewals(inbox.segments[0], 2.0) == []


def test_a_message_that_comes_again_while_it_waits_is_handed_out_once() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    inbox.deliver(delivery((1, 2, 2)), since=1.0)
    assert [(m.message_id.offset, m.deliveries) for m in take(inbox, 1.0)] == [(0, 1), (2, 1), (1, 2)]
    assert inbox.segments[0].owed_permits == 4


def test_what_the_application_decides_late_concerns_what_waits_again_too() -> None:
    inbox = inbox_of(0, max_deliveries=1)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    processed, refused, dead = take(inbox)
    inbox.deliver(delivery((0, 2, 1), (2, 3, 2)), since=LEASE_SECONDS)
    inbox.acknowledge(processed)
    inbox.give_back(refused, delay_ms=5)
    inbox.give_back(dead, delay_ms=5)
    assert take(inbox, LEASE_SECONDS) == []
    assert outcomes(inbox) == [
        QueueAck(segment_id=0, incarnation=1, ranges=[(0, 1)]),
        NegativeAck(segment_id=0, ranges=[(1, 2)], delay_ms=5),
    ]
    assert offsets(inbox.dead_messages()) == [2]
    assert inbox.segments[0].owed_permits == 5


def test_negative_acknowledgements_are_grouped_by_their_delay() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 4, 1)), since=0.0)
    for message in take(inbox):
        inbox.give_back(message, delay_ms=1_000 if message.message_id.offset < 3 else 5)
    assert outcomes(inbox) == [
        NegativeAck(segment_id=0, ranges=[(0, 3)], delay_ms=1_000),
        NegativeAck(segment_id=0, ranges=[(3, 4)], delay_ms=5),
    ]
    assert outcomes(inbox) == []


def test_at_the_end_what_nobody_saw_is_given_back_uncounted() -> None:
    inbox = inbox_of(0, max_deliveries=1)
    inbox.deliver(delivery((0, 2, 1), (4, 5, 2)), since=0.0)
    inbox.next_message(0.0)
    inbox.give_back_waiting(0)
    assert outcomes(inbox) == [NegativeAck(segment_id=0, ranges=[(1, 2), (4, 5)], count_delivery=False)]
    assert inbox.waiting_count == 0


def test_dead_messages_stay_claimed_until_they_are_buried() -> None:
    inbox = inbox_of(0, max_deliveries=3)
    inbox.deliver(delivery((0, 1, 3), (1, 3, 4)), since=0.0)
    assert offsets(take(inbox)) == [0]
    assert offsets(inbox.dead_messages()) == [1, 2]
    assert inbox.take_renewals(inbox.segments[0], 1.0) == [Renew(segment_id=0, ranges=[(1, 3)], request_id=1)]
    inbox.acknowledge(inbox.dead_messages()[0])
    assert offsets(inbox.dead_messages()) == [2]
    assert outcomes(inbox) == [QueueAck(segment_id=0, incarnation=1, ranges=[(1, 2)])]
    assert inbox.segments[0].owed_permits == 2


def test_a_seek_voids_what_came_before_it() -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    first, second = inbox.next_message(0.0), inbox.next_message(0.0)
    assert first is not None
    assert second is not None
    inbox.acknowledge(first)
    outcomes(inbox)
    inbox.deliver(delivery((0, 2, 1), incarnation=2), since=0.0)
    inbox.acknowledge(second)
    inbox.on_sought(0, refused=1, current=2)
    assert not inbox.has_unsettled
    again = take(inbox)
    assert [(m.message_id.offset, m.incarnation) for m in again] == [(0, 2), (1, 2)]
    inbox.acknowledge(again[0])
    assert outcomes(inbox) == [QueueAck(segment_id=0, incarnation=2, ranges=[(0, 1)])]


@pytest.mark.parametrize("incarnation", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "subscription_id"), [("u", 5), ("t", 6)], ids=["another topic", "another subscription"]
)
def test_a_message_of_another_topic_or_subscription_stands_for_none_here(
    name: str, subscription_id: int, incarnation: int
) -> None:
    topic = TopicName("public", "default", name)
    inbox, other = inbox_of(0), inbox_of(0, topic=topic, subscription_id=subscription_id)
    inbox.deliver(delivery((0, 2, 1), incarnation=2), since=0.0)
    assert inbox.next_message(0.0) is not None
    other.deliver(delivery((0, 2, 1), incarnation=incarnation), since=0.0)
    for foreign in take(other):
        inbox.acknowledge(foreign)
        inbox.give_back(foreign, delay_ms=0)
    assert outcomes(inbox) == []
    assert offsets(take(inbox)) == [1]


def test_a_message_of_a_former_consumer_of_the_subscription_is_acknowledged_but_not_given_back() -> None:
    former, inbox = inbox_of(0), inbox_of(0)
    former.deliver(delivery((0, 2, 1)), since=0.0)
    first, second = take(former)
    inbox.acknowledge(first)
    inbox.give_back(second, delay_ms=0)
    assert outcomes(inbox) == [QueueAck(segment_id=0, incarnation=1, ranges=[(0, 1)])]


def test_what_was_refused_is_not_waited_for_though_its_number_is_higher() -> None:
    """A node of an earlier version tells no subscription, so the server alone can tell another one's."""
    inbox, other = inbox_of(0, subscription_id=0), inbox_of(0, subscription_id=0)
    inbox.deliver(delivery((0, 2, 1), incarnation=1), since=0.0)
    other.deliver(delivery((0, 1, 1), incarnation=9), since=0.0)
    for message in (take(inbox)[0], *take(other)):
        inbox.acknowledge(message)
    outcomes(inbox)
    inbox.on_sought(0, refused=9, current=1)
    assert inbox.segments[0].sent == {(1, 0)}


def test_a_pruned_segment_is_forgotten_with_all_that_concerns_it() -> None:
    inbox = inbox_of(0, 1)
    inbox.deliver(delivery((0, 3, 1)), since=0.0)
    message = inbox.next_message(0.0)
    assert message is not None
    inbox.acknowledge(message)
    inbox.set_segments({1, 2})
    inbox.acknowledge(message)
    inbox.give_back(message, delay_ms=0)
    inbox.deliver(delivery((3, 4, 1)), since=0.0)
    assert (take(inbox), inbox.has_unsettled, set(inbox.segments)) == ([], False, {1, 2})


@given(st.data())
def test_permits_given_and_used_are_even_once_all_is_handed_out(data: st.DataObject) -> None:
    inbox = inbox_of(0, max_deliveries=2)
    used, now = 0, 0.0
    for _ in range(data.draw(st.integers(1, 12))):
        first = data.draw(st.integers(0, 9))
        count, deliveries = data.draw(st.integers(1, 10 - first)), data.draw(st.integers(1, 3))
        inbox.deliver(delivery((first, first + count, deliveries)), now)
        used += count
        now += data.draw(st.sampled_from([0.0, 1.0, LEASE_SECONDS * 2]))
        message = inbox.next_message(now)
        if message is not None and data.draw(st.booleans()):
            inbox.acknowledge(message)
    take(inbox, now)
    for message in inbox.dead_messages():
        inbox.acknowledge(message)
    assert inbox.segments[0].owed_permits == used
    assert inbox.waiting_count == 0


@pytest.mark.parametrize("now", [0.0, LEASE_SECONDS * 3])
def test_an_unknown_segment_is_ignored(now: float) -> None:
    inbox = inbox_of(0)
    inbox.deliver(delivery((0, 1, 1), segment_id=9), now)
    inbox.on_acked(9, 1, [(0, 1)])
    inbox.on_sought(9, refused=1, current=4)
    assert inbox.waiting_count == 0


def test_segments_are_shared_among_as_many_sockets_as_they_need() -> None:
    inbox = inbox_of(0)
    assert inbox.sockets == 1
    inbox.set_segments(range(SEGMENTS_PER_SOCKET))
    assert inbox.sockets == 1
    inbox.set_segments(range(2 * SEGMENTS_PER_SOCKET + 1))
    assert inbox.sockets == 3
    shares = [{segment.segment_id for segment in inbox.share_of(socket)} for socket in range(3)]
    assert max(map(len, shares)) <= MAX_ATTACHED // 2
    assert sorted(segment_id for share in shares for segment_id in share) == sorted(inbox.segments)


def test_what_is_pruned_makes_room_on_its_socket_and_none_moves() -> None:
    inbox = inbox_of(*range(SEGMENTS_PER_SOCKET + 1))
    before = {segment_id: segment.socket for segment_id, segment in inbox.segments.items()}
    inbox.set_segments([*range(1, SEGMENTS_PER_SOCKET + 1), SEGMENTS_PER_SOCKET + 7])
    assert inbox.sockets == 2
    after = {segment_id: segment.socket for segment_id, segment in inbox.segments.items()}
    assert after.pop(SEGMENTS_PER_SOCKET + 7) == 0
    assert after.items() <= before.items()


def test_a_lost_socket_takes_its_own_share_alone() -> None:
    inbox = inbox_of(*range(SEGMENTS_PER_SOCKET + 1))
    far = SEGMENTS_PER_SOCKET
    for segment_id in (0, far):
        inbox.deliver(delivery((0, 1, 1), segment_id=segment_id), since=0.0)
    inbox.lose_connection(1)
    assert [message.message_id.segment_id for message in take(inbox)] == [0]
    inbox.deliver(delivery((1, 2, 1), segment_id=far), since=0.0)
    inbox.give_back_waiting(0)
    assert [message.message_id.segment_id for message in take(inbox)] == [far]
    inbox.lose_connection(0)
    assert take(inbox) == []
