"""The DAG watch: a topic's layout as the server pushes it (PIP-468, DAG Watch Sessions)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import msgspec

from scalable.client.connection import Connection, ConnectionLost, Endpoint, open_connection
from scalable.client.watch import CLOSED, Watch
from scalable.domain.errors import TopicDeleted, TopicNotFound
from scalable.domain.keyspace import FULL_RANGE
from scalable.domain.names import TopicName
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Delta,
    Hello,
    SegmentFrame,
    Snapshot,
    TopicDetail,
)


class RevisionGap(Exception):
    """A delta does not follow the revision that is held; a fresh snapshot is needed."""


@dataclass(frozen=True)
class Topology:
    """One revision of a topic's layout, as a watcher sees it."""

    incarnation: int
    epoch: int
    revision: int
    term: int
    next_segment_id: int
    controller_url: str | None
    controller_url_tls: str | None
    segments: Mapping[int, SegmentFrame]
    detail: TopicDetail | None = None

    @cached_property
    def active(self) -> tuple[SegmentFrame, ...]:
        """The segments that take messages, by the start of their ranges; they cover the whole hash space."""
        found = (segment for segment in self.segments.values() if segment.state == "ACTIVE")
        return tuple(sorted(found, key=lambda segment: segment.start))

    @cached_property
    def _starts(self) -> list[int]:
        return [segment.start for segment in self.active]

    def find_active(self, hash16: int) -> SegmentFrame:
        """Give the active segment whose range has the hash (0..65535)."""
        return self.active[bisect_right(self._starts, hash16) - 1]

    def is_active(self, segment_id: int) -> bool:
        """Tell whether the segment takes messages; a pruned one does not."""
        segment = self.segments.get(segment_id)
        return segment is not None and segment.state == "ACTIVE"

    @property
    def is_complete(self) -> bool:
        """Tell whether the active segments cover the hash space, each hash once."""
        ends = [segment.end for segment in self.active]
        return bool(ends) and [0, *(end + 1 for end in ends)] == [*self._starts, FULL_RANGE.end + 1]

    @property
    def order(self) -> tuple[int, int, int]:
        """What orders two states of one name: a later life of the topic, a later revision, a later leader."""
        return self.incarnation, self.revision, self.term


def from_snapshot(frame: Snapshot) -> Topology:
    """Read a snapshot frame."""
    return Topology(
        incarnation=frame.incarnation,
        epoch=frame.epoch,
        revision=frame.revision,
        term=frame.term,
        next_segment_id=frame.next_segment_id,
        controller_url=frame.controller_url,
        controller_url_tls=frame.controller_url_tls,
        segments={segment.segmentId: segment for segment in frame.segments},
        detail=frame.detail,
    )


def apply_delta(topology: Topology, frame: Delta) -> Topology:
    """Give the topology that follows; raises RevisionGap when the delta was made for another revision."""
    if (frame.incarnation, frame.base_revision) != (topology.incarnation, topology.revision):
        raise RevisionGap(f"at revision {topology.revision}, the delta follows {frame.base_revision}")
    changed = {segment.segmentId: segment for segment in frame.segments}
    kept = {key: value for key, value in topology.segments.items() if key not in set(frame.removed)}
    return Topology(
        incarnation=frame.incarnation,
        epoch=frame.epoch,
        revision=frame.revision,
        term=frame.term,
        next_segment_id=frame.next_segment_id,
        controller_url=frame.controller_url,
        controller_url_tls=frame.controller_url_tls,
        segments={**kept, **changed},
        detail=frame.detail or topology.detail,
    )


def with_successors(topology: Topology, epoch: int, successors: Iterable[SegmentFrame]) -> Topology | None:
    """Put what came of a sealed segment, as of an epoch, into an earlier layout.

    None when nothing of it is new, or when it does not fit: then a part is missing, which the watch brings.
    """
    found = {segment.segmentId: segment for segment in successors}
    segments = {**topology.segments, **found}
    for parent_id in {parent_id for segment in found.values() for parent_id in segment.parentIds}:
        parent = segments.get(parent_id)
        if parent is not None:
            segments[parent_id] = msgspec.structs.replace(parent, state="SEALED", nodeUrl=None)
    after = replace(topology, epoch=epoch, segments=segments)
    fits = epoch >= topology.epoch and after.is_complete
    return after if fits and after.active != topology.active else None


class TopologyWatch(Watch[Topology]):
    """Follows a topic's layout over one socket; reconnects by itself and never goes back to an older state.

    `on_change` is called in the event loop with each newer topology; what it raises ends the watch.
    With `detail="full"` it also tells operations, loads, policy and the autoscaler's last decision
    (`Topology.detail`).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        topic: TopicName,
        *,
        client: str = "python",
        detail: Literal["layout", "full"] = "layout",
        on_change: Callable[[Topology], None] | None = None,
    ) -> None:
        super().__init__(endpoint, topic, client=client)
        self._topic = topic
        self._detail: Literal["layout", "full"] = detail
        self._on_change = on_change
        self._current: Topology | None = None

    @property
    def current(self) -> Topology | None:
        """The newest topology heard of, or None before the first."""
        return self._current

    async def wait_for_epoch(self, above: int, timeout_seconds: float | None = None) -> Topology:
        """Wait for a layout newer than the epoch `above`; raises TopicDeleted, TimeoutError."""
        return await self.wait_for(lambda topology: topology.epoch > above, timeout_seconds)

    def _state(self) -> Topology | None:
        return self._current

    async def _keep_following(self) -> None:
        try:
            await super()._keep_following()
        except TopicNotFound as error:
            if self._current is not None:
                raise TopicDeleted(topic=str(self._topic)) from error
            raise

    async def _session(self) -> None:
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            client=self._client,
            session_id=self._session_id,
            detail=self._detail,
        )
        connection = await open_connection(self._endpoint, "lookup", self._topic, hello=hello)
        try:
            await self._follow(connection)
        except RevisionGap as gap:
            raise ConnectionLost(CLOSED, str(gap)) from gap
        finally:
            await connection.close()

    async def _follow(self, connection: Connection) -> None:
        """Adopt what this connection tells; its deltas chain on its own snapshot."""
        held: Topology | None = None
        while True:
            frame = await connection.receive()
            if isinstance(frame, Snapshot):
                held = from_snapshot(frame)
                self.backoff.reset()
            elif isinstance(frame, Delta) and held is not None:
                held = apply_delta(held, frame)
            else:
                continue
            self._adopt(held)

    def _adopt(self, topology: Topology) -> None:
        current = self._current
        if current is not None and topology.incarnation != current.incarnation:
            # Another topic has the name by now; what was routed to the old one must not end in the new one.
            if topology.incarnation > current.incarnation:
                raise TopicDeleted(topic=str(self._topic))
            return
        if current is not None and topology.order <= current.order:
            return
        self._current = topology
        self._pulse()
        self._tell(self._on_change, topology)
