"""Batches whose checksums are right and whose body is not: stored, counted, never in the way."""

import struct

import pytest
from crc32c import crc32c

from scalable.domain.cursors import bucket_ranges, cursor_name
from scalable.domain.errors import BatchInvalid
from scalable.domain.operations import OperationKind
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.services import peeking, seeking
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, check_batch, decode_batch, decode_header, encode_batch
from tests.services.test_subscriptions import backlog, create
from tests.topology import append, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db
CRC = struct.Struct(">I")
MESSAGES = 3


def unreadable() -> bytes:
    """Make a batch of a single sub-block that says nothing, with checksums as they should be."""
    good = encode_batch([Record(None, b"lost", number, 0) for number in range(MESSAGES)], published_at_ms=0)
    size = decode_header(good).size
    body = b"\xff" * (len(good) - size)
    head = good[: size - 2 * CRC.size] + CRC.pack(crc32c(body))
    batch = head + CRC.pack(crc32c(head)) + body
    check_batch(batch)
    with pytest.raises(BatchInvalid):
        decode_batch(batch)
    return batch


def topic_with_one(port: SegmentPort, segment_id: int, topic: TopicView) -> SegmentKey:
    """Append it between two messages that can be read."""
    key = SegmentKey(topic.incarnation, segment_id)
    append(topic, segment_id, "before", port)
    port.append(key, [unreadable()], producer=None)
    append(topic, segment_id, "behind", port)
    return key


def peeked(topic: TopicView) -> list[str]:
    found = peeking.peek(name=topic.name, subscription="s", count=100)
    assert not found.complete
    return [each.value.decode() for each in found.messages]


def test_a_look_passes_over_it_and_a_skip_counts_it(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    create(topic)
    topic_with_one(port, 0, topic)
    assert backlog(topic) == {0: MESSAGES + 2}
    assert peeked(topic) == ["before", "behind"]
    seeking.skip(name=topic.name, subscription="s", count=2)
    assert backlog(topic) == {0: MESSAGES}
    assert peeked(topic) == ["behind"]


def test_entry_buckets_count_it_until_the_last_of_them_has_acknowledged_it(port: SegmentPort) -> None:
    topic = make_topic(segments=1)
    drive(request(OperationKind.REBUCKET, topic))
    (segment,) = layout_of(topic).active
    create(topic, key_shared=True)
    key = topic_with_one(port, segment.segment_id, topic)
    names = [cursor_name("s", each) for each in bucket_ranges(segment.entry_bucket_splits)]
    for name in names[1:]:
        port.acknowledge(key, subscription=name, generation=0, position=MESSAGES + 2)
    assert MESSAGES <= backlog(topic)[segment.segment_id] <= MESSAGES + 2
    seeking.skip(name=topic.name, subscription="s", count=100)
    assert backlog(topic)[segment.segment_id] == 0
