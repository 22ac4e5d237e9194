"""Random histories of a topic: the backlog is what a fresh reader would receive, whatever came before."""

import random
from collections.abc import Callable, Iterator

import pytest

from scalable.domain.cursors import bucket_ranges, cursor_name
from scalable.domain.layout import Layout, Segment
from scalable.domain.operations import Outcome
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.services import scaling, seeking
from scalable.services.backlogs import backlog_of
from scalable.services.positions import AtPositions
from scalable.services.topics import TopicView
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.batch import Record, encode_batch
from scalable.wire.bucket_batch import cut_batch, decode_cut
from tests.segments.samples import keys_within
from tests.services.test_subscriptions import create
from tests.topology import ACTOR, drive, layout_of, make_topic

pytestmark = pytest.mark.django_db
STEPS = 40


class History:
    """A topic with one subscription of each kind, and random things that happen to it."""

    def __init__(self, port: SegmentPort, seed: int) -> None:
        self.port, self.chance = port, random.Random(seed)
        self.topic: TopicView = make_topic(segments=2)
        self.stream = create(self.topic, "stream")
        self.shared = create(self.topic, "shared", key_shared=True)
        self.queue = create(self.topic, "queue", kind=SubscriptionType.QUEUE)
        self.steps: list[Callable[[], None]] = [
            *[self.append] * 4,
            *[self.acknowledge] * 4,
            self.split,
            self.merge,
            self.seek,
            self.skip,
            self.trim,
        ]

    @property
    def layout(self) -> Layout:
        return layout_of(self.topic)

    @property
    def subscriptions(self) -> tuple[SubscriptionView, ...]:
        return self.stream, self.shared, self.queue

    def key(self, segment: Segment) -> SegmentKey:
        return SegmentKey(self.topic.incarnation, segment.segment_id)

    def any_segment(self) -> Segment:
        return self.chance.choice(sorted(self.layout.segments.values(), key=lambda one: one.segment_id))

    def append(self) -> None:
        segment = self.chance.choice(self.layout.active)
        keys = keys_within(segment.hash_range, 8)
        records = [Record(self.chance.choice(keys), b"value") for _ in range(self.chance.randrange(1, 12))]
        starts = [one.start for one in bucket_ranges(segment.entry_bucket_splits)[1:]]
        batch = encode_batch(records, published_at_ms=0, bucket_starts=starts)
        self.port.append(self.key(segment), [batch], producer=None)

    def acknowledge(self) -> None:
        segment = self.any_segment()
        stats = self.port.stats(self.key(segment))
        for name in ("stream", *self.shared_cursors(segment)):
            if self.chance.random() < 0.5:
                cursor = self.port.cursor(self.key(segment), subscription=name)
                assert cursor is not None
                if stats.end_offset > cursor.position:
                    position = self.chance.randint(cursor.position, stats.end_offset)
                    self.port.acknowledge(
                        self.key(segment), subscription=name, generation=cursor.generation, position=position
                    )
        if stats.end_offset > stats.start_offset:
            first = self.chance.randrange(stats.start_offset, stats.end_offset)
            end = min(stats.end_offset, first + self.chance.randrange(1, 4))
            for name in ("queue", *self.shared_cursors(segment)):
                if name == "queue" or self.chance.random() < 0.5:
                    self.port.acknowledge_ranges(
                        self.key(segment), subscription=name, generation=None, ranges=[(first, end)]
                    )

    def split(self) -> None:
        wide = [one for one in self.layout.active if one.hash_range.size > 4096]
        if wide and len(self.layout.active) < 5:
            self.reshape(
                scaling.request_split(
                    name=self.topic.name, segment_id=self.chance.choice(wide).segment_id, actor=ACTOR
                )
            )

    def merge(self) -> None:
        active = self.layout.active
        if len(active) > 1:
            at = self.chance.randrange(len(active) - 1)
            pair = [one.segment_id for one in active[at : at + 2]]
            self.reshape(scaling.request_merge(name=self.topic.name, segment_ids=pair, actor=ACTOR))

    def reshape(self, operation: scaling.OperationView) -> None:
        assert drive(operation).outcome is Outcome.SUCCEEDED

    def seek(self) -> None:
        positions = {}
        for segment in self.layout.segments.values():
            stats = self.port.stats(self.key(segment))
            positions[segment.segment_id] = self.chance.randint(stats.start_offset, stats.end_offset)
        chosen = self.chance.choice(self.subscriptions)
        seeking.seek(name=self.topic.name, subscription=chosen.name, start=AtPositions(positions))

    def skip(self) -> None:
        chosen, count = self.chance.choice(self.subscriptions), self.chance.randrange(1, 30)
        before = sum(self.received(chosen).values())
        seeking.skip(name=self.topic.name, subscription=chosen.name, count=count)
        assert sum(self.received(chosen).values()) == max(0, before - count)

    def trim(self) -> None:
        segment = self.any_segment()
        end = self.port.stats(self.key(segment)).end_offset
        self.port.trim(self.key(segment), before_offset=self.chance.randint(0, end), max_batches=2)

    def shared_cursors(self, segment: Segment) -> list[str]:
        return [cursor_name("shared", each) for each in bucket_ranges(segment.entry_bucket_splits)]

    # What a fresh reader gets.

    def received(self, subscription: SubscriptionView) -> dict[int, int]:
        """Count what each segment would give to readers that begin at the cursors."""
        return {
            key: sum(1 for _ in self.messages(subscription, segment))
            for key, segment in sorted(self.layout.segments.items())
        }

    def messages(self, subscription: SubscriptionView, segment: Segment) -> Iterator[int]:
        if not subscription.key_shared:
            state = self.port.cursor(self.key(segment), subscription=subscription.name)
            assert state is not None
            acknowledged = {each for first, end in state.acknowledged for each in range(first, end)}
            for base, count, _ in self.batches(segment):
                for offset in range(base, base + count):
                    if offset >= state.position and offset not in acknowledged:
                        yield offset
            return
        for bucket in bucket_ranges(segment.entry_bucket_splits):
            state = self.port.cursor(self.key(segment), subscription=cursor_name("shared", bucket))
            assert state is not None
            acknowledged = {each for first, end in state.acknowledged for each in range(first, end)}
            for base, _, payload in self.batches(segment):
                cut = cut_batch(payload, bucket, base_offset=base)
                records = decode_cut(cut.payload, bucket, base_offset=base).records if cut else ()
                for place, _ in records:
                    if base + place >= state.position and base + place not in acknowledged:
                        yield base + place

    def batches(self, segment: Segment) -> Iterator[tuple[int, int, bytes]]:
        offset = 0
        while True:
            page = self.port.read(self.key(segment), offset=offset, max_bytes=1_000_000, max_batches=1_000)
            if not page.batches:
                return
            yield from ((each.base_offset, each.count, each.payload) for each in page.batches)
            offset = page.next_offset


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_backlog_is_what_a_fresh_reader_receives(port: SegmentPort, seed: int) -> None:
    history = History(port, seed)
    for _ in range(STEPS):
        history.chance.choice(history.steps)()
        for subscription in history.subscriptions:
            told = backlog_of(subscription, history.layout)
            assert told.exact
            assert told.pending == history.received(subscription), (seed, subscription.name)
