"""What watchers of a topic see (PIP-468, DAG Watch Sessions): one state of it, and the frames that tell it.

A state is read in one snapshot of the database. From two states follow the frames: a snapshot tells one
whole, a delta what differs. Watchers that asked for the layout alone are told only what concerns the layout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from django.conf import settings
from django.utils import timezone

from scalable.domain.errors import TopicNotFound
from scalable.domain.names import TopicName
from scalable.domain.segment import Segment
from scalable.services import loads
from scalable.services.policies import resolve
from scalable.services.topics import ensure_topic
from scalable.store import decisions, operations
from scalable.store import watching as store
from scalable.store.clock import milliseconds
from scalable.store.operations import OperationView
from scalable.store.sampling import UNSAMPLED_TENANT
from scalable.store.watching import TopicHead
from scalable.wire.frames import Delta, SegmentFrame, Snapshot, TopicDetail

LOOK_UP = "look-up"
RECENT_OPERATIONS = 20
CHILDREN_SHOWN = 64


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
    """The present life of a topic's name, begun here if topics are made on demand; raises TopicNotFound."""
    incarnation = store.incarnation_of(name)
    if incarnation is not None:
        return incarnation
    may_create = settings.SCALABLE_AUTO_CREATE_TOPICS and not settings.SCALABLE_READ_ONLY
    if may_create and name.tenant != UNSAMPLED_TENANT:
        return ensure_topic(name=name, actor=LOOK_UP)
    raise TopicNotFound(topic=str(name))


def topology(*, incarnation: int, detail: bool = False, known: Topology | None = None) -> Topology | None:
    """The state of a topic now, or None once it is deleted.

    `known` is an earlier state, of which only what changed since is read again.
    """
    if known is not None and not detail:
        head = _read_head(incarnation)
        if head is not None and head.epoch == known.epoch:
            return _state(incarnation, head, known.segments, None)
    with store.one_snapshot():
        head = _read_head(incarnation)
        if head is None:
            return None
        segments = _segments(incarnation, head, known)
        return _state(incarnation, head, segments, _detail(incarnation, head) if detail else None)


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
    held = before.segments
    changed = [
        segment
        for key, segment in after.segments.items()
        if held.get(key) is not segment and held.get(key) != segment  # most are the very same object
    ]
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
        entryBucketSplits=list(segment.entry_bucket_splits),
        nodeUrl=node_url if segment.is_active else None,
    )


def _read_head(incarnation: int) -> TopicHead | None:
    return store.read_head(incarnation, node_timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS)


def _state(
    incarnation: int, head: TopicHead, segments: Mapping[int, SegmentFrame], detail: TopicDetail | None
) -> Topology:
    return Topology(
        topic=str(head.name),
        incarnation=incarnation,
        epoch=head.epoch,
        revision=head.revision,
        term=head.term,
        next_segment_id=head.next_segment_id,
        controller_url=head.controller_url,
        segments=segments,
        detail=detail,
    )


def _segments(incarnation: int, head: TopicHead, known: Topology | None) -> Mapping[int, SegmentFrame]:
    if known is not None and known.epoch == head.epoch:
        return known.segments
    if known is not None:
        changed = _frames(store.read_segments(incarnation, since_epoch=known.epoch))
        segments = {**known.segments, **changed}
        if len(segments) == head.segment_count:  # else some were pruned, and their children changed too
            return segments
    return _frames(store.read_segments(incarnation))


def _frames(segments: Iterable[Segment]) -> dict[int, SegmentFrame]:
    # Every node serves every segment of a data plane that lives in the database; the nearest is this one.
    url = settings.SCALABLE_NODE_URL
    return {segment.segment_id: segment_frame(segment, node_url=url) for segment in segments}


def _detail(incarnation: int, head: TopicHead) -> TopicDetail:
    topic_policy, namespace_policy = store.read_policies(incarnation)
    policy = resolve(topic=topic_policy, namespace=namespace_policy)
    rates = loads.loads_for_decision(
        incarnation=incarnation,
        rate_window_seconds=policy.policy.rate_window_seconds,
        now_ms=milliseconds(timezone.now()),
    ).to_json()
    newest_operations = operations.newest(head.name, limit=RECENT_OPERATIONS, unfinished_only=False)
    newest_decisions = decisions.newest(head.name, limit=1)
    return TopicDetail(
        operations=[_short(operation) for operation in newest_operations],
        decision=newest_decisions[0].to_json() if newest_decisions else None,
        loads=rates["segments"],
        loadKnown=rates["known"],
        policy=policy.to_json(),
    )


def _short(operation: OperationView) -> dict[str, object]:
    """An operation for a frame, which must stay small: of a very wide split only the first children."""
    body = operation.to_json()
    return {**body, "plan": {**body["plan"], "children": body["plan"]["children"][:CHILDREN_SHOWN]}}
