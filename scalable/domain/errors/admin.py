"""Errors of the administrative doors alone."""

from __future__ import annotations

from scalable.domain.errors.base import ScalableError


class UnknownPath(ScalableError):
    """There is nothing at {path}."""

    code = "unknown_path"
    hint_template = "Mend the path; a server that has scalable topics switched off has no doors for them."
    path: str


class ReadOnly(ScalableError):
    """This server is read-only and changes nothing."""

    code = "read_only"
    hint_template = "Whoever runs it set SCALABLE_READ_ONLY; reads and previews work as ever."


class NotSupported(ScalableError):
    """This server cannot {action} yet."""

    code = "not_supported"
    hint_template = "It needs {needs}, which is not part of this server."
    action: str
    needs: str


class ClusterNotFound(ScalableError):
    """The cluster {cluster!r} does not exist."""

    code = "cluster_not_found"
    hint_template = "The one cluster there is is called {known}; leave the list out, or name that one."
    cluster: str
    known: str


class SegmentNotLoaded(ScalableError):
    """The segment {segment_id} has no store just now."""

    code = "segment_not_loaded"
    hint_template = "It is being made, or goes with its topic; repeat the request after a moment."
    segment_id: int


class CursorNeeded(ScalableError):
    """The subscription {subscription} reads the whole topic, the segment {segment_id} too."""

    code = "cursor_needed"
    hint_template = "Delete the subscription; a segment's cursor goes alone only once nothing reads by it."
    subscription: str
    segment_id: int


class IdempotencyKeyReused(ScalableError):
    """The idempotency key {key!r} came with another request before."""

    code = "idempotency_key_reused"
    hint_template = "Use a new key for each request; repeat a request with its own key, path and body."
    key: str


class IdempotencyKeyBusy(ScalableError):
    """The request with the idempotency key {key!r} is still being worked on."""

    code = "idempotency_key_busy"
    hint_template = (
        "Repeat it after a moment to get its answer; if its node died, the key is free after three minutes."
    )
    key: str


class IdempotencyAnswerLost(ScalableError):
    """The request with the idempotency key {key!r} was done, but its answer was lost."""

    code = "idempotency_answer_lost"
    hint_template = "Do not send it again: read its target to see what was done."
    key: str


class IdempotencyKeysFull(ScalableError):
    """There are {limit} idempotency keys already, which is as many as are kept."""

    code = "idempotency_keys_full"
    hint_template = "Repeat the request after a while, or send it without a key."
    limit: int


class OperationNotRetriable(ScalableError):
    """The operation {operation_id} cannot be tried again: {problem}."""

    code = "operation_not_retriable"
    hint_template = "Only what failed or was aborted is tried again; look at the operation first."
    operation_id: str
    problem: str
