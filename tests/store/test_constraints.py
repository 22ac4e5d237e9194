"""The database refuses a corrupt layout and a second claim by itself, whatever the code above it does."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from scalable.domain.layout import Layout
from scalable.domain.names import TopicName
from scalable.models import Operation, OperationClaim, PrunedSegment, Segment, Topic
from scalable.store import topics
from scalable.store.topics import TopicView

pytestmark = pytest.mark.django_db

LARGE = 2_000

Corruption = Callable[[TopicView], object]


@pytest.fixture
def topic() -> TopicView:
    """A topic of four segments."""
    return make_topic("constrained")


def make_topic(name: str, *, segments: int = 4) -> TopicView:
    return topics.insert(
        name=TopicName("public", "default", name),
        layout=Layout.initial(segments, now_ms=1_000),
        properties={},
        created_at=timezone.now(),
    )


def commit_is_allowed() -> None:
    """Check what would otherwise be checked at commit."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def rows(topic: TopicView, segment_id: int) -> QuerySet[Segment]:
    return Segment.objects.filter(topic_id=topic.incarnation, segment_id=segment_id)


def seal(topic: TopicView, segment_id: int) -> None:
    rows(topic, segment_id).update(state="SEALED", sealed_epoch=1, sealed_at=timezone.now())


def add(topic: TopicView, segment_id: int, start: int, end: int) -> None:
    Segment.objects.create(
        topic_id=topic.incarnation,
        segment_id=segment_id,
        hash_start=start,
        hash_end=end,
        state="ACTIVE",
        created_epoch=1,
        created_at=timezone.now(),
    )


def add_topic(topic: TopicView, name: str, *, epoch: int) -> None:
    Topic.objects.create(
        namespace_id=Topic.objects.get(pk=topic.incarnation).namespace_id,
        name=name,
        epoch=epoch,
        next_segment_id=1,
        created_at=timezone.now(),
    )


def replace_with_gap(topic: TopicView) -> None:
    seal(topic, 1)
    add(topic, 4, 16384, 20000)
    add(topic, 5, 20002, 32767)


def move_to_another_topic(topic: TopicView) -> None:
    other = make_topic("other")
    Segment.objects.filter(topic_id=other.incarnation).delete()
    rows(topic, 2).update(topic_id=other.incarnation)


HOLES: dict[str, Corruption] = {
    "a segment sealed without children": lambda topic: seal(topic, 1),
    "the first segment sealed without children": lambda topic: seal(topic, 0),
    "the last segment sealed without children": lambda topic: seal(topic, 3),
    "a segment deleted": lambda topic: rows(topic, 2).delete(),
    "all segments deleted": lambda topic: Segment.objects.filter(topic_id=topic.incarnation).delete(),
    "a range that begins later": lambda topic: rows(topic, 1).update(hash_start=16385),
    "a range that ends earlier": lambda topic: rows(topic, 3).update(hash_end=65534),
    "children that leave a hash out": replace_with_gap,
    "a segment moved to another topic": move_to_another_topic,
    "a topic without segments": lambda topic: add_topic(topic, "empty", epoch=0),
}


@pytest.mark.parametrize("corrupt", HOLES.values(), ids=HOLES.keys())
def test_a_hole_is_refused_at_commit(topic: TopicView, corrupt: Corruption) -> None:
    commit_is_allowed()
    corrupt(topic)
    with pytest.raises(IntegrityError, match="do not tile"):
        commit_is_allowed()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("gone", "each"), [(0, 0), (1, 3_000), (150, 4), (500, 1)])
def test_a_large_layout_is_checked_hash_by_hash_whatever_the_table_was(gone: int, each: int) -> None:
    """Small, or full of deleted rows of other topics, when the planner looked at it."""
    with transaction.atomic():
        for number in range(gone):
            make_topic(f"gone-{number}", segments=each)
    Topic.objects.filter(name__startswith="gone").delete()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE scalable_segment")
    for number in range(6):  # after which the session keeps its plans
        with transaction.atomic():
            make_topic(f"small-{number}")
    with transaction.atomic():
        make_topic("large", segments=LARGE)
        before = rows_read()
        commit_is_allowed()
        assert rows_read() - before <= 20 * LARGE


def rows_read() -> int:
    """Count the rows of segments that this transaction read, by an index or not."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
            " WHERE relname = 'scalable_segment'"
        )
        (read,) = cursor.fetchone()
        return int(read)


OVERLAPS: dict[str, Corruption] = {
    "one hash shared": lambda topic: rows(topic, 1).update(hash_end=32768),
    "a child beside its active parent": lambda topic: add(topic, 4, 0, 8191),
    "the same range twice": lambda topic: add(topic, 4, 16384, 32767),
    "the whole space": lambda topic: add(topic, 4, 0, 65535),
}


@pytest.mark.parametrize("corrupt", OVERLAPS.values(), ids=OVERLAPS.keys())
def test_an_overlap_is_refused_at_once(topic: TopicView, corrupt: Corruption) -> None:
    with pytest.raises(IntegrityError, match="segment_active_ranges_disjoint"), transaction.atomic():
        corrupt(topic)


IMPOSSIBLE: dict[str, tuple[str, Corruption]] = {
    "a range outside the space": ("segment_range", lambda topic: rows(topic, 3).update(hash_end=65536)),
    "a range that ends before it starts": ("range", lambda topic: rows(topic, 3).update(hash_end=49151)),
    "sealed without a time": ("segment_state", lambda topic: rows(topic, 1).update(state="SEALED")),
    "active with a sealed epoch": ("segment_state", lambda topic: rows(topic, 1).update(sealed_epoch=1)),
    "an id twice": ("segment_unique", lambda topic: add(topic, 0, 0, 0)),
    "a negative epoch": ("topic_counters", lambda topic: add_topic(topic, "negative", epoch=-1)),
    "an epoch that falls": (
        "only rise",
        lambda topic: Topic.objects.filter(pk=topic.incarnation).update(epoch=-1),
    ),
    "a revision that falls": (
        "only rise",
        lambda topic: Topic.objects.filter(pk=topic.incarnation).update(revision=0),
    ),
    "segment ids that come back": (
        "only rise",
        lambda topic: Topic.objects.filter(pk=topic.incarnation).update(next_segment_id=3),
    ),
}


@pytest.mark.parametrize(("message", "corrupt"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_impossible_row_is_refused(topic: TopicView, message: str, corrupt: Corruption) -> None:
    with pytest.raises(DatabaseError, match=message), transaction.atomic():
        corrupt(topic)


def test_a_split_and_a_merge_are_accepted(topic: TopicView) -> None:
    split = topic.layout.apply(topic.layout.plan_split(1, [20000, 30000]), now_ms=2_000)
    topics.write_layout(topic, split)
    commit_is_allowed()
    merged = split.apply(split.plan_merge([6, 2, 3]), now_ms=3_000)
    topics.write_layout(topics.lock_incarnation(topic.incarnation), merged)
    commit_is_allowed()
    assert topics.read(topic.name).layout == merged


def replace(topic: TopicView, segment_id: int, *, by: int) -> None:
    """Seal a segment and add one over the same range, as far as a commit would take it."""
    old = rows(topic, segment_id).get()
    seal(topic, segment_id)
    add(topic, by, old.hash_start, old.hash_end)
    commit_is_allowed()


def vanish(topic: TopicView, segment_id: int, *, sealed: bool) -> None:
    """Delete a segment's row after adding one over the same range, as far as a commit would take it."""
    old = rows(topic, segment_id).get()
    if sealed:
        seal(topic, segment_id)
    rows(topic, segment_id).delete()
    add(topic, 4, old.hash_start, old.hash_end)
    commit_is_allowed()


def test_a_pruned_segment_leaves_history_and_its_id_never_comes_back(topic: TopicView) -> None:
    commit_is_allowed()
    split = topic.layout.apply(topic.layout.plan_split(1), now_ms=2_000)
    topics.write_layout(topic, split)
    locked = topics.lock_incarnation(topic.incarnation)
    topics.write_layout(locked, locked.layout.prune(1), end_offsets={1: 7})
    commit_is_allowed()
    history = PrunedSegment.objects.get(topic_id=topic.incarnation)
    assert (history.segment_id, history.child_ids, history.end_offset) == (1, [4, 5], 7)
    with pytest.raises(IntegrityError, match="pruned or never given out"), transaction.atomic():
        replace(topic, 0, by=1)


def test_an_id_must_have_been_given_out(topic: TopicView) -> None:
    with pytest.raises(IntegrityError, match="pruned or never given out"), transaction.atomic():
        replace(topic, 0, by=4)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_does_not_vanish(topic: TopicView, sealed: bool) -> None:
    Topic.objects.filter(pk=topic.incarnation).update(next_segment_id=9)
    with pytest.raises(IntegrityError, match="neither with its topic nor sealed"), transaction.atomic():
        vanish(topic, 1, sealed=sealed)


def test_a_deleted_topic_needs_no_segments(topic: TopicView) -> None:
    topics.delete(topic.incarnation)
    commit_is_allowed()
    assert not Segment.objects.filter(topic_id=topic.incarnation).exists()


def test_a_segment_is_claimed_by_one_operation(topic: TopicView) -> None:
    first, second = (
        Operation.objects.create(
            id=uuid4(),
            topic_id=topic.incarnation,
            kind="SPLIT",
            plan={},
            phase="PLANNED",
            actor="test",
            reason="manual",
            created_at=timezone.now(),
        )
        for _ in range(2)
    )
    OperationClaim.objects.create(operation=first, topic_id=topic.incarnation, segment_id=1)
    OperationClaim.objects.create(operation=second, topic_id=topic.incarnation, segment_id=2)
    with pytest.raises(IntegrityError, match="operation_claim_unique"), transaction.atomic():
        OperationClaim.objects.create(operation=second, topic_id=topic.incarnation, segment_id=1)
