"""Frames of the queue socket: what is written is read again, lists are bounded, noise is refused by name."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import FrameInvalid, FrameUnknownType
from scalable.wire.frames import (
    DeliveredRange,
    Frame,
    NegativeAck,
    QueueAck,
    QueueAcked,
    QueueAttach,
    QueueClientFrame,
    QueueDelivery,
    QueueDetach,
    QueueFlow,
    Renew,
    SegmentDone,
    SegmentReopened,
    ServerFrame,
    decode,
    decode_queue_delivery,
    decoder,
    encode,
    encode_queue_delivery,
)

numbers = st.integers(0, 2**63 - 1)
ranges = st.lists(
    st.builds(DeliveredRange, numbers, numbers, st.integers(1, 2**32 - 1)), min_size=1, max_size=9
)


@given(numbers, numbers, numbers, ranges, st.binary(max_size=200))
def test_a_delivery_is_read_as_written(
    segment_id: int, incarnation: int, base: int, delivered: list[DeliveredRange], batch: bytes
) -> None:
    frame = QueueDelivery(segment_id, incarnation, base, tuple(delivered), batch)
    assert decode_queue_delivery(encode_queue_delivery(frame)) == frame


@given(st.binary(max_size=120))
def test_noise_is_refused_by_name(data: bytes) -> None:
    with suppress(FrameInvalid, FrameUnknownType):
        decode_queue_delivery(data)
    with suppress(FrameInvalid):
        decode_queue_delivery(b"\x03" + data)


def test_a_delivery_without_ranges_is_refused() -> None:
    with pytest.raises(FrameInvalid):
        decode_queue_delivery(encode_queue_delivery(QueueDelivery(1, 0, 0, (), b"")))


@pytest.mark.parametrize(
    "frame",
    [
        QueueAttach(segment_id=1, permits=2),
        QueueAttach(segment_id=1, permits=2, ack_timeout_ms=5_000),
        QueueFlow(segment_id=1, permits=2),
        QueueDetach(segment_id=1),
        QueueAck(segment_id=1, incarnation=3, ranges=[(0, 1), (5, 9)]),
        NegativeAck(segment_id=1, ranges=[(0, 1)], delay_ms=1_000),
        Renew(segment_id=1, ranges=[(0, 1)]),
    ],
)
def test_frames_of_a_client_are_read_as_written(frame: Frame) -> None:
    assert decode(decoder(QueueClientFrame), encode(frame)) == frame


@pytest.mark.parametrize(
    "frame",
    [
        QueueAcked(segment_id=1, incarnation=0, ranges=[(0, 1)]),
        SegmentDone(segment_id=4),
        SegmentReopened(segment_id=4),
    ],
)
def test_frames_of_a_server_are_read_as_written(frame: Frame) -> None:
    assert decode(decoder(ServerFrame), encode(frame)) == frame


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": []},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [[0, 1]] * 1_001},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [[0]]},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [[0, 1, 2]]},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [[-1, 2]]},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [[0, 2**63]]},
        {"type": "queue_ack", "segment_id": 1, "incarnation": 0, "ranges": [["0", "1"]]},
        {"type": "negative_ack", "segment_id": 1, "ranges": [[0, 1]], "delay_ms": -1},
        {"type": "negative_ack", "segment_id": 1, "ranges": [[0, 1]], "delay_ms": 10**12},
        {"type": "renew", "segment_id": 1},
        {"type": "attach", "segment_id": 1, "permits": 1, "ack_timeout_ms": 0},
        {"type": "attach", "segment_id": 1, "permits": 1, "generation": 1},
    ],
)
def test_a_broken_frame_is_refused_by_name(frame: dict[str, object]) -> None:
    with pytest.raises(FrameInvalid):
        decode(decoder(QueueClientFrame), json.dumps(frame))
