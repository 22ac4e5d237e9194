"""Thousands of entry buckets that pass to others at once are told of as fast as the peer reads."""

from types import SimpleNamespace
from typing import Any

import pytest

from scalable.api.node import node
from scalable.api.sockets.consume import ConsumeSocket
from scalable.domain.subscriptions import BucketKey

MANY = 2_000


async def test_many_lost_at_once_do_not_make_a_reader_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def owned(_: object) -> dict[BucketKey, Any]:
        return {}

    monkeypatch.setattr(node.crowds, "owned", owned)
    session: Any = ConsumeSocket()
    session.subscription = SimpleNamespace(subscription_id=1, incarnation=1)
    session._context = SimpleNamespace(consumer="a")
    for bucket in range(MANY):
        key = BucketKey(0, bucket)
        session._readers[key] = SimpleNamespace(key=key, generation=1, task=None)
        session._read_of[0] += 1
    dropping = session.spawn(session._drop_lost_segments())
    told = [await session.outbox.take() for _ in range(2 * MANY)]
    await dropping
    assert (len(told), session.outbox.ending, session._readers) == (2 * MANY, None, {})
    assert [text.count('"type":"detached"') for text in told] == [0, 1] * MANY
