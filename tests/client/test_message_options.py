"""Each option of a message with values of another type or beyond its range: refused as a message, by name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import pytest

from scalable.client import Admin, Producer
from scalable.client.outgoing import MessageOptions
from scalable.domain.errors import BatchInvalid, MessageTooLarge
from tests.processes import LiveNode


class Nowhere(tzinfo):
    """A zone that does not say where it is."""

    def utcoffset(self, moment: datetime | None, /) -> None:
        return None

    def dst(self, moment: datetime | None, /) -> None:
        return None

    def tzname(self, moment: datetime | None, /) -> None:
        return None


BIGINT = 2**63
REFUSED: dict[str, tuple[Any, ...]] = {
    "properties": ("text", ["a"], {"a": 1}, {1: "a"}, {"a": None}, {"\ud800": "a"}, {"a": "x" * 65_536}),
    "event_time_ms": (None, "5", 5.0, float("nan"), BIGINT, -BIGINT - 1, datetime.now(UTC)),
    "sequence": ("5", 5.0, float("nan"), -1, BIGINT, [1]),
    "deliver_at": (
        5,
        "2026-01-01",
        date(2026, 1, 1),
        timedelta(1),
        datetime(2026, 1, 1),
        datetime(2026, 1, 1, tzinfo=Nowhere()),
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    ),
    "deliver_after": (5, 0.5, "5", datetime.now(UTC), timedelta.max, timedelta.min, timedelta(-40_000)),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "key": (5, b"k", ["k"], "\ud800", "k" * 65_536),
    "value": ("text", 5, None, [1]),
}


def test_every_option_is_tried() -> None:
    assert REFUSED.keys() == MessageOptions.__annotations__.keys()


async def test_what_cannot_be_written_is_refused_and_nothing_is_sent(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    cases = [(name, value) for table in (REFUSED, ARGUMENTS) for name in table for value in table[name]]
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        for name, value in cases:
            message = {"key": "k", "value": b"v", name: value}
            with pytest.raises((BatchInvalid, MessageTooLarge)):
                await producer.send(message.pop("key"), message.pop("value"), **message)
        await producer.send("k", b"v", deliver_at=datetime.max.replace(tzinfo=UTC))
        await producer.send("k", b"v", deliver_after=timedelta(0), event_time_ms=-BIGINT)
    ends = [each["endOffset"] for each in admin.positions(topic)["segments"].values()]
    assert sum(ends) == 2
