"""What a produce socket has taken in for one segment and not yet answered, in order."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from scalable.domain.errors import ScalableError
from scalable.wire.batch_header import BatchHeader
from scalable.wire.frames import Publish

MAX_GROUP_BATCHES = 128
MAX_GROUP_BYTES = 4 * 1024 * 1024


class Pending(NamedTuple):
    """A batch with its header, or with the reason why it cannot be stored."""

    publish: Publish
    header: BatchHeader | None
    problem: ScalableError | None = None


@dataclass(slots=True)
class SegmentStream:
    """The batches of one segment: stored in groups, one group at a time, so that their order holds.

    A refusal breaks the stream: what was sent after it is refused too, up to the batch that restarts it.
    `broken_by` is the refusal; `cautious` counts the batches to store one by one, after a group in which
    one of them was refused.
    """

    segment_id: int
    pending: deque[Pending] = field(default_factory=deque)
    broken_by: ScalableError | None = None
    cautious: int = 0
    running: bool = False

    def next_group(self) -> tuple[list[Pending], list[Pending]]:
        """Take the next batches to store together, and those before them that the break refuses."""
        refused: list[Pending] = []
        while self.pending and self.broken_by is not None and not self.pending[0].publish.restart:
            refused.append(self.pending.popleft())
        if self.pending:
            self.broken_by = None
        return self._take_group(), refused

    def put_back(self, group: list[Pending]) -> None:
        """Take back batches that were not tried, in front of the others."""
        self.pending.extendleft(reversed(group))

    def _take_group(self) -> list[Pending]:
        group: list[Pending] = []
        limit, size = (1 if self.cautious else MAX_GROUP_BATCHES), 0
        while self.pending and len(group) < limit and size < MAX_GROUP_BYTES:
            if self.pending[0].problem is not None and group:
                break
            group.append(self.pending.popleft())
            size += len(group[-1].publish.batch)
            if group[-1].problem is not None:
                break
        self.cautious -= len(group) if self.cautious else 0
        return group
