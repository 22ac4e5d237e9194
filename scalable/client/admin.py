"""The administrative face of the client, by REST: topics, split and merge, policies, loads, positions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalable.client.access_admin import AccessAdmin
from scalable.client.job_admin import JobAdmin
from scalable.client.layout_admin import LayoutAdmin
from scalable.client.rest import ROOT, Json, body_of
from scalable.client.rest import listed as _listed
from scalable.client.rest import quoted as _quoted
from scalable.client.rest import topic_path as _path
from scalable.client.segment_admin import SegmentAdmin
from scalable.client.subscription_admin import SubscriptionAdmin
from scalable.client.tenant_admin import TenantAdmin
from scalable.domain.errors import OperationWaitLimit
from scalable.domain.names import TopicName

LOAD_ROOT = "/admin/v2/scalable-load"
NAMESPACE_ROOT = "/admin/v2/namespaces"
_BATCH_HEAD = struct.Struct(">QI")


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Encoded batches of a segment with the offset of each, and where to read on."""

    batches: tuple[tuple[int, bytes], ...]
    next_offset: int
    end_offset: int
    terminated: bool

    @property
    def at_end(self) -> bool:
        """True when the segment takes no more messages and all of it was read."""
        return self.terminated and self.next_offset >= self.end_offset


class Admin(SubscriptionAdmin, AccessAdmin, LayoutAdmin, TenantAdmin, SegmentAdmin, JobAdmin):
    """Synchronous REST client; every method raises the domain's errors by their codes, or ConnectionLost.

    Topics are `topic://tenant/namespace/name` or `TopicName`. One instance may be used by several threads.
    Of several nodes the next one is asked when one does not answer. Changes carry an idempotency key, so that
    one whose answer was lost is asked for again and done once; not so a token, which is kept for nobody.
    """

    # Topics

    def create_topic(
        self,
        topic: TopicName | str,
        *,
        initial_segments: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; raises TopicExists, NamespaceNotFound, InvalidName, InvalidInitialSegments."""
        params = {"numInitialSegments": initial_segments}
        self._call("PUT", _path(topic), params=params, json=dict(properties) if properties else None)

    def get_topic(self, topic: TopicName | str) -> Json:
        """Give the topic's metadata: epoch, segments by id, properties, policy; raises TopicNotFound."""
        return self._object("GET", _path(topic))

    def set_properties(
        self, topic: TopicName | str, properties: Mapping[str, str], *, expected_epoch: int | None = None
    ) -> None:
        """Replace all properties of a topic; raises TopicNotFound, EpochMoved."""
        params = _expected(expected_epoch)
        self._call("PUT", _path(topic, "properties"), params=params, json=dict(properties))

    def properties(self, topic: TopicName | str) -> dict[str, str]:
        """Give the topic's properties; raises TopicNotFound."""
        return self._object("GET", _path(topic, "properties"))

    def list_topics(
        self,
        namespace: str,
        *,
        properties: Mapping[str, str] | None = None,
        limit: int = 1_000,
        offset: int = 0,
    ) -> list[str]:
        """Name the topics of `tenant/namespace` that have all the properties, by name, a page of them.

        Raises NamespaceNotFound.
        """
        filters = [f"{key}={value}" for key, value in (properties or {}).items()]
        tenant, _, name = namespace.partition("/")
        params = {"property": filters, "limit": limit, "offset": offset}
        names: list[str] = self._json("GET", f"{ROOT}/{_quoted(tenant, name)}", params=params)
        return names

    def delete_topic(
        self, topic: TopicName | str, *, force: bool = False, expected_epoch: int | None = None
    ) -> None:
        """Delete a topic with its messages, once its splits and merges have ended, or at once if forced.

        Raises TopicNotFound, EpochMoved, and SegmentClaimed when the wait for them was too long.
        """
        params = {"force": str(force).lower(), **_expected(expected_epoch)}
        self._call("DELETE", _path(topic), params=params)

    # Namespaces, and how long things are kept

    def create_namespace(self, namespace: str) -> None:
        """Create `tenant/namespace`, unless it exists; raises InvalidName, NamespaceDeleting."""
        self._call("PUT", _namespace_path(namespace))

    def delete_namespace(self, namespace: str, *, force: bool = False) -> bool:
        """Delete a namespace, with its topics if forced; False when the node goes on deleting many topics.

        Raises NamespaceNotFound, NamespaceNotEmpty, NamespaceFixed, TopicsSwitchedOff.
        """
        params = {"force": str(force).lower()}
        return self._call("DELETE", _namespace_path(namespace), params=params).status_code == 204

    def set_namespace_lifetimes(
        self,
        namespace: str,
        *,
        retention_seconds: int | None = None,
        session_grace_seconds: float | None = None,
    ) -> None:
        """Replace what a namespace sets for its topics; None is inherited. Raises NamespaceNotFound."""
        body = _lifetimes(retention_seconds, session_grace_seconds)
        self._call("POST", f"{_namespace_path(namespace)}/lifetimes", json=body)

    def set_lifetimes(
        self,
        topic: TopicName | str,
        *,
        retention_seconds: int | None = None,
        session_grace_seconds: float | None = None,
    ) -> None:
        """Replace how long a topic keeps messages (-1: for ever) and sessions; None is inherited."""
        body = _lifetimes(retention_seconds, session_grace_seconds)
        self._call("POST", _path(topic, "lifetimes"), json=body)

    def lifetimes(self, topic: TopicName | str) -> Json:
        """Give what a topic sets itself, and below `effective` what holds and whose setting it is."""
        return self._object("GET", _path(topic, "lifetimes"))

    # Split, merge and their operations

    def split(
        self,
        topic: TopicName | str,
        segment_id: int,
        *,
        boundaries: Sequence[int] | None = None,
        expected_epoch: int | None = None,
        wait: bool = True,
    ) -> Json | None:
        """Split a segment in two, or at the boundaries (first hashes of the later children).

        Waits for the end, or returns the operation at once. Raises SegmentNotFound, SegmentNotActive,
        SegmentTooNarrow, TooManyParts, InvalidBoundaries, SegmentClaimed, EpochMoved; OperationWaitLimit when
        it goes on.
        """
        body = {"boundaries": list(boundaries)} if boundaries is not None else None
        return self._reshape(_path(topic, "split", segment_id), body, expected_epoch, wait)

    def merge(
        self,
        topic: TopicName | str,
        segment_ids: Sequence[int],
        *,
        expected_epoch: int | None = None,
        wait: bool = True,
    ) -> Json | None:
        """Merge two or more neighbours; waits and raises as `split`, and SegmentsNotAdjacent."""
        body = {"segmentIds": list(segment_ids)}
        return self._reshape(_path(topic, "merge"), body, expected_epoch, wait)

    def rebucket(
        self,
        topic: TopicName | str,
        segment_id: int,
        bucket_count: int,
        *,
        expected_epoch: int | None = None,
        wait: bool = True,
    ) -> Json | None:
        """Replace a segment by one of the same range with so many entry buckets; waits as `split`.

        Raises SegmentNotFound, SegmentNotActive, InvalidBucketCount, BucketCountUnchanged, TooManyBuckets,
        SegmentClaimed, EpochMoved; OperationWaitLimit when it goes on.
        """
        path = _path(topic, "rebucket", segment_id)
        return self._reshape(path, None, expected_epoch, wait, bucketCount=bucket_count)

    def _reshape(
        self, path: str, body: Json | None, expected_epoch: int | None, wait: bool, **params: int
    ) -> Json | None:
        params |= _expected(expected_epoch)
        headers = {} if wait else {"Prefer": "respond-async"}
        answer = self._call("POST", path, params=params, json=body, headers=headers)
        if answer.status_code != 202:
            return None
        operation: Json = body_of(answer)
        if wait:
            raise OperationWaitLimit(operation_id=str(operation["operationId"]), wait_seconds=30.0)
        return operation

    def operations(self, topic: TopicName | str, *, limit: int = 100, unfinished: bool = False) -> list[Json]:
        """List operations, the newest first: kind, phase, outcome, actor, reason, timings."""
        params: Json = {"limit": limit, **({"unfinished": "true"} if unfinished else {})}
        return _listed(self._json("GET", _path(topic, "operations"), params=params), "operations")

    def operation(self, topic: TopicName | str, operation_id: str) -> Json:
        """Give one operation; raises OperationNotFound."""
        return self._object("GET", _path(topic, "operations", operation_id))

    def abort_operation(self, topic: TopicName | str, operation_id: str) -> Json:
        """Abort an operation that has not begun to terminate segments; raises OperationNotAbortable."""
        return self._object("POST", _path(topic, "operations", operation_id, "abort"))

    # Autoscaler

    def set_policy(
        self, topic: TopicName | str, override: Mapping[str, Any], *, expected_epoch: int | None = None
    ) -> None:
        """Replace the topic's autoscale override.

        Raises PolicyUnreadable, PolicyInvalid, UnknownField, EpochMoved.
        """
        params = _expected(expected_epoch)
        self._call("POST", _path(topic, "autoScalePolicy"), params=params, json=dict(override))

    def get_policy(self, topic: TopicName | str) -> Json | None:
        """Give the topic's own override, or None when it has none."""
        answer = self._call("GET", _path(topic, "autoScalePolicy"))
        return None if answer.status_code == 204 else dict(body_of(answer))

    def remove_policy(self, topic: TopicName | str, *, expected_epoch: int | None = None) -> None:
        """Remove the topic's own override; raises EpochMoved."""
        self._call("DELETE", _path(topic, "autoScalePolicy"), params=_expected(expected_epoch))

    def effective_policy(self, topic: TopicName | str) -> Json:
        """Give the resolved policy with the source of each field."""
        return self._object("GET", _path(topic, "autoScalePolicy", "effective"))

    def decisions(self, topic: TopicName | str, *, limit: int = 100, before: int | None = None) -> list[Json]:
        """List the autoscaler's decisions, the newest first, behind the one with the id `before`."""
        params = {"limit": limit} | ({} if before is None else {"before": before})
        return _listed(self._json("GET", _path(topic, "decisions"), params=params), "decisions")

    def preview_decision(self, topic: TopicName | str, policy: Mapping[str, Any] | None = None) -> Json:
        """Tell what would be decided now, under another policy of the topic's own if one is given.

        Nothing is changed. Raises PolicyUnreadable, PolicyInvalid, UnknownField, SegmentsFixed.
        """
        body = None if policy is None else dict(policy)
        return self._object("POST", _path(topic, "decisions", "preview"), json=body)

    def loads(self, topic: TopicName | str) -> Json:
        """Give the rates per segment, the pipeline's watermark and whether load is known."""
        return self._object("GET", _path(topic, "loads"))

    def tiles(self, topic: TopicName | str, *, from_ms: int, to_ms: int) -> list[Json]:
        """Give the load tiles of a time span: of minutes, of the past of 10 minutes, then of hours."""
        params = {"fromMs": from_ms, "toMs": to_ms}
        return _listed(self._json("GET", _path(topic, "tiles"), params=params), "tiles")

    # Messages

    def positions(self, topic: TopicName | str) -> Json:
        """Give incarnation, epoch, and per segment its offsets, state, parents and children."""
        return self._object("GET", _path(topic, "positions"))

    def read_batches(
        self,
        topic: TopicName | str,
        segment_id: int,
        *,
        offset: int,
        max_bytes: int = 1 << 20,
        incarnation: int | None = None,
    ) -> BatchPage:
        """Read encoded batches (`scalable.wire.batch`) that hold messages at or above the offset.

        Raises TopicDeleted when the topic is not of the incarnation that is meant.
        """
        life = {} if incarnation is None else {"incarnation": incarnation}
        params = {"offset": offset, "maxBytes": max_bytes, **life}
        answer = self._call("GET", _path(topic, "segments", segment_id, "batches"), params=params)
        headers = answer.headers
        return BatchPage(
            batches=tuple(_split_batches(answer.content)),
            next_offset=int(headers["X-Scalable-Next-Offset"]),
            end_offset=int(headers["X-Scalable-End-Offset"]),
            terminated=headers["X-Scalable-Terminated"] == "true",
        )

    # Load pipeline (system role)

    def report_loads(self, report: Mapping[str, Any]) -> Json:
        """Write rates: reporter, watermarkMs, loads; answers how many were written, unchanged, unknown."""
        return self._object("POST", f"{LOAD_ROOT}/reports", json=dict(report))

    def report_tiles(self, tiles: Sequence[Mapping[str, Any]]) -> None:
        """Write one-minute load tiles; a tile that is there is replaced."""
        self._call("POST", f"{LOAD_ROOT}/tiles", json={"tiles": [dict(tile) for tile in tiles]})


def _expected(epoch: int | None) -> dict[str, int]:
    return {} if epoch is None else {"expectedEpoch": epoch}


def _namespace_path(namespace: str) -> str:
    tenant, _, name = namespace.partition("/")
    return f"{NAMESPACE_ROOT}/{_quoted(tenant, name)}"


def _lifetimes(retention_seconds: int | None, session_grace_seconds: float | None) -> Json:
    return {"retentionSeconds": retention_seconds, "sessionGraceSeconds": session_grace_seconds}


def _split_batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut `[u64 base offset][u32 length][batch]` records apart."""
    position = 0
    while position < len(content):
        base_offset, length = _BATCH_HEAD.unpack_from(content, position)
        position += _BATCH_HEAD.size
        yield base_offset, content[position : position + length]
        position += length
