"""Rows of topics and of their segments, read and written as layouts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from scalable.domain.cursors import cursor_names
from scalable.domain.errors import (
    EpochMoved,
    NamespaceDeleting,
    NamespaceNotFound,
    TopicExists,
    TopicNotFound,
)
from scalable.domain.layout import Layout, Segment, SegmentState
from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind
from scalable.models import ControllerLease, Namespace, Subscription
from scalable.models import Segment as SegmentRow
from scalable.models import Topic as TopicRow
from scalable.store import evaluations
from scalable.store.clock import milliseconds, moment, optional_milliseconds
from scalable.store.retention import write_history
from scalable.store.segment_rows import insert_segments, read_segments, segment_columns

_NAMESPACE_TO_USE = "SELECT id, deleting FROM scalable_namespace WHERE tenant = %s AND name = %s FOR SHARE"


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as of one moment; `incarnation` is its row's primary key and is never used again."""

    name: TopicName
    incarnation: int
    revision: int
    layout: Layout
    properties: Mapping[str, str]
    auto_scale_policy: dict[str, Any] | None
    namespace_policy: dict[str, Any] | None
    created_at_ms: int
    last_split_at_ms: int | None
    last_merge_at_ms: int | None
    last_rebucket_at_ms: int | None = None

    @property
    def epoch(self) -> int:
        """Give the version of the layout."""
        return self.layout.epoch

    def check_epoch(self, expected: int | None) -> None:
        """Raise EpochMoved when a caller expects another version; None expects nothing."""
        if expected not in (None, self.epoch):
            raise EpochMoved(expected_epoch=expected, current_epoch=self.epoch)


# Reading.


def read(name: TopicName) -> TopicView:
    """Read a topic; layout, epoch and revision are of one moment. Raises TopicNotFound."""
    rows = read_segments(
        SegmentRow.objects.filter(**_named(name, "topic__")),
        "topic_id",
        "topic__epoch",
        "topic__revision",
        "topic__next_segment_id",
    )
    incarnation, *versions = rows[0][1] if rows else (None,)
    topic = TopicRow.objects.select_related("namespace").filter(pk=incarnation).first() if rows else None
    if topic is None:
        raise TopicNotFound(topic=str(name))
    # The segments came with the versions that they belong to; the row was read a moment later.
    topic.epoch, topic.revision, topic.next_segment_id = versions
    return _view(topic, [segment for segment, _ in rows])


def find_name(incarnation: int) -> TopicName | None:
    """Name a topic by its incarnation, or give None once it is deleted."""
    topic = TopicRow.objects.select_related("namespace").filter(pk=incarnation).first()
    return None if topic is None else _name(topic)


def ever_had(incarnation: int, segment_id: int) -> bool:
    """Tell whether a topic has a segment of this id, or had it before it was pruned."""
    return TopicRow.objects.filter(pk=incarnation, next_segment_id__gt=segment_id).exists()


def lock(name: TopicName) -> TopicView:
    """Lock a topic's row until the transaction ends and read it; raises TopicNotFound."""
    return _lock(TopicRow.objects.filter(**_named(name)), str(name))


def lock_incarnation(incarnation: int) -> TopicView:
    """Lock a topic's row by its incarnation and read it; raises TopicNotFound."""
    return _lock(TopicRow.objects.filter(pk=incarnation), f"#{incarnation}")


def lock_many(incarnations: Collection[int], *, skip_locked: bool) -> list[TopicView]:
    """Lock those of the topics that exist, in the order of their incarnations, and read them."""
    rows = TopicRow.objects.filter(pk__in=incarnations).select_related("namespace").order_by("pk")
    return _views(list(rows.select_for_update(no_key=True, of=("self",), skip_locked=skip_locked)))


def read_many(incarnations: Collection[int]) -> list[TopicView]:
    """Read those of the topics that exist; each layout may be younger than the row that it came with."""
    return _views(list(TopicRow.objects.filter(pk__in=incarnations).select_related("namespace")))


def _views(rows: Sequence[TopicRow]) -> list[TopicView]:
    segments: dict[int, list[Segment]] = {row.pk: [] for row in rows}
    for segment, (incarnation,) in read_segments(
        SegmentRow.objects.filter(topic_id__in=segments), "topic_id"
    ):
        segments[incarnation].append(segment)
    return [_view(row, segments[row.pk]) for row in rows]


def hold(incarnation: int) -> None:
    """Lock a topic's row without reading its segments; raises TopicNotFound."""
    if not TopicRow.objects.select_for_update(no_key=True).filter(pk=incarnation).values_list("pk").first():
        raise TopicNotFound(topic=f"#{incarnation}")


def lock_to_delete(name: TopicName) -> TopicView:
    """Lock a topic, its leadership and its subscriptions, in the order of all, and read it.

    The deletion takes each of these rows; in an order of its own it could wait for those who wait for it, and
    miss what they are about to add. Raises TopicNotFound.
    """
    topic = _lock(TopicRow.objects.filter(**_named(name)), str(name), to_delete=True)
    for rows in (ControllerLease.objects, Subscription.objects):
        list(rows.select_for_update().filter(topic_id=topic.incarnation).order_by("pk").values_list("pk"))
    return topic


def page(
    *, tenant: str, namespace: str, filters: Mapping[str, str], limit: int, offset: int
) -> tuple[list[TopicName], int]:
    """Give one page of a namespace's topics by name, with the number of all that have these properties.

    Raises NamespaceNotFound.
    """
    topics = TopicRow.objects.filter(namespace_id=namespace_id(tenant, namespace))
    if filters:
        topics = topics.filter(properties__contains=dict(filters))
    names = topics.order_by("name").values_list("name", flat=True)[offset : offset + limit]
    return [TopicName(tenant, namespace, name) for name in names], topics.count()


def named_subscriptions(incarnation: int) -> list[tuple[str, bool]]:
    """List a topic's subscriptions by name, with whether they share keys.

    Under the topic's lock, none is made or deleted meanwhile.
    """
    rows = Subscription.objects.filter(topic_id=incarnation).order_by("name")
    return list(rows.values_list("name", "key_shared"))


def cursors_of(subscriptions: Iterable[tuple[str, bool]], entry_bucket_splits: Sequence[int]) -> list[str]:
    """Name the cursors of these subscriptions in a segment with these entry buckets."""
    return [
        cursor
        for name, key_shared in subscriptions
        for cursor in cursor_names(name, key_shared, entry_bucket_splits)
    ]


def segment_ids(incarnations: Collection[int]) -> set[tuple[int, int]]:
    """Give (incarnation, segment id) of all segments of these topics, sealed ones too."""
    rows = SegmentRow.objects.filter(topic_id__in=incarnations)
    return set(rows.values_list("topic_id", "segment_id"))


def active_segment_ids(*, after: int, topics: int) -> dict[int, list[int]]:
    """Give the active segments of the next `topics` topics behind an incarnation, by incarnation."""
    page = list(TopicRow.objects.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:topics])
    active: dict[int, list[int]] = {incarnation: [] for incarnation in page}
    rows = SegmentRow.objects.filter(topic_id__in=page, state=SegmentState.ACTIVE.value)
    for incarnation, segment_id in rows.values_list("topic_id", "segment_id"):
        active[incarnation].append(segment_id)
    return active


# Writing; the caller holds the topic's lock, except for `insert`.


def insert(
    *, name: TopicName, layout: Layout, properties: Mapping[str, str], created_at: datetime
) -> TopicView:
    """Add a topic with its first segments; raises NamespaceNotFound, NamespaceDeleting, TopicExists."""
    row = TopicRow(
        namespace_id=_open_namespace_id(name.tenant, name.namespace),
        name=name.name,
        epoch=layout.epoch,
        next_segment_id=layout.next_segment_id,
        properties=dict(properties),
        created_at=created_at,
        active_segments=len(layout.active),
        sealed_segments=len(layout.segments) - len(layout.active),
    )
    if TopicRow.objects.filter(**_named(name)).exists():
        raise TopicExists(topic=str(name))
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        # Somebody else was faster since the look a moment ago.
        raise TopicExists(topic=str(name)) from error
    insert_segments(row.pk, layout.segments.values())
    return _view(TopicRow.objects.select_related("namespace").get(pk=row.pk), layout.segments.values())


def reserve(topic: TopicView, layout: Layout) -> int:
    """Record which segment ids are burnt, and give the new revision."""
    return raise_revision(topic.incarnation, next_segment_id=layout.next_segment_id)


def write_layout(
    topic: TopicView, layout: Layout, *, end_offsets: Mapping[int, int] | None = None, **columns: Any
) -> int:
    """Replace the topic's layout by a later one, row by changed row, and give the new revision.

    `columns` of the topic's own row are written in the same statement as its epoch. Segments that are gone
    go into the history, with these end offsets.
    """
    before = topic.layout.segments
    changed = [segment for key, segment in layout.segments.items() if before.get(key) not in (None, segment)]
    # Sealed first: the exclusion constraint is checked at once.
    for segment in sorted(changed, key=lambda segment: segment.is_active):
        _segment_rows(topic.incarnation, segment.segment_id).update(**segment_columns(segment))
    added = layout.segments.keys() - before.keys()
    insert_segments(topic.incarnation, (layout.segments[key] for key in added))
    gone = [segment for key, segment in before.items() if key not in layout.segments]
    if gone:
        write_history(topic.incarnation, gone, end_offsets or {})
        ids = [segment.segment_id for segment in gone]
        SegmentRow.objects.filter(topic_id=topic.incarnation, segment_id__in=ids).delete()
    counters: dict[str, Any] = {
        "epoch": layout.epoch,
        "next_segment_id": layout.next_segment_id,
        "active_segments": len(layout.active),
        "sealed_segments": len(layout.segments) - len(layout.active),
    }
    if any(not segment.is_active for segment in changed):
        # It may have been quiet for long, and now there is something to prune.
        counters["next_sweep_at"] = None
    evaluations.mark(topic.incarnation)
    return raise_revision(topic.incarnation, **counters, **columns)


def write_reshaped_layout(
    topic: TopicView, layout: Layout, *, kind: OperationKind, started_at_ms: int
) -> int:
    """Replace the layout after an operation, and remember when that was started, for the cooldowns."""
    columns: dict[str, Any] = {f"last_{kind.value.lower()}_at": moment(started_at_ms)}
    return write_layout(topic, layout, **columns)


def raise_revision(incarnation: int, **columns: Any) -> int:
    """Raise the revision, with other columns of the row, and give it; locks the row. Raises TopicNotFound."""
    assignments = ", ".join(["revision = revision + 1", *(f"{column} = %({column})s" for column in columns)])
    statement = f"UPDATE scalable_topic SET {assignments} WHERE id = %(key)s RETURNING revision"
    with connection.cursor() as cursor:
        cursor.execute(statement, {**columns, "key": incarnation})
        row: tuple[int] | None = cursor.fetchone()
    if row is None:
        raise TopicNotFound(topic=f"#{incarnation}")
    return row[0]


def raise_revisions(incarnations: Collection[int]) -> dict[int, int]:
    """Raise the revisions of topics whose locks the caller holds, and give them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scalable_topic SET revision = revision + 1 WHERE id = ANY(%s) RETURNING id, revision",
            [list(incarnations)],
        )
        return dict(cursor.fetchall())


def write_properties(incarnation: int, properties: Mapping[str, str]) -> int:
    """Replace the topic's properties, and give the new revision."""
    TopicRow.objects.filter(pk=incarnation).update(properties=dict(properties))
    return raise_revision(incarnation)


def write_auto_scale_policy(incarnation: int, override: dict[str, Any] | None) -> None:
    """Replace the topic's policy override, and have it evaluated by that."""
    TopicRow.objects.filter(pk=incarnation).update(auto_scale_policy=override)
    evaluations.mark(incarnation)


def delete(incarnation: int) -> None:
    """Delete a topic with everything in the metadata that belongs to it; locked by `lock_to_delete`."""
    TopicRow.objects.filter(pk=incarnation).delete()


# Rows and values.


def _named(name: TopicName, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}namespace__tenant": name.tenant,
        f"{prefix}namespace__name": name.namespace,
        f"{prefix}name": name.name,
    }


def namespace_id(tenant: str, namespace: str) -> int:
    """Find a namespace's row; raises NamespaceNotFound."""
    key = Namespace.objects.filter(tenant=tenant, name=namespace).values_list("pk", flat=True).first()
    if key is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{namespace}")
    return key


def _open_namespace_id(tenant: str, namespace: str) -> int:
    """Find a namespace that takes topics, and keep it so until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(_NAMESPACE_TO_USE, [tenant, namespace])
        row: tuple[int, bool] | None = cursor.fetchone()
    if row is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{namespace}")
    if row[1]:
        raise NamespaceDeleting(namespace=f"{tenant}/{namespace}")
    return row[0]


def _lock(rows: QuerySet[TopicRow], title: str, *, to_delete: bool = False) -> TopicView:
    topic = rows.select_related("namespace").select_for_update(no_key=not to_delete, of=("self",)).first()
    if topic is None:
        raise TopicNotFound(topic=title)
    # A statement of its own: one that waited for the lock would still see the segments of before.
    return _view(
        topic, [segment for segment, _ in read_segments(SegmentRow.objects.filter(topic_id=topic.pk))]
    )


def _name(topic: TopicRow) -> TopicName:
    return TopicName(topic.namespace.tenant, topic.namespace.name, topic.name)


def _view(topic: TopicRow, segments: Iterable[Segment]) -> TopicView:
    by_id = {segment.segment_id: segment for segment in segments}
    return TopicView(
        name=_name(topic),
        incarnation=topic.pk,
        revision=topic.revision,
        layout=Layout(topic.epoch, topic.next_segment_id, by_id),
        properties=topic.properties,
        auto_scale_policy=topic.auto_scale_policy,
        namespace_policy=topic.namespace.auto_scale_policy,
        created_at_ms=milliseconds(topic.created_at),
        last_split_at_ms=optional_milliseconds(topic.last_split_at),
        last_merge_at_ms=optional_milliseconds(topic.last_merge_at),
        last_rebucket_at_ms=optional_milliseconds(topic.last_rebucket_at),
    )


def _segment_rows(incarnation: int, segment_id: int) -> QuerySet[SegmentRow]:
    return SegmentRow.objects.filter(topic_id=incarnation, segment_id=segment_id)
