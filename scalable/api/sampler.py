"""Counts what goes through this node and turns it into load samples, interval by interval.

One numbered message per node and interval goes to `topic://system/load/samples`, also when nothing
happened: the pipeline's clock stands still without. A topic is sampled at the multiples of its interval, so
that a message tells all of it up to the last multiple, and not more. A segment that fell idle is reported
once with zeros, and so is one that this node sees for the first time, or a load from an earlier life of the
node would stay for ever.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from scalable.api.counters import SegmentCounts
from scalable.api.executor import Call
from scalable.api.hub import Watch, hub, policy_key, topic_key
from scalable.api.looking import Looker
from scalable.api.sample_feed import KeyCounts, Sample, SampleFeed
from scalable.domain.load import IDLE_INTERVAL_SECONDS
from scalable.domain.names import TopicName
from scalable.services import sampling
from scalable.services.sampling import UNSAMPLED_TENANT, NewSegment, TopicSampling
from scalable.wire.batch_header import BatchHeader
from scalable.wire.frames import Publish

IDLE_INTERVAL_MS = IDLE_INTERVAL_SECONDS * 1_000
LOOK_SECONDS = 1.0
"""How long counts of a topic that is new to this node wait until its interval is asked for."""
NEW_SEGMENTS_MS = 5_000
NEW_SEGMENTS_OVERLAP = 200
"""Rows read again, because a row with a lower number may be committed later."""
FORGET_AFTER_MS = 600_000
LONGEST_SAMPLE_MS = 3_600_000
"""Readers take no longer one for a sample."""
ASKED_AT_ONCE = 200
"""Of the topics of a namespace whose policy changed: the others wait until samples that are due are taken."""
A_MOMENT_MS = 1
"""What a sample covers of a segment that the node has seen just now: the time before is not the segment's."""
FINISH_SECONDS = 2.0
MOST_KEYS = 8
"""Of one sample: so that a message of hundreds of samples has room for all."""
NO_COUNTS = SegmentCounts()

SegmentRef = tuple[int, int]


@dataclass(slots=True)
class SampledTopic:
    """A topic's interval on this node's clock; `busy` are the segments whose last sample was not all zero.

    That sample, or the topic's first one, ended at `taken_ms`.
    """

    sampling: TopicSampling
    due_ms: int
    used_ms: int
    taken_ms: int
    busy: set[int] = field(default_factory=set)

    def covered_ms(self, segment_id: int, counts: SegmentCounts, now_ms: int) -> int:
        """Give what a sample covers that is taken now: one that follows another all since that one.

        Otherwise the time since the first count, since the segment may be no older.
        """
        since_ms = self.taken_ms if segment_id in self.busy else counts.since_ms
        return min(max(now_ms - since_ms, A_MOMENT_MS), LONGEST_SAMPLE_MS)


@dataclass(slots=True)
class Totals:
    """What went through this process since it began."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0


class Sampler:
    """The counts of this process, taken once an interval; lives on the event loop."""

    def __init__(self, *, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.totals = Totals()
        self._clock_ms = clock_ms
        self._looker = Looker()
        self._counts: dict[int, dict[int, SegmentCounts]] = {}
        self._topics: dict[int, SampledTopic] = {}
        self._sharing: dict[str, set[int]] = {}
        self._changed: set[int] = set()
        self._new: dict[SegmentRef, TopicSampling] = {}
        self._seen_rows: set[int] = set()
        self._above_row = 0
        self._new_due_ms = 0
        self._idle_due_ms = 0

    def count_in(self, topic: TopicName, incarnation: int, publish: Publish, header: BatchHeader) -> None:
        """Count a batch that was stored."""
        self.totals.messages_in += header.count
        self.totals.bytes_in += len(publish.batch)
        if topic.tenant != UNSAMPLED_TENANT:
            counts = self._counts_of(incarnation, publish.segment_id)
            span = (header.hash_min, header.hash_max)
            counts.add_in(header.count, len(publish.batch), parts=publish.parts, span=span)
            counts.add_keys(self._looker.keys(publish.batch, header))

    def count_out(
        self, topic: TopicName, incarnation: int, segment_id: int, *, messages: int, size: int
    ) -> None:
        """Count a batch that was delivered."""
        self.totals.messages_out += messages
        self.totals.bytes_out += size
        if topic.tenant != UNSAMPLED_TENANT:
            self._counts_of(incarnation, segment_id).add_out(messages, size)

    async def run(self, feed: SampleFeed, call: Call) -> None:
        """Sample until cancelled; may be called again after an error, with nothing lost."""
        topics = (topic_key(incarnation) for incarnation in self._topics)
        with hub.watch(*topics, *self._sharing) as watch:
            self._changed.update(self._topics)  # nobody watched them just now
            while True:
                await self._learn(call, watch)
                await self._look_for_new_segments(call)
                if self.take(feed):
                    await feed.publish(call)
                self._note_changed(await watch.wait(self._seconds_to_wait()))
                await self._ask_about_changed(call, watch)

    async def finish(self, feed: SampleFeed, call: Call) -> None:
        """Publish what was counted since the last interval, as the node ends."""
        for known in self._topics.values():
            known.due_ms = 0
        self.take(feed)
        async with asyncio.timeout(FINISH_SECONDS):
            await feed.publish(call)

    def take(self, feed: SampleFeed) -> bool:
        """Hand the samples of all intervals that ended to the feed; tell whether there was one."""
        now_ms = self._clock_ms()
        due = [known for known in self._topics.values() if known.due_ms <= now_ms]
        if not due and not self._new and now_ms < self._idle_due_ms:
            return False
        samples = [sample for known in due for sample in self._take_topic(known, now_ms)]
        every_ms = self._idle_interval_ms
        feed.add([*samples, *self._first_samples()], at_ms=now_ms, every_ms=every_ms)
        self._idle_due_ms = _next_multiple(now_ms, every_ms)
        return True

    def _counts_of(self, incarnation: int, segment_id: int) -> SegmentCounts:
        segments = self._counts.setdefault(incarnation, {})
        found = segments.get(segment_id)
        if found is None:
            found = segments[segment_id] = SegmentCounts(since_ms=self._clock_ms())
        return found

    # Samples.

    def _take_topic(self, known: SampledTopic, now_ms: int) -> Iterator[Sample]:
        counts = self._counts.pop(known.sampling.incarnation, {})
        known.due_ms = _next_multiple(now_ms, known.sampling.interval_ms)
        if counts:
            known.used_ms = now_ms
        for segment_id in sorted(counts.keys() | known.busy):
            counted = counts.get(segment_id, NO_COUNTS)
            covered_ms = known.covered_ms(segment_id, counted, now_ms)
            yield _sample(known.sampling, segment_id, counted, covered_ms=covered_ms)
        known.busy, known.taken_ms = set(counts), now_ms

    def _first_samples(self) -> Iterator[Sample]:
        new, self._new = self._new, {}
        for (_, segment_id), topic in new.items():
            yield _sample(topic, segment_id, NO_COUNTS, covered_ms=A_MOMENT_MS)

    # What the node knows of topics.

    async def _learn(self, call: Call, watch: Watch) -> None:
        for incarnation in [known for known in self._counts if known not in self._topics]:
            await self._ask(call, watch, incarnation)
        forget_before_ms = self._clock_ms() - FORGET_AFTER_MS
        for incarnation in [key for key in self._topics if self._is_unused(key, forget_before_ms)]:
            self._forget(watch, incarnation)

    def _is_unused(self, incarnation: int, before_ms: int) -> bool:
        """Tell whether nothing waits for the end of an interval, which may be hours away."""
        known = self._topics[incarnation]
        return known.used_ms < before_ms and not known.busy and incarnation not in self._counts

    def _note_changed(self, keys: frozenset[str]) -> None:
        for key in keys:
            self._changed |= self._sharing[key] if key in self._sharing else {_incarnation(key)}

    async def _ask_about_changed(self, call: Call, watch: Watch) -> None:
        for incarnation in list(islice(self._changed, ASKED_AT_ONCE)):
            await self._ask(call, watch, incarnation)
            self._changed.discard(incarnation)

    async def _ask(self, call: Call, watch: Watch, incarnation: int) -> None:
        watch.add(topic_key(incarnation))  # first, so that no change goes unseen
        topic = await call(sampling.topic_sampling, incarnation=incarnation)
        if topic is not None and self._watch_policy(watch, topic):
            # What was read may be from before a change that nobody watched for yet.
            self._know(topic)
            topic = await call(sampling.topic_sampling, incarnation=incarnation)
        if topic is None:
            self._forget(watch, incarnation)
        else:
            self._know(topic)

    def _watch_policy(self, watch: Watch, topic: TopicSampling) -> bool:
        """Watch the policy of a topic's namespace; tell whether it was not watched yet."""
        key = policy_key(topic.name.tenant, topic.name.namespace)
        is_new = key not in self._sharing
        watch.add(key)
        self._sharing.setdefault(key, set()).add(topic.incarnation)
        return is_new

    def _know(self, topic: TopicSampling) -> None:
        known, now_ms = self._topics.get(topic.incarnation), self._clock_ms()
        if known is None:
            # What was counted before the interval was known may belong to one that has ended meanwhile.
            waiting = self._counts.get(topic.incarnation, {}).values()
            since_ms = min((counts.since_ms for counts in waiting), default=now_ms)
            due_ms = _next_multiple(since_ms, topic.interval_ms)
            self._topics[topic.incarnation] = SampledTopic(topic, due_ms, used_ms=now_ms, taken_ms=now_ms)
        else:
            due_ms = _next_multiple(now_ms, topic.interval_ms)
            known.sampling, known.due_ms = topic, min(known.due_ms, due_ms)

    def _forget(self, watch: Watch, incarnation: int) -> None:
        watch.discard(topic_key(incarnation))
        self._changed.discard(incarnation)
        self._counts.pop(incarnation, None)
        known = self._topics.pop(incarnation, None)
        if known is not None:
            self._unwatch_policy(watch, known.sampling)

    def _unwatch_policy(self, watch: Watch, topic: TopicSampling) -> None:
        """Watch the policy of a topic's namespace no longer than another topic shares it."""
        key = policy_key(topic.name.tenant, topic.name.namespace)
        self._sharing[key].discard(topic.incarnation)
        if not self._sharing[key]:
            del self._sharing[key]
            watch.discard(key)

    async def _look_for_new_segments(self, call: Call) -> None:
        if self._clock_ms() < self._new_due_ms:
            return
        above = max(0, self._above_row - NEW_SEGMENTS_OVERLAP)
        found = [
            new for new in await call(sampling.new_segments, above=above) if new.row_id not in self._seen_rows
        ]
        for new in found:
            self._note_new(new)
        self._seen_rows = {
            row_id for row_id in self._seen_rows if row_id > self._above_row - NEW_SEGMENTS_OVERLAP
        }
        # As long as there are more, the next ones are read with the next look.
        self._new_due_ms = 0 if found else self._clock_ms() + NEW_SEGMENTS_MS

    def _note_new(self, new: NewSegment) -> None:
        self._seen_rows.add(new.row_id)
        self._above_row = max(self._above_row, new.row_id)
        incarnation = new.topic.incarnation
        if new.segment_id not in self._counts.get(incarnation, {}):
            self._new[incarnation, new.segment_id] = new.topic

    @property
    def _idle_interval_ms(self) -> int:
        wanted = (known.sampling.interval_ms for known in self._topics.values())
        return min([IDLE_INTERVAL_MS, *wanted])

    def _seconds_to_wait(self) -> float:
        if self._changed:
            return 0.0
        due_ms = min([self._idle_due_ms, *(known.due_ms for known in self._topics.values())])
        return min(LOOK_SECONDS, max(0.0, (due_ms - self._clock_ms()) / 1000))


def _sample(topic: TopicSampling, segment_id: int, counts: SegmentCounts, *, covered_ms: int) -> Sample:
    hash_range = topic.ranges.get(segment_id)
    return Sample(
        topic=str(topic.name),
        incarnation=topic.incarnation,
        segment_id=segment_id,
        interval_ms=covered_ms,
        every_ms=topic.interval_ms,
        window_ms=topic.window_ms,
        msg_in=counts.messages_in,
        bytes_in=counts.bytes_in,
        msg_out=counts.messages_out,
        bytes_out=counts.bytes_out,
        parts=counts.parts if hash_range is None else counts.placed(hash_range),
        hot_keys=_key_counts(counts),
    )


def _key_counts(counts: SegmentCounts) -> KeyCounts | None:
    if counts.keys is None:
        return None
    top = counts.keys.top(MOST_KEYS)
    return KeyCounts(seen=top.seen, error=top.error, counts=top.counts)


def _incarnation(key: str) -> int:
    return int(key.partition(":")[2])


def _next_multiple(now_ms: int, interval_ms: int) -> int:
    """The next end of an interval, the same for all topics with this interval."""
    return (now_ms // interval_ms + 1) * interval_ms


sampler = Sampler()
