"""Frames: what is written is read again, and what breaks the protocol is refused by name."""

import json
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from scalable.domain.errors import FrameInvalid, FrameUnknownType
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.wire.frames import (
    PARTS,
    Ack,
    Acked,
    AssignedSegment,
    Assignment,
    Attach,
    Close,
    ConsumeClientFrame,
    ControllerClientFrame,
    Delivery,
    Detach,
    Flow,
    Frame,
    Hello,
    LookupClientFrame,
    NamespaceClientFrame,
    ProduceClientFrame,
    Publish,
    QueueClientFrame,
    Receipt,
    Refused,
    Register,
    Released,
    ServerFrame,
    count_parts,
    decode,
    decode_delivery,
    decode_publish,
    decoder,
    encode,
    encode_delivery,
    encode_publish,
)

numbers = st.integers(0, 2**63 - 1)
parts = st.one_of(st.none(), st.tuples(*[st.integers(0, 65_535)] * PARTS))


@given(st.integers(0, 2**32 - 1), numbers, st.booleans(), st.binary(max_size=200), parts)
def test_a_publish_frame_is_read_as_written(
    request_id: int, segment_id: int, restart: bool, batch: bytes, counted: tuple[int, ...] | None
) -> None:
    frame = Publish(request_id, segment_id, restart, batch, counted)
    assert decode_publish(encode_publish(frame)) == frame


@given(numbers, numbers, numbers, numbers, st.binary(max_size=200))
def test_a_delivery_is_read_as_written(
    segment_id: int, generation: int, base: int, first: int, batch: bytes
) -> None:
    frame = Delivery(segment_id, generation, base, first, batch)
    assert decode_delivery(encode_delivery(frame)) == frame


@given(st.binary(max_size=120))
def test_noise_is_refused_by_name(data: bytes) -> None:
    for read in (decode_publish, decode_delivery):
        with suppress(FrameInvalid, FrameUnknownType):
            read(data)


@pytest.mark.parametrize(
    "frame",
    [
        Hello(protocol=1, consumer="c"),
        Register(initial_position="latest"),
        Released(segment_id=3, generation=4),
        Close(),
    ],
)
def test_control_frames_of_a_client_are_read_as_written(frame: Frame) -> None:
    assert decode(decoder(ControllerClientFrame), encode(frame)) == frame


@pytest.mark.parametrize(
    "frame",
    [
        Attach(segment_id=1, generation=2, permits=3),
        Detach(segment_id=1),
        Flow(segment_id=1, permits=2),
        Ack(segment_id=1, generation=2, position=3),
    ],
)
def test_consume_frames_are_read_as_written(frame: Frame) -> None:
    assert decode(decoder(ConsumeClientFrame), encode(frame)) == frame


def test_server_frames_are_read_as_written() -> None:
    owned = AssignedSegment(
        segment_id=1, start=0, end=9, name="n", state="ACTIVE", generation=2, position=3, url="u"
    )
    for frame in (
        Assignment(term=1, generation=2, epoch=3, incarnation=4, segments=[owned], releasing=[(1, 0)]),
        Receipt(request_id=1, segment_id=2, base_offset=3),
        Refused(request_id=1, segment_id=2, code="c", reason="r", fields={"a": [1]}),
        Acked(segment_id=1, position=2),
    ):
        assert decode(decoder(ServerFrame), encode(frame)) == frame


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"type": "attach"}', FrameInvalid),
        ('{"type": "attach", "segment_id": 1, "generation": 1, "permits": 1, "more": 1}', FrameInvalid),
        ('{"type": "attach", "segment_id": "1", "generation": 1, "permits": 1}', FrameInvalid),
        ('{"type": "attach", "segment_id": 1.5, "generation": 1, "permits": 1}', FrameInvalid),
        ('{"type": "receipt", "request_id": 1, "segment_id": 1, "base_offset": 1}', FrameUnknownType),
        ('{"type": 7}', FrameInvalid),
        ("{}", FrameInvalid),
        ("null", FrameInvalid),
        ("", FrameInvalid),
        ("{" * 10_000, FrameInvalid),
        ('{"more": ' * 100_000, FrameInvalid),
        ('{"more": ' + "[" * 100_000 + "]" * 100_000 + "}", FrameInvalid),
    ],
)
def test_a_broken_control_frame_is_refused_by_name(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(decoder(ConsumeClientFrame), text)


@pytest.mark.parametrize("number", [-1, 2**63, 2**64, 10**40])
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "attach", "segment_id": 1, "generation": 1, "permits": 1},
        {"type": "ack", "segment_id": 1, "generation": 1, "position": 1},
        {"type": "flow", "segment_id": 1, "permits": 1},
        {"type": "detach", "segment_id": 1},
        {"type": "released", "segment_id": 1, "generation": 1},
    ],
)
def test_a_number_that_no_row_can_hold_is_refused(frame: dict[str, object], number: int) -> None:
    using = decoder(ConsumeClientFrame | Released)
    assert isinstance(decode(using, json.dumps(frame)), Frame)
    for field in frame.keys() - {"type"}:
        with pytest.raises(FrameInvalid):
            decode(using, json.dumps({**frame, field: number}))


def test_a_batch_for_a_segment_that_no_row_can_hold_is_refused() -> None:
    with pytest.raises(FrameInvalid):
        decode_publish(encode_publish(Publish(1, 2**63, False, b"")))


def test_the_name_of_a_session_is_short_since_every_pushed_frame_repeats_it() -> None:
    with pytest.raises(FrameInvalid):
        decode(decoder(Hello), encode(Hello(protocol=1, session_id="x" * 256)))


@given(st.data())
def test_parts_count_every_hash_where_it_lies(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 65_535))
    hash_range = HashRange(start, data.draw(st.integers(start, 65_535)))
    hashes = data.draw(st.lists(st.integers(hash_range.start, hash_range.end), max_size=50))
    counted = count_parts(hash_range, hashes)
    assert (len(counted), sum(counted)) == (PARTS, len(hashes))
    for part, count in enumerate(counted):
        assert count == sum(hash_range.part_of(one, PARTS) == part for one in hashes)


def test_parts_of_the_whole_space_are_even() -> None:
    assert count_parts(FULL_RANGE, range(65_536)) == (2_048,) * PARTS


CLIENT_FRAMES = {
    "lookup": LookupClientFrame,
    "topics": NamespaceClientFrame,
    "produce": ProduceClientFrame,
    "controller": ControllerClientFrame,
    "consume": ConsumeClientFrame,
    "queue": QueueClientFrame,
}
UNKNOWN = "told_by_a_later_version"
TEXTS = ("0", "00000000", "x")


def sample(kind: inspect.Type, more_in: Collection[type] = ()) -> Any:
    """A JSON value of a type, with every field; with an unknown one in the objects of some types."""
    match kind:
        case inspect.StructType():
            body = {field.encode_name: sample(field.type, more_in) for field in kind.fields}
            tag = {} if kind.tag is None else {"type": kind.tag}
            return {**tag, **body, **({UNKNOWN: {"more": [1]}} if kind.cls in more_in else {})}
        case inspect.IntType():
            return max(kind.ge or 0, 1)
        case inspect.StrType():
            return next(text for text in TEXTS if re.search(kind.pattern or "", text))
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.UnionType():
            return sample(
                next(each for each in kind.types if not isinstance(each, inspect.NoneType)), more_in
            )
        case inspect.DictType():
            return {sample(kind.key_type): sample(kind.value_type, more_in)}
        case inspect.ListType():
            return [sample(kind.item_type, more_in)]
        case inspect.TupleType():
            return [sample(each, more_in) for each in kind.item_types]
    return True


def structs_in(kind: inspect.Type) -> set[type]:
    """The objects of which a frame consists, its own among them."""
    found: set[type] = set()
    if isinstance(kind, inspect.StructType):
        found = {kind.cls}.union(*(structs_in(field.type) for field in kind.fields))
    elif isinstance(kind, inspect.UnionType):
        found = set().union(*(structs_in(each) for each in kind.types))
    elif isinstance(kind, inspect.ListType):
        found = structs_in(kind.item_type)
    return found


@pytest.mark.parametrize("kind", get_args(ServerFrame), ids=lambda kind: kind.__name__)
def test_a_client_passes_over_what_a_later_server_tells(kind: type[Frame]) -> None:
    described = inspect.type_info(kind)
    more = json.dumps(sample(described, structs_in(described)))
    assert UNKNOWN in more
    frame = decode(decoder(ServerFrame), more)
    assert isinstance(frame, kind)
    assert frame == decode(decoder(ServerFrame), json.dumps(sample(described)))


@pytest.mark.parametrize(
    ("socket", "kind"), [(name, kind) for name, union in CLIENT_FRAMES.items() for kind in get_args(union)]
)
def test_a_server_refuses_what_it_does_not_know(socket: str, kind: type[Frame]) -> None:
    using, described = decoder(CLIENT_FRAMES[socket]), inspect.type_info(kind)
    assert isinstance(decode(using, json.dumps(sample(described))), kind)
    for part in structs_in(described):
        with pytest.raises(FrameInvalid):
            decode(using, json.dumps(sample(described, {part})))
