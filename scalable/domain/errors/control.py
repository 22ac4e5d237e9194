"""Errors of topics, layouts, policies and operations."""

from __future__ import annotations

from typing import Any

from scalable.domain.errors.base import ScalableError


class TopicNotFound(ScalableError):
    """The topic {topic} does not exist."""

    code = "topic_not_found"
    hint_template = "List the namespace to see its topics, or create this one first."
    topic: str


class TopicExists(ScalableError):
    """The topic {topic} exists already."""

    code = "topic_exists"
    hint_template = "Choose another name, or delete the topic first."
    topic: str


class TopicDeleted(ScalableError):
    """The topic {topic} was deleted."""

    code = "topic_deleted"
    hint_template = "Close; a topic made later under the same name is another topic."
    topic: str


class NamespaceNotFound(ScalableError):
    """The namespace {namespace} does not exist."""

    code = "namespace_not_found"
    hint_template = "Create the namespace first."
    namespace: str


class NamespaceNotEmpty(ScalableError):
    """The namespace {namespace} has {topics} topics."""

    code = "namespace_not_empty"
    hint_template = "Delete them first, or delete the namespace by force with all of them."
    namespace: str
    topics: int


class NamespaceDeleting(ScalableError):
    """The namespace {namespace} is being deleted."""

    code = "namespace_deleting"
    hint_template = "No topic is made in it any more; delete it again to wait for the end."
    namespace: str


class NamespaceFixed(ScalableError):
    """The namespace {namespace} is the system's: it stays as it is."""

    code = "namespace_fixed"
    hint_template = "Namespaces of the tenant 'system' are not made or deleted; use another tenant."
    namespace: str


class TopicsSwitchedOff(ScalableError):
    """Scalable topics are switched off, and the namespace {namespace} keeps its {topics} topics."""

    code = "topics_switched_off"
    hint_template = "Start the node with SCALABLE_TOPICS_ENABLED=true to delete what it keeps."
    namespace: str
    topics: int


class TenantNotFound(ScalableError):
    """The tenant {tenant} does not exist."""

    code = "tenant_not_found"
    hint_template = "Create the tenant first."
    tenant: str


class TenantExists(ScalableError):
    """The tenant {tenant} exists already."""

    code = "tenant_exists"
    hint_template = "Choose another name, or change the one that exists."
    tenant: str


class TenantNotEmpty(ScalableError):
    """The tenant {tenant} has {namespaces} namespaces."""

    code = "tenant_not_empty"
    hint_template = "Delete its namespaces first."
    tenant: str
    namespaces: int


class TenantFixed(ScalableError):
    """The tenant {tenant} belongs to the system and stays as it is."""

    code = "tenant_fixed"
    hint_template = "Nobody else is granted anything in the tenant 'system'."
    tenant: str


class TokenNotFound(ScalableError):
    """The token {token_id} does not exist."""

    code = "token_not_found"
    hint_template = "List the tokens; a token's id is the claim 'jti' in it."
    token_id: str


class AccessFull(ScalableError):
    """There are {limit} {kind} already, which is as many as there may be."""

    code = "access_full"
    hint_template = (
        "Grants: revoke what nobody needs; one on a namespace can stand for many on its topics. "
        "Tokens: a revoked one is remembered for as long as it could open a door; give them a time to live."
    )
    kind: str
    limit: int


class InvalidName(ScalableError):
    """The {field} {value!r} is not a valid name: {problem}."""

    code = "invalid_name"
    hint_template = "Names have 1 to 255 characters, no '/', no control characters, and are not '.' or '..'."
    field: str
    value: str
    problem: str


class InvalidParameter(ScalableError):
    """The parameter {parameter} cannot be {value!r}: {problem}."""

    code = "invalid_parameter"
    hint_template = "See the reference of this endpoint for what the parameter may be."
    parameter: str
    value: Any
    problem: str


class InvalidFilter(ScalableError):
    """The filter {filter!r} cannot be applied: {problem}."""

    code = "invalid_filter"
    hint_template = "Give property=key=value, once for each property that must hold."
    filter: str
    problem: str


class UnknownField(ScalableError):
    """The field {field!r} is not known here."""

    code = "unknown_field"
    hint_template = "Known fields: {known}."
    field: str
    known: list[str]


class UnreadableBody(ScalableError):
    """The body cannot be read: {problem}."""

    code = "unreadable_body"
    hint_template = "Send JSON of the documented shape."
    problem: str


class SegmentNotFound(ScalableError):
    """The segment {segment_id} does not exist in this topic."""

    code = "segment_not_found"
    hint_template = "Get the topic to see its segments; pruned segments do not come back."
    segment_id: int


class SegmentNotActive(ScalableError):
    """The segment {segment_id} is sealed, and only active segments can be reshaped."""

    code = "segment_not_active"
    hint_template = "Its children are {child_ids}."
    segment_id: int
    child_ids: list[int]


class SegmentsNotAdjacent(ScalableError):
    """The segments {segment_ids} are not two or more different neighbours in the hash space."""

    code = "segments_not_adjacent"
    hint_template = (
        "Merge segments whose ranges follow one another without a gap; the space does not wrap around."
    )
    segment_ids: list[int]


class SegmentTooNarrow(ScalableError):
    """The segment {segment_id} covers {hash_range}, a single hash, and cannot be split."""

    code = "segment_too_narrow"
    hint_template = "All its load has one 16-bit hash; spread the keys instead."
    segment_id: int
    hash_range: str


class InvalidBucketCount(ScalableError):
    """A segment cannot have {bucket_count} entry buckets."""

    code = "invalid_bucket_count"
    hint_template = "Give 1 to {limit}."
    bucket_count: int
    limit: int


class BucketCountUnchanged(ScalableError):
    """The segment {segment_id} has {bucket_count} entry buckets already."""

    code = "bucket_count_unchanged"
    hint_template = "A rebucket replaces the segment; give another number of buckets."
    segment_id: int
    bucket_count: int


class TooManyBuckets(ScalableError):
    """The segments of one topic cannot have {count} entry buckets together."""

    code = "too_many_buckets"
    hint_template = "Give fewer to this segment, or first fewer to others: a topic has at most {limit}."
    count: int
    limit: int


class TooManyParts(ScalableError):
    """One operation cannot have {count} children or parents."""

    code = "too_many_parts"
    hint_template = "Split into, or merge, at most {limit} at once, and again what came of it."
    count: int
    limit: int


class SegmentsFixed(ScalableError):
    """{topic} is the system's: it stays as it is."""

    code = "segments_fixed"
    hint_template = "Topics of the tenant 'system' are never reshaped, and the load pipeline needs its own."
    topic: str


class InvalidBoundaries(ScalableError):
    """The boundaries {boundaries} do not divide {hash_range}: {problem}."""

    code = "invalid_boundaries"
    hint_template = (
        "Give the first hashes of the second and later children, ascending, inside the segment's range."
    )
    boundaries: list[int]
    hash_range: str
    problem: str


class InvalidRange(ScalableError):
    """The hash range {start}..{end} is invalid: {problem}."""

    code = "invalid_range"
    hint_template = "A range is inclusive and lies within 0..65535."
    start: int
    end: int
    problem: str


class InvalidInitialSegments(ScalableError):
    """A topic cannot begin with {count} segments."""

    code = "invalid_initial_segments"
    hint_template = "Begin with 1 to {limit} segments."
    count: int
    limit: int


class SegmentNotPrunable(ScalableError):
    """The segment {segment_id} cannot be pruned: {problem}."""

    code = "segment_not_prunable"
    hint_template = "Only sealed segments go, the oldest of a lineage first."
    segment_id: int
    problem: str


class LayoutCorrupt(ScalableError):
    """The layout breaks a rule that must always hold: {problem}."""

    code = "layout_corrupt"
    hint_template = "Nothing was changed; this is a fault of the server and its log has more."
    problem: str


class PolicyUnreadable(ScalableError):
    """The policy's {field} cannot be {value}: {problem}."""

    code = "policy_unreadable"
    hint_template = "See the list of policy fields; a field that is left out is inherited."
    field: str
    value: str
    problem: str


class PolicyInvalid(ScalableError):
    """The resolved policy is contradictory: {problem}."""

    code = "policy_invalid"
    hint_template = (
        "A field that is not set here comes from the namespace or the defaults; see the effective policy."
    )
    problem: str
    violations: list[str]


class LoadReportUnreadable(ScalableError):
    """The load report cannot be read: {problem}."""

    code = "load_report_unreadable"
    hint_template = (
        "Rates are finite numbers that are not negative; windows and times are whole milliseconds."
    )
    problem: str


class SegmentClaimed(ScalableError):
    """The segment {segment_id} belongs to the unfinished operation {operation_id}."""

    code = "segment_claimed"
    hint_template = "Wait for that operation, or abort it while it can be aborted."
    segment_id: int
    operation_id: str


class EpochMoved(ScalableError):
    """The layout is at epoch {current_epoch}, not at {expected_epoch} as the request expects."""

    code = "epoch_moved"
    hint_template = "Read the topic again and decide anew."
    expected_epoch: int
    current_epoch: int


class OperationNotFound(ScalableError):
    """The operation {operation_id} does not exist in this topic."""

    code = "operation_not_found"
    hint_template = "List the topic's operations."
    operation_id: str


class OperationNotAbortable(ScalableError):
    """The operation {operation_id} is in the phase {phase} and can only go forward."""

    code = "operation_not_abortable"
    hint_template = "An operation can be aborted until it begins to terminate its parent segments."
    operation_id: str
    phase: str


class OperationAborted(ScalableError):
    """The operation {operation_id} was aborted, and the layout is as it was."""

    code = "operation_aborted"
    hint_template = "Ask again if it is still wanted."
    operation_id: str


class OperationWaitLimit(ScalableError):
    """The operation {operation_id} did not end within {wait_seconds} seconds and goes on."""

    code = "operation_wait_limit"
    hint_template = "Ask for the operation by its address."
    operation_id: str
    wait_seconds: float
