"""What REST reads and answers about subscriptions; names are those of the wire (PIP-468, Admin API)."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from scalable.api.serializers import MAX_BIGINT, Body, Identifier, Query, TimeMs

MAX_PEEKED = 100
SubscriptionKind = Literal["STREAM", "QUEUE", "CHECKPOINT"]
SegmentIdText = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,18})(?!\n)$")]


# Queries and bodies that are read


class CreateSubscriptionQuery(Query):
    """The kind, which never changes, and where it begins: `initialPosition` or `timestamp`, or the body."""

    type: SubscriptionKind = "STREAM"
    key_shared: bool = False
    holds_pruning: bool = True
    initial_position: Literal["earliest", "latest"] | UnsetType = UNSET
    timestamp: TimeMs | UnsetType = UNSET


class SeekQuery(Query):
    """A time in milliseconds, unless the body names positions; `preview` only tells what it would do."""

    timestamp: TimeMs | UnsetType = UNSET
    preview: bool = False


class PreviewQuery(Query):
    """`preview` only tells what it would do."""

    preview: bool = False


class SkipQuery(Query):
    """How many messages to skip; `preview` only tells what it would do."""

    count: Annotated[int, Meta(ge=1, le=MAX_BIGINT)] = 1
    preview: bool = False


class PeekQuery(Query):
    """How many messages to give at most."""

    count: Annotated[int, Meta(ge=1, le=MAX_PEEKED)] = 10


class StartBody(Body):
    """The next offset by segment, as a checkpoint has it; a segment without an entry is unread."""

    positions: Annotated[dict[SegmentIdText, Identifier], Meta(max_length=100_000)]
    incarnation: Identifier | UnsetType = UNSET


# Bodies that are answered


class SubscriptionBody(Body):
    """A subscription and its settings."""

    name: str
    type: SubscriptionKind
    key_shared: bool
    holds_pruning: bool
    created_at_ms: int


class SubscriptionsBody(Body):
    """The subscriptions of a topic, by name."""

    subscriptions: list[SubscriptionBody]


class WaitBody(Body):
    """An ancestor that keeps a segment shut until its messages are acknowledged."""

    segment_id: Identifier
    unacked_messages: int


class SubscriptionSegmentBody(Body):
    """A subscription in one segment: how many messages it has still to receive, and what that waits for.

    `backlogSize` is in bytes as stored, about. `unackedMessages` are delivered and not acknowledged; it is
    null but for a QUEUE.
    """

    msg_backlog: int
    backlog_size: int
    unacked_messages: int | None
    position: int
    end_offset: int
    consumer_count: int
    waits_for: list[WaitBody]


class ConsumerBody(Body):
    """A registered consumer; whether it is connected is the leader's memory, unknown (null) elsewhere.

    One that stands by owns nothing, and nothing is on its way to it. `entryBuckets` names by segment the
    entry buckets that it owns, as ranges of the low 16 bits of key hashes; null where no keys are shared.
    """

    consumer_name: str
    connected: bool | None
    session: Literal["CONNECTED", "GRACE", "UNKNOWN"]
    standby: bool
    registered_at_ms: int
    segment_ids: list[Identifier]
    entry_buckets: dict[str, list[str]] | None


class SubscriptionStatsBody(Body):
    """A subscription's backlog, segment by segment, and its consumers.

    `backlogExact` is false when entry buckets stand too far apart to be counted: then it is the most.
    `backlogSize` and `unackedMessages` are the sums over the segments.
    """

    type: SubscriptionKind
    key_shared: bool
    holds_pruning: bool
    created_at_ms: int
    msg_backlog: int
    backlog_exact: bool
    backlog_size: int
    unacked_messages: int | None
    segments: dict[str, SubscriptionSegmentBody]
    consumers: list[ConsumerBody]


class LeaderBody(Body):
    """Who leads the topic, under which term; without a `url` nobody does just now."""

    term: int
    url: str | None


class LayoutSegmentBody(Body):
    """A segment of the layout; `storageSize` is in bytes."""

    name: str
    state: Literal["ACTIVE", "SEALED"]
    parent_ids: list[Identifier]
    child_ids: list[Identifier]
    entry_buckets: int
    storage_size: int


class LayoutBody(Body):
    """The layout by segment id."""

    epoch: int
    segments: dict[str, LayoutSegmentBody]


class ProducerBody(Body):
    """A producer that gives sequences, and the last that is stored of it."""

    producer_name: str
    last_sequence: int


class TopicStatsBody(Body):
    """A topic's layout, rates, sizes in bytes, and subscriptions (PIP-483, ScalableTopicStats).

    `backlogSize` sums up the largest of each segment; `producers` are the first 1,000 by name.
    """

    layout: LayoutBody
    leader: LeaderBody
    msg_rate_in: float
    byte_rate_in: float
    msg_rate_out: float
    byte_rate_out: float
    average_msg_size: float
    storage_size: int
    backlog_size: int
    producers: list[ProducerBody]
    subscriptions: dict[str, SubscriptionStatsBody]


class UnitBody(Body):
    """A segment, or one of its entry buckets, with its owner; acknowledgements carry the generation.

    With a `nextOwner` the owner is asked to release it until `releaseDeadlineMs`.
    """

    segment_id: Identifier
    bucket: int
    bucket_range: str
    generation: int
    next_owner: str | None
    release_deadline_ms: int | None


class AssignedConsumerBody(ConsumerBody):
    """A consumer with all that it owns."""

    units: list[UnitBody]


class AssignmentsBody(Body):
    """Who reads what of a subscription, as of a generation, which rises with any change, and an epoch.

    `waitsFor` names for each segment that is shut the ancestors that are not drained.
    """

    epoch: int
    generation: int
    leader: LeaderBody
    consumers: list[AssignedConsumerBody]
    waits_for: dict[str, list[Identifier]]


class SegmentMoveBody(Body):
    """Where a subscription stands in a segment and will stand, and how many messages are left each time."""

    segment_id: Identifier
    state: Literal["ACTIVE", "SEALED"]
    from_position: int
    to_position: int
    backlog_before: int
    backlog_after: int


class MovedBody(Body):
    """What a seek or skip would do."""

    epoch: int
    backlog_before: int
    backlog_after: int
    segments: list[SegmentMoveBody]


class PeekedMessageBody(Body):
    """A message; `value` is its beginning in base64, `sizeBytes` the length of the whole."""

    segment_id: Identifier
    offset: int
    key: str | None
    value: str
    size_bytes: int
    truncated: bool
    properties: dict[str, str]
    event_time_ms: int
    published_at_ms: int
    deliver_at_ms: int


class PeekedBody(Body):
    """The next messages; not `complete` when the look ended before it had found as many as there are."""

    messages: list[PeekedMessageBody]
    complete: bool
