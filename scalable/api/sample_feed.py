"""Numbers, keeps and publishes messages of load samples: none is lost silently, a repeat is recognised."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from scalable.api.executor import Call
from scalable.services import sampling
from scalable.wire.batch import Record, encode_batch

logger = logging.getLogger(__name__)

MAX_SAMPLES = 800
"""Samples in one message; more make several messages, the last of which is the complete one.

So many fit into a batch whatever the names of topics and the keys are like.
"""
MAX_BACKLOG = 1_000


class KeyCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Hot keys of the messages that were looked at, see `scalable.domain.sketch`."""

    seen: int
    error: int
    counts: Mapping[str, int]


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What went through one segment in the `interval_ms` that end with its message.

    `every_ms` is the interval of the topic's policy, at whose multiples it is sampled. `parts` are the
    messages in by 1/32 of the segment's range.
    """

    topic: str
    incarnation: int
    segment_id: int
    interval_ms: int
    every_ms: int
    window_ms: int
    msg_in: int
    bytes_in: int
    msg_out: int
    bytes_out: int
    parts: Sequence[int]
    hot_keys: KeyCounts | None = None


class SampleMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All samples of a node for the interval that ends at `at_ms`, or a part of them.

    The next message follows within `every_ms`, if the node is well.
    """

    node: str
    sequence: int
    at_ms: int
    every_ms: int
    complete: bool
    samples: Sequence[Sample]


class SampleFeed:
    """The messages of one life of a node: numbered from 0, published in order, kept until they are stored."""

    def __init__(self, *, node_id: str) -> None:
        self.node_id = node_id
        self._sequence = 0
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._publishing = asyncio.Lock()
        self._failing = False

    def add(self, samples: Sequence[Sample], *, at_ms: int, every_ms: int) -> None:
        """Number the samples of an interval, also when there are none; more follow within `every_ms`."""
        for start in range(0, max(1, len(samples)), MAX_SAMPLES):
            message = SampleMessage(
                node=self.node_id,
                sequence=self._sequence,
                at_ms=at_ms,
                every_ms=every_ms,
                complete=start + MAX_SAMPLES >= len(samples),
                samples=samples[start : start + MAX_SAMPLES],
            )
            self._backlog.append((self._sequence, _encode(message)))
            self._sequence += 1
        while len(self._backlog) > MAX_BACKLOG:
            # Readers see the gap in the numbers.
            logger.error(
                "Load samples %d are lost: they could not be stored for long", self._backlog.popleft()[0]
            )

    async def publish(self, call: Call) -> None:
        """Store what waits, in order; what cannot be stored now is tried again with the next message."""
        async with self._publishing:
            while self._backlog:
                if not await self._store(call, self._backlog[0][1]):
                    return
                self._backlog.popleft()

    async def _store(self, call: Call, batch: bytes) -> bool:
        try:
            await call(sampling.publish_samples, node_id=self.node_id, batch=batch)
        except Exception:
            if not self._failing:
                logger.warning("Load samples wait: they cannot be stored", exc_info=True)
            self._failing = True
            return False
        self._failing = False
        return True


def _encode(message: SampleMessage) -> bytes:
    record = Record(message.node, msgspec.json.encode(message), message.sequence, message.at_ms)
    return encode_batch([record], published_at_ms=message.at_ms)
