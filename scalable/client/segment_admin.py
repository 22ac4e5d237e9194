"""Single segments by REST, for the system role: what Pulsar's brokers ask of one another."""

from __future__ import annotations

from collections.abc import Collection

from scalable.client.rest import RestClient, quoted
from scalable.domain.names import SegmentName

SEGMENT_ROOT = "/admin/v2/segments"


class SegmentAdmin(RestClient):
    """What `Admin` does about single segments, which are `segment://tenant/namespace/topic/0000-7fff-1`."""

    def ensure_segment(self, segment: SegmentName | str, *, subscriptions: Collection[str] = ()) -> None:
        """Make an active segment's store and cursors where they are missing.

        Raises TopicNotFound, SegmentNotFound, SubscriptionNotFound, SegmentStoreMissing.
        """
        self._call("PUT", _path(segment), json=list(subscriptions))

    def terminate_segment(self, segment: SegmentName | str) -> None:
        """Let a segment take no more messages; raises TopicNotFound, SegmentNotFound, SegmentNotLoaded."""
        self._call("POST", _path(segment, "terminate"))

    def delete_segment(self, segment: SegmentName | str, *, force: bool = False) -> None:
        """Prune a sealed segment; raises SegmentNotPrunable, SegmentClaimed."""
        self._call("DELETE", _path(segment), params={"force": str(force).lower()})

    def ensure_segment_cursor(self, segment: SegmentName | str, subscription: str) -> None:
        """Make the cursors that a subscription lacks in a segment; raises SubscriptionNotFound."""
        self._call("PUT", _path(segment, "subscription", subscription))

    def delete_segment_cursor(self, segment: SegmentName | str, subscription: str) -> None:
        """Remove what a deleted subscription left in a segment; raises CursorNeeded."""
        self._call("DELETE", _path(segment, "subscription", subscription))

    def segment_backlog(self, segment: SegmentName | str, subscription: str) -> int:
        """Count what a subscription has not acknowledged of a segment; raises SubscriptionNotFound."""
        return int(self._json("GET", _path(segment, "subscription", subscription, "backlog")))

    def seek_segment(self, segment: SegmentName | str, subscription: str, timestamp_ms: int) -> None:
        """Go on from a time in one segment; raises SubscriptionNotFound, SegmentNotLoaded."""
        path = _path(segment, "subscription", subscription, "seek")
        self._call("POST", path, params={"timestamp": timestamp_ms})

    def clear_segment_backlog(self, segment: SegmentName | str, subscription: str) -> None:
        """Skip what one segment has; raises SubscriptionNotFound, SegmentNotLoaded."""
        self._call("POST", _path(segment, "subscription", subscription, "skip-all"))


def _path(segment: SegmentName | str, *more: str) -> str:
    name = segment if isinstance(segment, SegmentName) else SegmentName.parse(segment)
    topic = name.topic
    return f"{SEGMENT_ROOT}/{quoted(topic.tenant, topic.namespace, topic.name, name.descriptor, *more)}"
