"""A topic's layout by REST: where a key is, what came of what, changes on paper, operations again."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from scalable.client.rest import Json, RestClient, body_of, listed, topic_path
from scalable.domain.errors import OperationWaitLimit
from scalable.domain.names import TopicName


class LayoutAdmin(RestClient):
    """What `Admin` asks about layouts."""

    def locate(self, topic: TopicName | str, key: str, *, at_ms: int | None = None) -> Json:
        """Give the segment of a key, now or at a time, its line, and how far each subscription is with it."""
        params: Json = {"key": key} if at_ms is None else {"key": key, "atTime": at_ms}
        return self._object("GET", topic_path(topic, "locate"), params=params)

    def lineage(self, topic: TopicName | str, *, pruned: int = 1_000, pruned_offset: int = 0) -> Json:
        """Give the segments as nodes and edges, with so many of those that were pruned last."""
        params = {"pruned": pruned, "prunedOffset": pruned_offset}
        return self._object("GET", topic_path(topic, "lineage"), params=params)

    def pruned_segments(self, topic: TopicName | str, *, limit: int = 100, offset: int = 0) -> list[Json]:
        """List the segments that were pruned, the last first."""
        params = {"limit": limit, "offset": offset}
        return listed(self._json("GET", topic_path(topic, "prunedSegments"), params=params), "segments")

    def segment_stats(self, topic: TopicName | str, segment_id: int) -> Json:
        """Give a segment's offsets, size, rates and subscriptions; raises SegmentNotFound."""
        return self._object("GET", topic_path(topic, "segments", segment_id, "stats"))

    def preview_split(
        self,
        topic: TopicName | str,
        segment_id: int,
        *,
        boundaries: Sequence[int] | None = None,
        expected_epoch: int | None = None,
    ) -> Json:
        """Tell what a split would do: children, their rates, whose work would move; raises as `split`."""
        body = {"boundaries": list(boundaries)} if boundaries is not None else None
        params = _previewed(expected_epoch)
        return self._object("POST", topic_path(topic, "split", segment_id), params=params, json=body)

    def preview_merge(
        self, topic: TopicName | str, segment_ids: Sequence[int], *, expected_epoch: int | None = None
    ) -> Json:
        """Tell what a merge would do; raises as `merge`."""
        body = {"segmentIds": list(segment_ids)}
        return self._object("POST", topic_path(topic, "merge"), params=_previewed(expected_epoch), json=body)

    def preview_rebucket(
        self, topic: TopicName | str, segment_id: int, bucket_count: int, *, expected_epoch: int | None = None
    ) -> Json:
        """Tell what a rebucket would do; raises as `rebucket`."""
        params = {**_previewed(expected_epoch), "bucketCount": bucket_count}
        return self._object("POST", topic_path(topic, "rebucket", segment_id), params=params)

    def merge_pair(self, topic: TopicName | str, first_id: int, second_id: int) -> None:
        """Merge two neighbours, as Pulsar has it, and wait; raises as `merge`."""
        self._end(self._call("POST", topic_path(topic, "merge", first_id, second_id)))

    def retry_operation(self, topic: TopicName | str, operation_id: str, *, wait: bool = True) -> Json | None:
        """Ask anew for what failed or was aborted; waits for the end, or returns the operation at once.

        Raises OperationNotFound, OperationNotRetriable, and what the operation itself would raise now.
        """
        headers = {} if wait else {"Prefer": "respond-async"}
        path = topic_path(topic, "operations", operation_id, "retry")
        answer = self._call("POST", path, headers=headers)
        if wait:
            self._end(answer)
        return None if answer.status_code == 204 else dict(body_of(answer))

    def migrate(self, topic: TopicName | str, *, force: bool = False) -> None:
        """Make a scalable topic of an ordinary one; raises NotSupported without an adapter for Pulsar."""
        self._call("POST", topic_path(topic, "migrate"), params={"force": str(force).lower()})

    def _end(self, answer: httpx.Response) -> None:
        if answer.status_code == 202:
            raise OperationWaitLimit(operation_id=str(body_of(answer)["operationId"]), wait_seconds=30.0)


def _previewed(expected_epoch: int | None) -> Json:
    epoch = {} if expected_epoch is None else {"expectedEpoch": expected_epoch}
    return {"preview": "true", **epoch}
