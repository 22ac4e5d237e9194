"""Nodes of a test: the product's own sampler and feed on a virtual clock, with counts at will."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from scalable.api.executor import Call
from scalable.api.hub import hub
from scalable.api.sample_feed import SampleFeed
from scalable.api.sampler import Sampler
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.services import sampling
from scalable.services.sampling import NewSegment, TopicSampling
from scalable.wire.batch import Record, decode_batch, decode_header, encode_batch
from scalable.wire.frames import Publish
from tests.spark.oracle import Message

START_MS = 1_795_000_020_000
SEGMENTS = 4
TICK_MS = 200
_BATCH = encode_batch([Record(None, b"")], published_at_ms=1)
_HEADER = decode_header(_BATCH)


def sampled(name: str, incarnation: int, *, interval_ms: int, window_ms: int) -> TopicSampling:
    """A topic as nodes know it, with segments of the whole range each: only the samples matter here."""
    ranges = {segment_id: HashRange(0, 0xFFFF) for segment_id in range(SEGMENTS)}
    return TopicSampling(TopicName("public", "default", name), incarnation, interval_ms, window_ms, ranges)


@dataclass
class Rows:
    """What nodes ask the database for: topics, and segments in the order of their making."""

    topics: dict[int, TopicSampling]
    segments: list[NewSegment] = field(default_factory=list)

    def make_segment(self, incarnation: int, segment_id: int) -> None:
        """Make an active segment."""
        row_id = len(self.segments) + 1
        self.segments.append(NewSegment(row_id, segment_id, self.topics[incarnation]))


class Node:
    """One node; `clock_ms` is its own clock."""

    def __init__(self, name: str, rows: Rows, clock_ms: Callable[[], int]) -> None:
        self._sampler = Sampler(clock_ms=clock_ms)
        self._feed = SampleFeed(node_id=name)
        self._rows = rows
        self._stored: list[Message] = []

    def count(self, incarnation: int, segment_id: int, messages: int) -> None:
        """Count so many messages in, spread over the whole range."""
        publish = Publish(request_id=1, segment_id=segment_id, restart=False, batch=_BATCH)
        header = replace(_HEADER, count=messages, hash_min=0, hash_max=0xFFFF)
        self._sampler.count_in(self._rows.topics[incarnation].name, incarnation, publish, header)

    async def work(self) -> list[Message]:
        """Do what the sampler's loop does in one turn, and give the messages that were published."""
        call = self.call
        with hub.watch() as watch:
            await self._sampler._learn(call, watch)
        await self._sampler._look_for_new_segments(call)
        if self._sampler.take(self._feed):
            await self._feed.publish(call)
        return self._take_stored()

    async def hear(self, incarnation: int) -> None:
        """Be told that a topic has changed."""
        with hub.watch() as watch:
            await self._sampler._ask(self.call, watch, incarnation)

    async def finish(self) -> list[Message]:
        """End, and give the messages that were published."""
        await self._sampler.finish(self._feed, self.call)
        return self._take_stored()

    @property
    def call(self) -> Call:
        """The way to the database."""
        return cast(Call, self._call)

    def _take_stored(self) -> list[Message]:
        stored, self._stored = self._stored, []
        return stored

    async def _call(self, function: Callable[..., Any], **given: Any) -> Any:
        if function is sampling.topic_sampling:
            return self._rows.topics.get(given["incarnation"])
        if function is sampling.new_segments:
            return [new for new in self._rows.segments if new.row_id > given["above"]]
        self._stored += [json.loads(record.value) for record in decode_batch(given["batch"])]
        return None


def messages_of(tiles: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int, int], float]:
    """Messages that tiles tell, by topic, segment and minute; a later tile replaces an earlier one."""
    return {
        (tile["incarnation"], tile["segmentId"], tile["minuteMs"]): sum(tile["mean"])
        * tile["observedMs"]
        / 1000
        for tile in tiles
    }
