"""What watchers of a topic see (PIP-468, DAG Watch Sessions): one state of it, and the frames that tell it.

A state is read in one snapshot of the database. From two states follow the frames: a snapshot tells one
whole, a delta what differs. Watchers that asked for the layout alone are told only what concerns the layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from django.conf import settings
from django.utils import timezone

from scalable.domain.errors import TopicNotFound
from scalable.domain.names import TopicName
from scalable.domain.policy import EffectivePolicy, resolve
from scalable.domain.segment import Segment
from scalable.services import loads
from scalable.store import decisions, operations
from scalable.store import watching as store
from scalable.store.clock import milliseconds
from scalable.store.watching import TopicHead
from scalable.wire.frames import Delta, SegmentFrame, Snapshot, TopicDetail

RECENT_OPERATIONS = 20


@dataclass(frozen=True, slots=True)
class Topology:
    """All that a watcher sees of a topic; `detail` is None for those who watch the layout alone."""

    topic: str
    incarnation: int
    epoch: int
    revision: int
    term: int
    next_segment_id: int
    controller_url: str | None
    segments: Mapping[int, SegmentFrame]
    detail: TopicDetail | None = None

    @property
    def controller_url_tls(self) -> str | None:
        """The leader's address once more, if it is an encrypted one."""
        url = self.controller_url
        return url if url and url.startswith("https://") else None

    def looks_like(self, other: "Topology") -> bool:
        """Tell whether a watcher need not hear of the other: nothing differs but counters."""
        return self == replace(other, revision=self.revision, next_segment_id=self.next_segment_id)


def find_incarnation(*, name: TopicName) -> int:
    """The present life of a topic's name; raises TopicNotFound."""
    incarnation = store.incarnation_of(name)
    if incarnation is None:
        raise TopicNotFound(topic=str(name))
    return incarnation


def topology(*, incarnation: int, detail: bool = False, known: Topology | None = None) -> Topology | None:
    """The state of a topic now, or None once it is deleted.

    `known` is an earlier state: its segments are not read again while the epoch stands.
    """
    with store.one_snapshot():
        head = store.read_head(incarnation, node_timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS)
        if head is None:
            return None
        return Topology(
            topic=str(head.name),
            incarnation=incarnation,
            epoch=head.epoch,
            revision=head.revision,
            term=head.term,
            next_segment_id=head.next_segment_id,
            controller_url=head.controller_url,
            segments=known.segments if known and known.epoch == head.epoch else _segments(incarnation),
            detail=_detail(head) if detail else None,
        )


def snapshot(state: Topology, *, session_id: str = "") -> Snapshot:
    """The frame that tells a state whole."""
    return Snapshot(
        session_id=session_id,
        topic=state.topic,
        incarnation=state.incarnation,
        epoch=state.epoch,
        revision=state.revision,
        term=state.term,
        next_segment_id=state.next_segment_id,
        controller_url=state.controller_url,
        controller_url_tls=state.controller_url_tls,
        segments=list(state.segments.values()),
        detail=state.detail,
    )


def delta(before: Topology, after: Topology, *, session_id: str = "") -> Delta:
    """The frame that makes a watcher who holds `before` hold `after`; both are of one incarnation."""
    changed = [segment for key, segment in after.segments.items() if before.segments.get(key) != segment]
    return Delta(
        session_id=session_id,
        incarnation=after.incarnation,
        base_revision=before.revision,
        epoch=after.epoch,
        revision=after.revision,
        term=after.term,
        next_segment_id=after.next_segment_id,
        controller_url=after.controller_url,
        controller_url_tls=after.controller_url_tls,
        segments=changed,
        removed=sorted(before.segments.keys() - after.segments.keys()),
        detail=after.detail if after.detail != before.detail else None,
    )


def segment_frame(segment: Segment, *, node_url: str) -> SegmentFrame:
    """A segment by Pulsar's field names, with the node that serves it while it is active."""
    return SegmentFrame(
        segmentId=segment.segment_id,
        start=segment.hash_range.start,
        end=segment.hash_range.end,
        state=segment.state.value,
        parentIds=list(segment.parent_ids),
        childIds=list(segment.child_ids),
        createdAtEpoch=segment.created_epoch,
        sealedAtEpoch=segment.sealed_epoch,
        createdAtMs=segment.created_at_ms,
        sealedAtMs=segment.sealed_at_ms,
        nodeUrl=node_url if segment.is_active else None,
    )


def _segments(incarnation: int) -> dict[int, SegmentFrame]:
    # Every node serves every segment of a data plane that lives in the database; the nearest is this one.
    url = settings.SCALABLE_NODE_URL
    return {
        segment.segment_id: segment_frame(segment, node_url=url)
        for segment in store.read_segments(incarnation)
    }


def _detail(head: TopicHead) -> TopicDetail:
    policy = resolve(
        topic=cast("Mapping[str, Any]", head.topic_policy),
        namespace=cast("Mapping[str, Any]", head.namespace_policy),
    )
    rates = loads.loads_for_decision(
        incarnation=head.incarnation,
        rate_window_seconds=policy.policy.rate_window_seconds,
        now_ms=milliseconds(timezone.now()),
    ).to_json()
    return TopicDetail(
        operations=_operations(head),
        decision=_last_decision(head),
        loads=rates["segments"],
        loadKnown=rates["known"],
        policy=_policy(policy),
    )


def _operations(head: TopicHead) -> list[dict[str, object]]:
    newest = operations.newest(head.name, limit=RECENT_OPERATIONS, unfinished_only=False)
    return [operation.to_json() for operation in newest]


def _last_decision(head: TopicHead) -> dict[str, object] | None:
    newest = decisions.newest(head.name, limit=1)
    return newest[0].to_json() if newest else None


def _policy(policy: EffectivePolicy) -> dict[str, object]:
    return policy.to_json()
