"""A model of the server's side of producing: segments, marks, seals, streams that break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from scalable.client.batches import Batch
from scalable.client.topology import Topology
from scalable.domain.errors import (
    BatchPartlyDuplicate,
    BatchTooLarge,
    ScalableError,
    SegmentTerminated,
    StreamBroken,
)
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout
from scalable.domain.operations import OperationKind
from scalable.domain.segment import Segment, SegmentState
from scalable.wire.frames import SegmentFrame
from scalable.wire.marks import Mark, Verdict, clip, flatten, judge


@dataclass
class ModelSegment:
    """A log with its producer marks: those inherited, and the producer's own last batch."""

    hash_range: HashRange
    inherited: list[Mark] = field(default_factory=list)
    own: int = -1
    log: list[tuple[str | None, bytes, int]] = field(default_factory=list)
    terminated: bool = False

    @property
    def marks(self) -> list[Mark]:
        own = [Mark(self.hash_range.start, self.hash_range.end, self.own)] if self.own >= 0 else []
        return [*self.inherited, *own]


class ModelServer:
    """One topic and one producer's connection to it; a batch of more than `most_records` is too large."""

    def __init__(self) -> None:
        self.most_records = 65_535
        self.layout = Layout.initial(1, 0)
        self.segments = {0: ModelSegment(HashRange(0, 65535))}
        self.broken: set[int] = set()

    def topology(self) -> Topology:
        return Topology(
            incarnation=1,
            epoch=self.layout.epoch,
            revision=self.layout.epoch,
            term=1,
            next_segment_id=self.layout.next_segment_id,
            controller_url=None,
            controller_url_tls=None,
            segments={key: _frame(value) for key, value in self.layout.segments.items()},
        )

    def reshape(self, kind: OperationKind, segment_ids: list[int]) -> None:
        if kind is OperationKind.SPLIT:
            plan = self.layout.plan_split(segment_ids[0])
        else:
            plan = self.layout.plan_merge(segment_ids)
        parents = [self.segments[parent] for parent in plan.parent_ids]
        for child in plan.children:
            marks = clip([mark for parent in parents for mark in parent.marks], child.hash_range)
            self.segments[child.segment_id] = ModelSegment(child.hash_range, inherited=marks)
        for parent in parents:
            parent.terminated = True
        self.layout = self.layout.reserve(plan).apply(plan, 0)

    def publish(self, batch: Batch) -> int | ScalableError:
        """Store a batch: its base offset, or the refusal."""
        if batch.restart:
            self.broken.discard(batch.segment_id)
        if batch.segment_id in self.broken:
            return StreamBroken(producer="p", segment_id=batch.segment_id, problem="an earlier refusal")
        answer = self._too_large(batch) or self._append(self.segments[batch.segment_id], batch)
        if isinstance(answer, ScalableError):
            self.broken.add(batch.segment_id)
        return answer

    def _too_large(self, batch: Batch) -> ScalableError | None:
        size, limit = len(batch.entries), self.most_records
        return BatchTooLarge(size_bytes=size, limit_bytes=limit) if size > limit else None

    def _append(self, segment: ModelSegment, batch: Batch) -> int | ScalableError:
        if segment.terminated:
            successors = [msgspec.to_builtins(frame) for frame in self._line(batch.segment_id)]
            return SegmentTerminated(
                segment_id=batch.segment_id, epoch=self.layout.epoch, successors=successors
            )
        assert all(segment.hash_range.contains(entry.hash16) for entry in batch.entries), "wrong segment"
        hashes = [entry.hash16 for entry in batch.entries]
        first, last = batch.entries[0].sequence, batch.entries[-1].sequence
        verdict = judge(segment.marks, HashRange(min(hashes), max(hashes)), first, last)
        if verdict is Verdict.NEW:
            base_offset = len(segment.log)
            segment.log += [(entry.key, entry.value, entry.sequence) for entry in batch.entries]
            segment.own = last
            return base_offset
        if verdict is Verdict.DUPLICATE:
            return -1
        return BatchPartlyDuplicate(
            segment_id=batch.segment_id, sequence=first, marks=[list(mark) for mark in flatten(segment.marks)]
        )

    def _line(self, segment_id: int) -> list[SegmentFrame]:
        """What came of a segment."""
        children = self.layout.segments[segment_id].child_ids
        below = {frame.segmentId: frame for child in children for frame in self._line(child)}
        return [*(_frame(self.layout.segments[child]) for child in children), *below.values()]

    def stored(self) -> dict[str | None, list[bytes]]:
        """Everything by key, parents before children."""
        found: dict[str | None, list[bytes]] = {}
        for segment_id in sorted(self.segments):
            for key, value, _ in self.segments[segment_id].log:
                found.setdefault(key, []).append(value)
        return found


def _frame(segment: Segment) -> SegmentFrame:
    body: dict[str, Any] = segment.to_json()
    hash_range = body.pop("hashRange")
    return SegmentFrame(
        **{**body, "state": "ACTIVE" if segment.state is SegmentState.ACTIVE else "SEALED"},
        start=hash_range["start"],
        end=hash_range["end"],
    )
