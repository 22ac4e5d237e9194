"""What a co-owner holds of an entry bucket: acknowledgements cover the gaps, and no more."""

from __future__ import annotations

from scalable.client.bucket_inbox import OwnedBucket
from scalable.client.inbox import Inbox, Message
from scalable.domain.buckets import equal_splits
from scalable.domain.cursors import bucket_ranges
from scalable.domain.keyspace import bucket_hash, key_hash
from scalable.domain.subscriptions import BucketKey
from scalable.wire.batch import Record, encode_batch
from scalable.wire.bucket_batch import cut_batch
from scalable.wire.frames import Ack, Acked, AssignedSegment, Delivery
from tests.client.test_inbox import TOPIC, assigned, assignment, offsets, take

SPLITS = equal_splits(2)
LOW, HIGH = bucket_ranges(SPLITS)
KEYS = [f"key-{number}" for number in range(40)]
MINE = next(key for key in KEYS if LOW.contains(bucket_hash(key_hash(key))))
THEIRS = next(key for key in KEYS if HIGH.contains(bucket_hash(key_hash(key))))


def bucket(*, generation: int = 1, position: int = 0) -> AssignedSegment:
    whole = assigned(0, generation=generation, position=position)
    return AssignedSegment(
        **{name: getattr(whole, name) for name in whole.__struct_fields__ if not name.startswith("bucket")},
        bucket_start=LOW.start,
        bucket_end=LOW.end,
    )


def delivery(owners: str, *, base_offset: int = 0, written: tuple[int, ...] = SPLITS) -> Delivery:
    """A batch of my messages (m) and of another bucket's (t)."""
    records = [Record(MINE if owner == "m" else THEIRS, b"") for owner in owners]
    batch = encode_batch(records, published_at_ms=7, bucket_starts=written)
    cut = cut_batch(batch, LOW, base_offset=base_offset)
    assert cut is not None
    return Delivery(0, 1, base_offset, base_offset, cut.payload)


def owning(*, position: int = 0) -> tuple[Inbox, OwnedBucket]:
    inbox = Inbox(TOPIC, OwnedBucket)
    inbox.apply(assignment(bucket(position=position)))
    held = inbox.owned[BucketKey(0)]
    assert isinstance(held, OwnedBucket)
    return inbox, held


def sent(held: OwnedBucket) -> tuple[int, list[tuple[int, int]]]:
    """The acknowledgement that goes out now."""
    ack = held.next_ack()
    assert isinstance(ack, Ack)
    assert held.next_ack() is None
    return ack.position, ack.ranges


def received(owners: str) -> tuple[OwnedBucket, list[Message]]:
    inbox, held = owning()
    inbox.deliver(delivery(owners))
    return held, take(inbox)


def test_offsets_are_those_of_the_whole_batch() -> None:
    for written in ((), SPLITS):
        inbox, held = owning()
        inbox.deliver(delivery("tmttm", written=written))
        assert offsets(take(inbox)) == [1, 4]
        assert held.received == 5


def test_an_acknowledgement_covers_the_gaps_up_to_the_next_message() -> None:
    held, messages = received("tmttmt")
    held.acknowledge(messages[0].message_id.offset + 1)
    assert sent(held) == (2, [])
    held.acknowledge(messages[1].message_id.offset + 1)
    assert sent(held) == (6, [])


def test_single_acknowledgements_cover_the_gap_before_them() -> None:
    held, _ = received("mtmttm")
    held.acknowledge_single(2)
    assert sent(held) == (0, [(1, 3)])
    held.acknowledge_single(5)
    assert held.unacknowledged
    held.acknowledge_single(0)
    assert sent(held) == (6, [])
    held.on_acked(Acked(segment_id=0, position=6))
    assert not held.unacknowledged


def test_nothing_for_the_bucket_moves_the_position_once_all_is_done() -> None:
    held, _ = received("mt")
    held.skip_to(50)
    assert held.next_ack() is None
    held.acknowledge(1)
    assert sent(held) == (50, [])
    held.skip_to(60)
    assert sent(held) == (60, [])


def test_what_a_former_owner_acknowledged_singly_is_not_handed_out() -> None:
    inbox, held = owning()
    held.on_acked(Acked(segment_id=0, position=0, ranges=[(1, 3)]))
    inbox.deliver(delivery("mtmm"))
    assert offsets(take(inbox)) == [0, 3]


def test_permits_are_given_back_for_what_is_not_kept() -> None:
    inbox, held = owning()
    inbox.deliver(delivery("mtm", written=()))  # one sub-block: it costs three permits
    assert held.owed_permits == 1
    assert len(take(inbox)) == 2
    assert held.owed_permits == 3


def test_a_lost_connection_sends_again_what_is_not_durable() -> None:
    held, _ = received("mmm")
    held.acknowledge_single(1)
    assert sent_ranges(held) == [(1, 2)]
    held.lose_connection()
    assert sent_ranges(held) == [(1, 2)]
    held.on_acked(Acked(segment_id=0, position=0, ranges=[(1, 2)]))
    held.lose_connection()
    assert held.next_ack() is None


def sent_ranges(held: OwnedBucket) -> list[tuple[int, int]]:
    ack = held.next_ack()
    return [] if ack is None else list(ack.ranges)


def test_a_hand_over_that_is_called_off_goes_on_where_the_application_is() -> None:
    inbox, held = owning()
    inbox.deliver(delivery("mtmtm"))
    first = inbox.next_message()
    assert first is not None
    inbox.apply(assignment(bucket(), generation=2, releasing=(0,)))
    assert not held.may_be_released
    inbox.apply(assignment(bucket(), generation=3))
    inbox.deliver(delivery("mtmtm"))
    assert offsets(take(inbox)) == [2, 4]
    held.acknowledge(3)
    assert sent(held) == (3, [])


def test_a_bucket_is_released_once_all_that_was_handed_out_is_durable() -> None:
    inbox, held = owning()
    inbox.deliver(delivery("mtmtm"))
    first, second = inbox.next_message(), inbox.next_message()
    assert first is not None
    assert second is not None
    inbox.apply(assignment(generation=2, releasing=(0,)))
    held.acknowledge_single(second.message_id.offset)
    held.on_acked(Acked(segment_id=0, position=0, ranges=[(1, 3)]))
    assert not held.may_be_released
    held.acknowledge_single(first.message_id.offset)
    position, _ = sent(held)
    assert position == 3
    held.on_acked(Acked(segment_id=0, position=position))
    assert held.may_be_released
