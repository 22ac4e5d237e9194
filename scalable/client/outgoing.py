"""What a message must be before a producer takes it in."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, NamedTuple, SupportsIndex, TypedDict

from scalable.client.batches import LENGTH_BYTES, Entry, utf8_size
from scalable.domain.errors import BatchInvalid, MessageTooLarge
from scalable.domain.keyspace import key_hash, segment_hash
from scalable.wire.batch import NO_SEQUENCE, Codec, Record, encode_batch
from scalable.wire.texts import too_long

COMPRESSIONS = tuple(codec.name.lower() for codec in Codec)
MAX_SEQUENCE = MAX_TIME_MS = 2**63 - 1
HEAD_SHARE = 16
"""Of a frame, one part of so many is left to what stands around the key, the value and the properties."""
NUMBERED_PER_HASH = 1_000
"""So many numbers in a row of keyless messages have one hash, so that they share batches."""


class MessageOptions(TypedDict, total=False):
    """What may be said of a message beside its key and value.

    `event_time_ms`: milliseconds since 1970. `deliver_at` (with a time zone) or `deliver_after`: consumers of
    QUEUE subscriptions get the message then, all others at once. `sequence`: a number of the application's;
    they must rise, see `Producer.last_sequence`.
    """

    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence: int | None
    deliver_at: datetime | None
    deliver_after: timedelta | None


class MessageLimits(NamedTuple):
    """How many bytes a message may have, less its key, and a frame with all that there is of it."""

    message_bytes: int
    frame_bytes: int

    def check(self, size: int, extra: int) -> None:
        """Compare the size of a value with its properties, and of what else is sent.

        Raises MessageTooLarge.
        """
        if size > self.message_bytes:
            raise MessageTooLarge(size_bytes=size, limit_bytes=self.message_bytes)
        room = self.frame_bytes - self.frame_bytes // HEAD_SHARE
        if size + extra > room:
            raise MessageTooLarge(size_bytes=size + extra, limit_bytes=room)


class Numbering:
    """Who numbers a producer's messages, the application or the producer, and the last number given."""

    def __init__(self) -> None:
        self._by_application: bool | None = None
        self._last = NO_SEQUENCE

    @property
    def by_application(self) -> bool:
        """Tell whether the application gives the numbers."""
        return bool(self._by_application)

    def check(self, sequence: int | None) -> None:
        """Refuse a number that does not rise, and numbers for some messages only; raises BatchInvalid."""
        by_application = sequence is not None
        if self._by_application not in {None, by_application}:
            raise BatchInvalid(problem="either all messages of a producer have a sequence or none has")
        if by_application and not isinstance(sequence, SupportsIndex):
            raise BatchInvalid(problem=f"the sequence {sequence} is no whole number")
        if sequence is not None and not self._last < sequence <= MAX_SEQUENCE:
            raise BatchInvalid(problem=f"the sequence {sequence} does not rise above {self._last}")

    @contextmanager
    def using(self, sequence: int | None) -> Iterator[None]:
        """Take a number that was checked; if the block fails, and no later one was taken, it is free."""
        before = self._by_application, self._last
        self._by_application = sequence is not None
        taken = self._last = self._last if sequence is None else sequence
        try:
            yield
        except BaseException:
            if sequence is not None and self._last == taken:
                self._by_application, self._last = before
            raise


def make_entry(
    key: str | None,
    value: bytes,
    *,
    handle: Any,
    limits: MessageLimits,
    properties: Mapping[str, str] | None = None,
    event_time_ms: int = 0,
    sequence: int | None = None,
    deliver_at: datetime | None = None,
    deliver_after: timedelta | None = None,
) -> Entry:
    """Check a message and make the entry of it; raises MessageTooLarge, BatchInvalid.

    What the format cannot hold must not be found out when it shares a batch with others.
    """
    value, pairs = _octets(value), _pairs(properties)
    texts = [text for pair in pairs.items() for text in pair]
    size = len(value) + sum(len(_utf8(text, "property")) for text in texts)
    if key is not None and (problem := _utf8(key, "key") and too_long("its key", key)):
        raise BatchInvalid(problem=problem)
    limits.check(size, utf8_size(key or "") + 2 * LENGTH_BYTES * len(pairs))
    _check_time(event_time_ms)
    if pairs:
        encode_batch([Record(key, b"", properties=pairs)], published_at_ms=0)
    return Entry(
        key=key,
        value=value,
        hash16=_hash(key, sequence),
        handle=handle,
        properties=pairs,
        event_time_ms=event_time_ms,
        sequence=NO_SEQUENCE if sequence is None else sequence,
        numbered=sequence is not None,
        deliver_at_ms=_deliver_at_ms(deliver_at, deliver_after),
    )


def _pairs(properties: object) -> dict[str, str]:
    """Copy the properties: the application may go on with its mapping while the message waits."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise BatchInvalid(problem=f"its properties are of the type {type(properties).__name__}, no mapping")
    return dict(properties)


def _check_time(event_time_ms: object) -> None:
    if not isinstance(event_time_ms, SupportsIndex):
        raise BatchInvalid(problem=f"its event time {event_time_ms!r} is no whole number of milliseconds")
    if not -MAX_TIME_MS - 1 <= index(event_time_ms) <= MAX_TIME_MS:
        raise BatchInvalid(problem=f"its event time {event_time_ms} is beyond what 64 bits hold")


def _octets(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise BatchInvalid(problem=f"its value is of the type {type(value).__name__}, not bytes")


def _utf8(text: object, what: str) -> bytes:
    if not isinstance(text, str):
        raise BatchInvalid(problem=f"its {what} is of the type {type(text).__name__}, not text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BatchInvalid(problem=f"its {what} has no form in UTF-8: {error}") from error


def _hash(key: str | None, sequence: int | None) -> int:
    """Route by the key, or by the number: sent again, a message must come to where it was.

    A keyless message without a number gets its hash from the segments' turns.
    """
    if key is not None:
        return segment_hash(key_hash(key))
    return 0 if sequence is None else segment_hash(key_hash(str(sequence // NUMBERED_PER_HASH)))


def codec_of(compression: str) -> Codec:
    """Give the codec of that name; raises ValueError for one that there is not."""
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is not one of {', '.join(COMPRESSIONS)}: {compression!r}")
    return Codec[compression.upper()]


def _deliver_at_ms(at: object, after: object) -> int:
    if at is None and after is None:
        return 0
    if at is not None and after is not None:
        raise BatchInvalid(problem="it has two times of delivery")
    if not isinstance(at, datetime | None):
        raise BatchInvalid(problem=f"its time of delivery {at!r} is no datetime")
    if not isinstance(after, timedelta | None):
        raise BatchInvalid(problem=f"its delay {after!r} is no timedelta")
    if at is not None and at.utcoffset() is None:
        raise BatchInvalid(problem="its time of delivery has no time zone")
    try:
        due = at if after is None else datetime.fromtimestamp(time.time(), UTC) + after
    except OverflowError as error:
        raise BatchInvalid(problem=f"its delay of {after} is too long") from error
    due_ms = 0 if due is None else int(due.timestamp() * 1000)
    if due_ms <= 0:
        raise BatchInvalid(problem=f"its time of delivery {due} is before 1970")
    return due_ms
