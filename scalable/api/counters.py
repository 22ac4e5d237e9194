"""Counts of messages and bytes by segment since they were last taken: what load samples are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scalable.domain.keyspace import HashRange
from scalable.domain.sketch import HotKeys
from scalable.wire.frames import PARTS

MAX_SPANS = 64

Span = tuple[int, int]
"""Least and greatest segment hash of a batch."""


@dataclass(slots=True)
class SegmentCounts:
    """Messages and bytes in and out of one segment since a time; messages in also by 1/32 of its range.

    Exact where producers counted the parts. What came without is kept by the batch's span of hashes and
    spread evenly over it when the counts are taken.
    """

    since_ms: int = 0
    """When the first of them was counted."""
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    parts: list[int] = field(default_factory=lambda: [0] * PARTS)
    spans: dict[Span, int] = field(default_factory=dict)
    keys: HotKeys | None = None
    """Of the messages in that were looked at."""

    def add_in(self, messages: int, size: int, *, parts: Sequence[int] | None, span: Span) -> None:
        """Count a stored batch."""
        self.messages_in += messages
        self.bytes_in += size
        if parts is not None:
            self.parts = [total + part for total, part in zip(self.parts, parts, strict=True)]
        else:
            self._add_span(span, messages)

    def add_keys(self, keys: Sequence[str]) -> None:
        """Count keys of messages in."""
        if keys:
            self.keys = self.keys or HotKeys()
            self.keys.add(keys)

    def add_out(self, messages: int, size: int) -> None:
        """Count a delivered batch."""
        self.messages_out += messages
        self.bytes_out += size

    def placed(self, hash_range: HashRange) -> list[int]:
        """Give the messages in by 1/32 of the segment's range; their sum is `messages_in`."""
        total = list(self.parts)
        for span, messages in self.spans.items():
            for part, count in spread(span, messages, hash_range).items():
                total[part] += count
        return total

    def _add_span(self, span: Span, messages: int) -> None:
        if span not in self.spans and len(self.spans) >= MAX_SPANS:
            start, end = min(key[0] for key in self.spans), max(key[1] for key in self.spans)
            self.spans = {(start, end): sum(self.spans.values())}
        self.spans[span] = self.spans.get(span, 0) + messages


def spread(span: Span, messages: int, hash_range: HashRange) -> Mapping[int, int]:
    """Spread messages evenly over the parts of a range that a span of hashes touches."""
    first, last = (
        hash_range.part_of(min(max(bound, hash_range.start), hash_range.end), PARTS) for bound in span
    )
    width = last - first + 1
    return {
        first + index: messages * (index + 1) // width - messages * index // width for index in range(width)
    }
