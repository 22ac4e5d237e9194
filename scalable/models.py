"""Tables and constraints of the control plane; values and decisions live in `scalable.domain`.

The database refuses a corrupt DAG by itself: see the exclusion constraint on `Segment`, the tiling trigger in
the migrations, and the unique claim of unfinished operations.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Upper

from scalable import access_models, admin_models, audit_models, job_models  # noqa: F401 - where Django looks for models


def _hash_range() -> Func:
    return Func(F("hash_start"), F("hash_end"), Value("[]"), function="int4range")


class Namespace(models.Model):
    """A tenant's namespace with its settings; `retention_seconds` of -1 is for ever, NULL is inherited.

    While it is `deleting`, no topic is made in it.
    """

    tenant = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    auto_scale_policy = models.JSONField(null=True)
    session_grace_seconds = models.FloatField(null=True)
    retention_seconds = models.BigIntegerField(null=True)
    deleting = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="namespace_unique"),
            models.CheckConstraint(
                condition=Q(session_grace_seconds=None) | Q(session_grace_seconds__gte=0),
                name="namespace_session_grace",
            ),
            models.CheckConstraint(
                condition=Q(retention_seconds=None) | Q(retention_seconds__gte=-1), name="namespace_retention"
            ),
        ]


class Topic(models.Model):
    """One scalable topic; its primary key is the topic's incarnation and is never used again.

    What lists are sorted by is kept here with its source: the segments as of the layout, and the rate of
    messages in as of the last load that was written.
    """

    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="topics")
    name = models.CharField(max_length=255)
    epoch = models.BigIntegerField()
    revision = models.BigIntegerField(default=1)
    next_segment_id = models.BigIntegerField()
    properties = models.JSONField(default=dict)
    auto_scale_policy = models.JSONField(null=True)
    session_grace_seconds = models.FloatField(null=True)
    retention_seconds = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    last_split_at = models.DateTimeField(null=True)
    last_merge_at = models.DateTimeField(null=True)
    last_rebucket_at = models.DateTimeField(null=True)
    next_sweep_at = models.DateTimeField(null=True, db_index=True)
    quiet_sweeps = models.PositiveSmallIntegerField(db_default=0)
    active_segments = models.IntegerField(db_default=0)
    sealed_segments = models.IntegerField(db_default=0)
    msg_rate_in = models.FloatField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="topic_unique"),
            models.CheckConstraint(condition=Q(epoch__gte=0, next_segment_id__gte=1), name="topic_counters"),
            models.CheckConstraint(
                condition=Q(session_grace_seconds=None) | Q(session_grace_seconds__gte=0),
                name="topic_session_grace",
            ),
            models.CheckConstraint(
                condition=Q(retention_seconds=None) | Q(retention_seconds__gte=-1), name="topic_retention"
            ),
        ]
        indexes = [
            GinIndex(fields=["properties"], name="topic_properties", opclasses=["jsonb_path_ops"]),
            GinIndex(OpClass(Upper("name"), name="gin_trgm_ops"), name="topic_name_parts"),
            models.Index(fields=["namespace", "created_at", "name"], name="topic_by_creation"),
            models.Index(fields=["namespace", "active_segments", "name"], name="topic_by_segments"),
            models.Index(fields=["namespace", "msg_rate_in", "name"], name="topic_by_rate"),
        ]


class Segment(models.Model):
    """A node of a topic's DAG."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="segments")
    segment_id = models.BigIntegerField()
    hash_start = models.IntegerField()
    hash_end = models.IntegerField()
    state = models.CharField(max_length=6, choices=[("ACTIVE", "ACTIVE"), ("SEALED", "SEALED")])
    parent_ids = ArrayField(models.BigIntegerField(), default=list)
    child_ids = ArrayField(models.BigIntegerField(), default=list)
    entry_bucket_splits = ArrayField(models.IntegerField(), default=list)
    created_epoch = models.BigIntegerField()
    sealed_epoch = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    sealed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["topic", "segment_id"], name="segment_unique"),
            models.CheckConstraint(
                condition=Q(hash_start__gte=0, hash_end__lte=65535, hash_start__lte=F("hash_end")),
                name="segment_range",
            ),
            models.CheckConstraint(
                condition=Q(state="ACTIVE", sealed_epoch=0, sealed_at__isnull=True)
                | Q(state="SEALED", sealed_epoch__gt=0, sealed_at__isnull=False),
                name="segment_state",
            ),
            ExclusionConstraint(
                name="segment_active_ranges_disjoint",
                expressions=[("topic", RangeOperators.EQUAL), (_hash_range(), RangeOperators.OVERLAPS)],
                condition=Q(state="ACTIVE"),
            ),
        ]


class PrunedSegment(models.Model):
    """What is remembered of a segment that was pruned, for "where was this key then" (`Segment`)."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="pruned_segments")
    segment_id = models.BigIntegerField()
    hash_start = models.IntegerField()
    hash_end = models.IntegerField()
    parent_ids = ArrayField(models.BigIntegerField(), default=list)
    child_ids = ArrayField(models.BigIntegerField(), default=list)
    created_epoch = models.BigIntegerField()
    sealed_epoch = models.BigIntegerField()
    created_at = models.DateTimeField()
    sealed_at = models.DateTimeField()
    pruned_at = models.DateTimeField()
    end_offset = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["topic", "segment_id"], name="pruned_segment_unique")]


class Operation(models.Model):
    """A split, merge or rebucket: its plan, how far it got, and who drives it (`scalable.domain.operations`).

    `results` keeps what a phase found out and a later one compares with, `timings` the milliseconds of each.
    """

    id = models.UUIDField(primary_key=True)
    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="operations")
    kind = models.CharField(max_length=8)
    plan = models.JSONField()
    results = models.JSONField(default=dict)
    phase = models.CharField(max_length=20)
    outcome = models.CharField(max_length=9, null=True)
    error = models.JSONField(null=True)
    actor = models.CharField(max_length=255)
    reason = models.CharField(max_length=255)
    epoch = models.BigIntegerField(null=True)
    lease_holder = models.CharField(max_length=255, null=True)
    lease_token = models.BigIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    timings = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["topic", "-created_at"], name="operation_by_topic"),
            models.Index(fields=["lease_expires_at"], condition=Q(outcome=None), name="operation_unfinished"),
            models.Index(fields=["topic"], condition=Q(outcome=None), name="operation_unfinished_by_topic"),
            models.Index(
                fields=["topic", "finished_at"],
                condition=Q(outcome__in=["FAILED", "ABORTED"]),
                name="operation_in_vain_by_topic",
            ),
        ]


class OperationClaim(models.Model):
    """A segment that an unfinished operation works on: one operation each, disjoint ones side by side."""

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="claims")
    topic = models.ForeignKey(Topic, on_delete=models.CASCADE)
    segment_id = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["topic", "segment_id"], name="operation_claim_unique")]


class Node(models.Model):
    """One web process incarnation."""

    id = models.UUIDField(primary_key=True)
    url = models.CharField(max_length=255)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(db_index=True)


class ControllerLease(models.Model):
    """Leadership of a topic: bound to a live node, with a term that only rises."""

    topic = models.OneToOneField(Topic, on_delete=models.CASCADE, primary_key=True, related_name="lease")
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True)
    term = models.BigIntegerField(default=0)
    acquired_at = models.DateTimeField(null=True)


class Subscription(models.Model):
    """A named position on a topic; `assignment_generation` rises with any change of its assignment.

    A CHECKPOINT group is a subscription whose cursors are what its last commit needs kept; those that do not
    `holds_pruning` lose data that retention lets go. Commits of checkpoints from before its last restore,
    which made `restored_generation`, are refused.
    """

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="subscriptions")
    name = models.CharField(max_length=255)
    type = models.CharField(
        max_length=10, choices=[(kind, kind) for kind in ("STREAM", "QUEUE", "CHECKPOINT")]
    )
    key_shared = models.BooleanField(default=False)
    holds_pruning = models.BooleanField(default=True)
    restored_generation = models.BigIntegerField(default=0)
    assignment_generation = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["topic", "name"], name="subscription_unique"),
            models.CheckConstraint(
                condition=Q(key_shared=False) | Q(type="STREAM"), name="subscription_key_shared"
            ),
        ]


class CursorMove(models.Model):
    """A seek or skip that is under way on cursors outside this database, or that ended in the middle."""

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="cursor_moves")
    noted_at = models.DateTimeField()


class ConsumerRegistration(models.Model):
    """A consumer's durable session (PIP-468, Consumer Session Lifecycle)."""

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="consumers")
    name = models.CharField(max_length=255)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "name"], name="consumer_unique")]


class Assignment(models.Model):
    """Who owns a segment, or an entry bucket of it, for a subscription: one row, so never two owners.

    `bucket` is the index of the entry bucket on a key-shared subscription, else 0. `position` is where the
    last owner in a CHECKPOINT group stopped.
    """

    pk = models.CompositePrimaryKey("subscription_id", "segment_id", "bucket")
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="assignments")
    segment_id = models.BigIntegerField()
    bucket = models.IntegerField(default=0)
    owner = models.CharField(max_length=255, null=True)
    next_owner = models.CharField(max_length=255, null=True)
    generation = models.BigIntegerField(default=0)
    release_deadline = models.DateTimeField(null=True)
    drained = models.BooleanField(default=False)
    position = models.BigIntegerField(null=True)


class SegmentLoad(models.Model):
    """The last materially different rates of a segment (PIP-483); windows are measured from `modified_at`."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE)
    segment_id = models.BigIntegerField()
    msg_rate_in = models.FloatField()
    bytes_rate_in = models.FloatField()
    msg_rate_out = models.FloatField()
    bytes_rate_out = models.FloatField()
    modified_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["topic", "segment_id"], name="segment_load_unique")]


class LoadWatermark(models.Model):
    """How far the load pipeline has come: loads are complete up to `watermark`."""

    reporter = models.CharField(max_length=255, primary_key=True)
    watermark = models.DateTimeField()
    updated_at = models.DateTimeField()


class LoadTile(models.Model):
    """Incoming messages per second of a segment, by 1/32 of its range, in the minutes from `minute` on."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE)
    segment_id = models.BigIntegerField()
    minute = models.DateTimeField()
    mean = ArrayField(models.FloatField())
    peak = ArrayField(models.FloatField())
    span_minutes = models.SmallIntegerField(db_default=1)
    observed_ms = models.IntegerField(db_default=60_000)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["topic", "span_minutes", "minute", "segment_id"], name="load_tile_in_its_ring"
            ),
            models.CheckConstraint(condition=Q(span_minutes__in=[1, 10, 60]), name="load_tile_span"),
            models.CheckConstraint(
                condition=Q(observed_ms__gt=0, observed_ms__lte=F("span_minutes") * 60_000),
                name="load_tile_observed",
            ),
        ]
        indexes = [models.Index(fields=["span_minutes", "minute"], name="load_tile_by_age")]


class Decision(models.Model):
    """A decision of the autoscaler, kept when it differs from the one before."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="decisions")
    at = models.DateTimeField()
    action = models.CharField(max_length=8, null=True)
    rule = models.CharField(max_length=64)
    segment_ids = ArrayField(models.BigIntegerField(), default=list)
    explanation = models.JSONField()
    operation = models.ForeignKey(Operation, on_delete=models.SET_NULL, null=True)

    class Meta:
        indexes = [models.Index(fields=["topic", "-at"], name="decision_by_topic")]


class Evaluation(models.Model):
    """When the autoscaler looks at a topic next, and what it has counted; a trigger makes the row.

    Whoever changes what a decision is made from raises `marks` and brings `due_at` forward, in the
    transaction of the change; one of loads not before `not_before`. An evaluation that finds other marks than
    it began with leaves `due_at` alone, so that there is one more. `load_known` is what the last one assumed,
    true as long as the pipeline's watermark is not older than `stale_after_seconds`; `settings_key` stands
    for the settings that it was made under.
    """

    topic = models.OneToOneField(Topic, on_delete=models.CASCADE, primary_key=True, related_name="evaluation")
    due_at = models.DateTimeField(db_index=True)
    not_before = models.DateTimeField()
    marks = models.BigIntegerField(db_default=1)
    evaluated_at = models.DateTimeField(null=True)
    failures = models.IntegerField(db_default=0)
    decision_key = models.TextField(null=True)
    load_known = models.BooleanField(null=True)
    stale_after_seconds = models.FloatField(db_default=0)
    wants_tiles = models.BooleanField(db_default=False)
    settings_key = models.CharField(max_length=64, null=True)
    is_split_capped = models.BooleanField(db_default=False)
    is_merge_capped = models.BooleanField(db_default=False)
    auto_splits = models.BigIntegerField(db_default=0)
    auto_merges = models.BigIntegerField(db_default=0)
    auto_rebuckets = models.BigIntegerField(db_default=0)
    splits_capped = models.BigIntegerField(db_default=0)
    merges_capped = models.BigIntegerField(db_default=0)
    flaps = models.BigIntegerField(db_default=0)
    last_flap_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["stale_after_seconds"], condition=Q(load_known=True), name="evaluation_load_known"
            ),
            models.Index(
                fields=["stale_after_seconds"], condition=Q(load_known=False), name="evaluation_load_unknown"
            ),
            models.Index(fields=["settings_key"], name="evaluation_by_settings"),
        ]


class RetiredCount(models.Model):
    """What rows that are gone had counted, kept by triggers: the installation's counters never fall."""

    name = models.CharField(max_length=64, primary_key=True)
    count = models.BigIntegerField()
