"""Errors of segments, frames, sockets, subscriptions and access."""

from __future__ import annotations

from typing import Any

from scalable.domain.errors.base import ScalableError


class SegmentTerminated(ScalableError):
    """The segment {segment_id} takes no more messages; epoch {epoch} or a later one has its children.

    `successors` gives its descendants as of that epoch, as a watch shows them, where they are few.
    """

    code = "segment_terminated"
    hint_template = "Wait for the layout of that epoch and send the same sequence numbers to the children."
    segment_id: int
    epoch: int
    successors: list[dict[str, Any]] = []


class SegmentStoreMissing(ScalableError):
    """The store of segment {segment_id} does not exist."""

    code = "segment_store_missing"
    hint_template = (
        "The segment was pruned, its topic was deleted, or its store was not made yet; read the layout again."
    )
    segment_id: int


class BatchInvalid(ScalableError):
    """The batch cannot be accepted: {problem}."""

    code = "batch_invalid"
    hint_template = "See the description of the batch format."
    problem: str


class BatchPartlyDuplicate(ScalableError):
    """The batch at sequence {sequence} of segment {segment_id} is a duplicate for some of its ranges only."""

    code = "batch_partly_duplicate"
    hint_template = "Cut the batch again along the hash ranges of the marks and send the parts."
    segment_id: int
    sequence: int
    marks: list[Any]


class StreamBroken(ScalableError):
    """The stream of producer {producer} to segment {segment_id} broke at an earlier batch: {problem}."""

    code = "stream_broken"
    hint_template = "Send again from the first batch that was not acknowledged."
    producer: str
    segment_id: int
    problem: str


class BatchTooLarge(ScalableError):
    """The batch has {size_bytes} bytes, uncompressed, more than the limit of {limit_bytes}."""

    code = "batch_too_large"
    hint_template = (
        "Cut it into smaller ones, with the same sequences; give up on one that is a single message."
    )
    size_bytes: int
    limit_bytes: int


class MessageTooLarge(ScalableError):
    """The message has {size_bytes} bytes, more than the limit of {limit_bytes}."""

    code = "message_too_large"
    hint_template = "Keep large values elsewhere and send a reference."
    size_bytes: int
    limit_bytes: int


class PositionInvalid(ScalableError):
    """The position {position} of segment {segment_id} is invalid: {problem}."""

    code = "position_invalid"
    hint_template = "Acknowledge positions that were delivered, upwards."
    segment_id: int
    position: int
    problem: str


class FrameInvalid(ScalableError):
    """The frame cannot be read: {problem}."""

    code = "frame_invalid"
    hint_template = "See the description of the frames."
    problem: str


class FrameTooLarge(ScalableError):
    """The frame has {size_bytes} bytes, more than the limit of {limit_bytes}."""

    code = "frame_too_large"
    hint_template = "Send smaller batches."
    size_bytes: int
    limit_bytes: int


class FrameUnknownType(ScalableError):
    """The frame's type is not known on this socket: {problem}."""

    code = "frame_unknown_type"
    hint_template = "Check the socket's path and the protocol version of the hello frame."
    problem: str


class ProtocolUnsupported(ScalableError):
    """The protocol version {version} is not supported here."""

    code = "protocol_unsupported"
    hint_template = "Supported versions: {supported}."
    version: int
    supported: list[int]


class HelloMissing(ScalableError):
    """There was no hello frame, which must come first and within {limit_seconds} seconds."""

    code = "hello_missing"
    hint_template = "Send the hello frame as soon as the socket is open."
    limit_seconds: float


class SessionSuperseded(ScalableError):
    """The consumer {consumer} has a newer session, which takes this one's place."""

    code = "session_superseded"
    hint_template = "Give each living consumer a name of its own."
    consumer: str


class PermitsExceeded(ScalableError):
    """More was sent than the {limit} permits that were granted."""

    code = "permits_exceeded"
    hint_template = "Send only against permits; each answer gives one back."
    limit: int


class ReaderTooSlow(ScalableError):
    """The reader fell more than {limit} frames behind."""

    code = "reader_too_slow"
    hint_template = "Connect again; the first frame is a fresh snapshot."
    limit: int


class SubscriptionNotFound(ScalableError):
    """The subscription {subscription} does not exist on this topic."""

    code = "subscription_not_found"
    hint_template = "Create it, or register a consumer on it."
    subscription: str


class SubscriptionTypeMismatch(ScalableError):
    """The subscription {subscription} is of the type {current_type}, not {requested_type}."""

    code = "subscription_type_mismatch"
    hint_template = "Use the type that it has, or another subscription; a type never changes."
    subscription: str
    current_type: str
    requested_type: str


class KeySharingMismatch(ScalableError):
    """The subscription {subscription} was made with key sharing set to {key_shared}."""

    code = "key_sharing_mismatch"
    hint_template = "Register with the setting that it has, or use another subscription; it never changes."
    subscription: str
    key_shared: bool


class SegmentNotOwned(ScalableError):
    """The consumer {consumer} does not own segment {segment_id}."""

    code = "segment_not_owned"
    hint_template = "Read only what the latest assignment names."
    consumer: str
    segment_id: int


class GenerationSuperseded(ScalableError):
    """The generation {generation} of segment {segment_id} was superseded by {current_generation}."""

    code = "generation_superseded"
    hint_template = "The segment has another owner by now; nothing was acknowledged."
    segment_id: int
    generation: int
    current_generation: int


class CheckpointSuperseded(ScalableError):
    """The checkpoint was taken before the group's last restore, {restored}."""

    code = "checkpoint_superseded"
    hint_template = "Take another one; nothing was committed."
    restored: int
    checkpoint_restored: int


class CursorSought(ScalableError):
    """The cursor of {subscription} on segment {segment_id} is of incarnation {current}, not {incarnation}."""

    code = "cursor_sought"
    hint_template = "It was sought or made anew: read again from its position; nothing was acknowledged."
    segment_id: int
    subscription: str
    incarnation: int
    current: int


class Unauthenticated(ScalableError):
    """The request has no valid token: {problem}."""

    code = "unauthenticated"
    hint_template = (
        "Send 'Authorization: Bearer <token>', on sockets also as the sub-protocol 'bearer.<token>'."
    )
    problem: str


class Forbidden(ScalableError):
    """The role {role} may not do this."""

    code = "forbidden"
    hint_template = "It wants the right {right}."
    role: str
    right: str


class BodyTooSlow(ScalableError):
    """Of the request's body {size_bytes} bytes came in {limit_seconds} seconds, and not the rest."""

    code = "body_too_slow"
    hint_template = "Send the whole body, without pauses."
    size_bytes: int
    limit_seconds: float


class CrossSiteRequest(ScalableError):
    """The request may come from another site's page, which rides on a login here: {problem}."""

    code = "cross_site_request"
    hint_template = "Pages of this site send the cookie 'csrftoken' as X-CSRFToken; programs use a token."
    problem: str


class TooManyRequests(ScalableError):
    """More is asked than the limit of {limit} allows."""

    code = "too_many_requests"
    hint_template = "Try again in {retry_after_seconds:.1f} seconds."
    limit: int
    retry_after_seconds: float
