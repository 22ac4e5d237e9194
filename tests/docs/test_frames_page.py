"""`docs/websocket.md` shows every frame with all its fields, and the limits that the code has."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from django.conf import settings

from scalable.api.sockets import acknowledging, controller, produce
from scalable.client import connection
from scalable.services import messages
from scalable.wire import batch_header, consume_frames, controller_frames, frames, queue_frames
from scalable.wire.frames import Frame
from tests.docs.pages import page, rows, section

PAGE = page("websocket")
EVERY_SOCKET: set[type[Frame]] = {frames.Hello, frames.Close, frames.Welcome, frames.ErrorFrame, frames.Gone}
FRAMES: dict[str, set[type[Frame]]] = {
    "Every socket": EVERY_SOCKET,
    "lookup": {frames.Snapshot, frames.Delta},
    "topics": {frames.WatchTopics, frames.TopicsSnapshot, frames.TopicsDiff},
    "produce": {frames.Receipt, frames.Refused},
    "controller": {
        *set(get_args(frames.ControllerClientFrame)) - EVERY_SOCKET,
        *get_args(controller_frames.ControllerServerFrame),
    },
    "consume": {
        *set(get_args(frames.ConsumeClientFrame)) - EVERY_SOCKET,
        *get_args(consume_frames.ConsumeServerFrame),
    },
    "queue": {
        *set(get_args(frames.QueueClientFrame)) - EVERY_SOCKET,
        *get_args(queue_frames.QueueServerFrame),
        frames.Detached,
    },
}
PARTS: dict[str, dict[str, type[msgspec.Struct]]] = {
    "lookup": {"segmentId": frames.SegmentFrame},
    "controller": {"segment_id": frames.AssignedSegment, "positions": frames.CheckpointBody},
}
NESTED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
NAME = re.compile(r'"(\w+)"(?=\s*[:,}])')
VALUE = re.compile(r':\s*"[^"]*"')
TYPE = re.compile(r'^\{"type": "(\w+)"')


def objects(text: str) -> Iterator[tuple[str, set[str]]]:
    """Each JSON object that is shown in a text, and the names of its own fields."""
    for start in (match.start() for match in re.finditer(r"\{", text)):
        depth = 0
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                yield text[start : end + 1], _names(text[start : end + 1])
                break


def _names(shown: str) -> set[str]:
    inner = VALUE.sub(": 0", shown)[1:-1]
    while (flat := NESTED.sub("0", inner)) != inner:
        inner = flat
    return set(NAME.findall("{" + inner + "}"))


def shown_frames(heading: str) -> list[tuple[str, set[str]]]:
    """Tag and fields of each frame that a section shows."""
    found = []
    for text, fields in objects(section(PAGE, heading)):
        match = TYPE.match(text)
        if match is not None:
            found.append((match[1], fields - {"type"}))
    return found


def fields_of(kind: type[msgspec.Struct]) -> set[str]:
    return set(kind.__struct_fields__)


def tag_of(kind: type[Frame]) -> str:
    return str(kind.__struct_config__.tag)


def test_every_frame_has_a_section() -> None:
    unions: list[Any] = [
        *(frames.LookupClientFrame, frames.NamespaceClientFrame, frames.ControllerClientFrame),
        *(frames.ProduceClientFrame, frames.ConsumeClientFrame, frames.QueueClientFrame, frames.ServerFrame),
    ]
    assert set().union(*FRAMES.values()) == {kind for union in unions for kind in get_args(union)}


@pytest.mark.parametrize("heading", FRAMES)
def test_every_frame_is_shown_once_with_all_its_fields(heading: str) -> None:
    shown = shown_frames(heading)
    for kind in FRAMES[heading]:
        assert (tag_of(kind), fields_of(kind)) in shown, kind.__name__


@pytest.mark.parametrize("heading", FRAMES)
def test_no_frame_is_shown_that_is_not_there_or_with_a_field_that_it_lacks(heading: str) -> None:
    known = {tag_of(kind): fields_of(kind) for kind in FRAMES[heading] | EVERY_SOCKET}
    for tag, fields in shown_frames(heading):
        assert fields <= known[tag], tag


@pytest.mark.parametrize("heading", PARTS)
def test_what_lies_in_a_frame_is_shown_with_all_its_fields(heading: str) -> None:
    shown = [fields for _, fields in objects(section(PAGE, heading)) if fields and "type" not in fields]
    for first, kind in PARTS[heading].items():
        assert fields_of(kind) in [fields for fields in shown if first in fields]


def test_the_details_of_a_watch_are_named() -> None:
    told = section(PAGE, "lookup")
    assert all(f"`{name}`" in told for name in fields_of(frames.TopicDetail))


def test_a_test_of_the_page_finds_a_field_that_is_missing() -> None:
    text = '| `{"type": "ack", "position", "ranges": [[1, {"a": 2}]]}` |'
    assert next(fields for _, fields in objects(text)) == {"type", "position", "ranges"}


def limits() -> dict[str, set[int]]:
    """The numbers of each row of the table of limits."""
    return {
        cells[0]: {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", " ".join(cells[1:]))}
        for cells in rows(PAGE, "what", "at most", "beyond it")
    }


def test_the_limits_are_those_of_the_code() -> None:
    heads = [
        len(frames.encode_publish(frames.Publish(0, 0, False, b"", parts))) for parts in (None, (0,) * 32)
    ]
    expected = {
        "a frame of a client": {settings.SCALABLE_MAX_FRAME_BYTES, *heads},
        "a batch as it is sent": {batch_header.MAX_BATCH_BYTES},
        "a batch uncompressed": {
            settings.SCALABLE_MAX_MESSAGE_BYTES,
            produce.BATCH_OVERHEAD_BYTES,
            batch_header.MAX_UNCOMPRESSED_BYTES,
        },
        "segments that a queue socket has attached": {frames.MAX_ATTACHED},
        "ranges in a frame": {consume_frames.MAX_ACK_RANGES, frames.MAX_RANGES},
        "successors that a refusal names": {messages.MAX_SUCCESSORS},
    }
    told = limits()
    for what, numbers in expected.items():
        assert numbers <= told[what], what


def test_what_comes_too_fast_and_too_large_is_told() -> None:
    delivery = len(frames.encode_delivery(frames.Delivery(0, 0, 0, 0, b"")))
    one = len(
        frames.encode_queue_delivery(frames.QueueDelivery(0, 0, 0, (frames.DeliveredRange(0, 1, 1),), b""))
    )
    range_bytes = queue_frames._RANGE.size
    text = " ".join(section(PAGE, "Every socket").split())
    for sentence in (
        f"{controller.MAX_WAITING_FRAMES:,} frames of a controller session",
        f"acknowledgements of {acknowledging.MAX_WAITING_ACKS:,} segments or buckets",
        f"batches of {produce.MAX_QUEUED_BYTES >> 20} MiB",
        f"a delivery is a batch and {delivery} bytes",
        f"a batch, {one - range_bytes} bytes and {range_bytes} for each range",
        f"the Python client takes {connection.MAX_RECEIVED_BYTES >> 20} MiB",
    ):
        assert sentence in text, sentence
