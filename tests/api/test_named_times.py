"""Every number of time that a client may send, at its limits and beyond: taken, or refused by name."""

import asyncio
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

from launch.sandbox import LiveNode
from scalable.client.starts import registration
from scalable.domain.errors import FrameInvalid, InvalidParameter
from scalable.wire import frames
from scalable.wire.batch import Record, encode_batch
from scalable.wire.frames import (
    Assignment,
    ErrorFrame,
    Frame,
    Publish,
    Receipt,
    Welcome,
    decode,
    decoder,
)
from scalable.wire.loads import MAX_TIME_MS
from scalable.wire.queue_frames import MAX_ACK_TIMEOUT_MS, MAX_DELAY_MS, MIN_ACK_TIMEOUT_MS
from tests.api.members import CONTROL, PRODUCE
from tests.api.peers import ask, raw_socket, rest, socket
from tests.api.queues import make_queue, queue_peer
from tests.topology import make_topic

QUEUE_PATH = "public/default/orders/subscriptions/q"
LIMITS = {
    "register start_time_ms": (0, MAX_TIME_MS),
    "attach ack_timeout_ms": (MIN_ACK_TIMEOUT_MS, MAX_ACK_TIMEOUT_MS),
    "negative_ack delay_ms": (0, MAX_DELAY_MS),
}
OTHERS: dict[str, dict[str, Any]] = {
    "register": {},
    "attach": {"segment_id": 0, "permits": 1},
    "negative_ack": {"segment_id": 0, "ranges": [(0, 1)]},
}
BEYOND = (-(2**63), -1, MAX_TIME_MS + 1, 2**53, 2**62, 2**63 - 1, 2**63)
UNIONS = [getattr(frames, name) for name in frames.__all__ if name.endswith("ClientFrame")]


def times() -> dict[str, Any]:
    """Name the fields of a client's frames that are a time or a duration, each with its socket's frames."""
    return {
        f"{kind.__struct_config__.tag} {field.name}": union
        for union in UNIONS
        for kind in get_args(union)
        for field in msgspec.structs.fields(kind)
        if field.name.endswith(("_ms", "_seconds"))
    }


def read(name: str, value: int) -> Frame:
    """Read a frame in which the field has this value."""
    kind, field = name.split()
    text = msgspec.json.encode({"type": kind, **OTHERS[kind], field: value})
    return decode(decoder(times()[name]), text)


def test_the_limits_of_every_time_are_known() -> None:
    assert times().keys() == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_a_time_beyond_its_limits_is_no_frame(name: str) -> None:
    low, high = LIMITS[name]
    for value in (low, high):
        read(name, value)
    for value in (low - 1, high + 1, *BEYOND):
        with pytest.raises(FrameInvalid):
            read(name, value)


async def test_a_subscription_begins_at_any_time_or_the_frame_is_refused(live_node: LiveNode) -> None:
    await ask(make_topic, "orders", segments=1)
    for kind in ("STREAM", "CHECKPOINT"):
        for number, value in enumerate((0, 1, MAX_TIME_MS, *BEYOND)):
            async with raw_socket(live_node, f"{CONTROL}-{kind}-{number}") as peer:
                await peer.send(frames.Hello(protocol=1, consumer="a"))
                await peer.expect(Welcome)
                text = msgspec.json.encode({"type": "register", "kind": kind, "start_time_ms": value})
                await peer.send_raw(text.decode())
                if 0 <= value <= MAX_TIME_MS:
                    assert (await peer.expect(Assignment)).segments
                else:
                    assert (await peer.expect(ErrorFrame)).code == "frame_invalid"
                    assert await peer.close_code() == 4400


def test_a_client_refuses_such_a_start_before_it_connects() -> None:
    for value in (0, MAX_TIME_MS, datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        assert registration(value).start_time_ms in range(MAX_TIME_MS + 1)
    for value in (*BEYOND, datetime(1969, 12, 31, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(InvalidParameter):
            registration(value)


async def test_a_batch_with_any_times_is_stored_or_refused_and_read_again(live_node: LiveNode) -> None:
    """The queue holds back what is due later; the batch beside it is delivered as ever."""
    await ask(make_queue)
    extremes = (-(2**63), -1, 0, MAX_TIME_MS + 1, 2**53, 2**63 - 1)
    async with socket(live_node, PRODUCE, producer="p") as producer:
        await producer.expect(Welcome)
        for number, (published_at_ms, deliver_at_ms) in enumerate(
            (published, due)
            for published in extremes
            for due in (0, *[each for each in extremes if each > 0])
        ):
            record = Record("k", b"v", number, event_time_ms=published_at_ms)
            data = encode_batch([record], published_at_ms=published_at_ms, deliver_at_ms=deliver_at_ms)
            await producer.send(Publish(number, 0, False, data))
            await producer.expect(Receipt)
    async with queue_peer(live_node, "a") as consumer:
        await consumer.attach()
        assert len(await consumer.take(len(extremes))) == len(extremes)
        await consumer.nothing_comes()
        assert not consumer.frames
    peeked = await asyncio.to_thread(rest, live_node, "GET", f"{QUEUE_PATH}/peek?count=100")
    assert len(peeked.json()["messages"]) == 24
