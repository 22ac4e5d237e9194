"""Counts what goes through this node and publishes it as load samples.

One numbered batch per node and interval goes to `topic://system/load/samples`, also when nothing happened:
the pipeline's clock stands still without. A segment that fell idle is reported once with zeros, and so is
one that this node sees for the first time, or a load from an earlier life of the node would stay for ever.
"""

from scalable.api.counters import SegmentCounts
from scalable.domain.names import TopicName
from scalable.wire.batch_header import BatchHeader
from scalable.wire.frames import Publish

UNSAMPLED_TENANT = "system"
SegmentRef = tuple[int, int]


class Sampler:
    """The counts of this process, taken once an interval; lives on the event loop."""

    def __init__(self) -> None:
        self._counts: dict[SegmentRef, SegmentCounts] = {}

    def count_in(self, topic: TopicName, incarnation: int, publish: Publish, header: BatchHeader) -> None:
        """Count a batch that was stored."""
        if topic.tenant != UNSAMPLED_TENANT:
            self._counts_of(incarnation, publish.segment_id).add_in(
                header.count,
                len(publish.batch),
                parts=publish.parts,
                span=(header.hash_min, header.hash_max),
            )

    def count_out(
        self, topic: TopicName, incarnation: int, segment_id: int, *, messages: int, size: int
    ) -> None:
        """Count a batch that was delivered."""
        if topic.tenant != UNSAMPLED_TENANT:
            self._counts_of(incarnation, segment_id).add_out(messages, size)

    def _counts_of(self, incarnation: int, segment_id: int) -> SegmentCounts:
        found = self._counts.get((incarnation, segment_id))
        if found is None:
            found = self._counts[incarnation, segment_id] = SegmentCounts()
        return found


sampler = Sampler()
