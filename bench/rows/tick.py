"""Row 20: a tick of the autoscaler over 20,000 topics of 64 segments, of which one in a hundred changed."""

from collections.abc import Iterator, Sequence
from time import perf_counter

from django.db import connection, transaction

from bench.harness import ROUNDS, Bench, Comparison, bench_row
from scalable.domain.names import TopicName
from scalable.services import autoscaling, loads, topics
from scalable.store import evaluations
from scalable.store.clock import database_now, milliseconds

TOPICS = 20_000
SEGMENTS = 64
CHANGED = 200
RATE = 5_000.0
PATTERN = TopicName("public", "default", "tick-pattern")

_TOPICS = """
INSERT INTO scalable_topic (name, namespace_id, epoch, revision, next_segment_id, properties, created_at,
                            active_segments)
SELECT 'tick-' || n, namespace_id, 0, 1, {segments}, '{{}}', created_at, {segments}
  FROM scalable_topic, generate_series({first}, {last}) AS n
 WHERE name = '{pattern}'
RETURNING id
"""
_SEGMENTS = """
INSERT INTO scalable_segment
       (topic_id, segment_id, hash_start, hash_end, state, parent_ids, child_ids, entry_bucket_splits,
        created_epoch, sealed_epoch, created_at)
SELECT topic, n, n * {width}, (n + 1) * {width} - 1, 'ACTIVE', '{{}}', '{{}}', '{{}}', 0, 0, now()
  FROM unnest(%s::bigint[]) AS topic, generate_series(0, {segments} - 1) AS n
"""
_LOADS = """
INSERT INTO scalable_segmentload
       (topic_id, segment_id, msg_rate_in, bytes_rate_in, msg_rate_out, bytes_rate_out, modified_at)
SELECT topic, n, {rate}, 1000, 1000, 1000, now()
  FROM unnest(%s::bigint[]) AS topic, generate_series(0, {segments} - 1) AS n
"""
_EVALUATIONS = """
INSERT INTO scalable_evaluation (topic_id, due_at, not_before, load_known, stale_after_seconds)
SELECT topic, now() + interval '1 day', now(), true, 180 FROM unnest(%s::bigint[]) AS topic
"""


def add_topics(first: int, last: int) -> list[int]:
    """Add steady topics; the checks of the layout are left out, for their time."""
    shape = {"segments": SEGMENTS, "width": 65_536 // SEGMENTS, "rate": RATE}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(_TOPICS.format(first=first, last=last, pattern=PATTERN.name, **shape))
        keys = [key for (key,) in cursor.fetchall()]
        for statement in (_SEGMENTS, _LOADS, _EVALUATIONS):
            cursor.execute(statement.format(**shape), [keys])
    with connection.cursor() as cursor:
        cursor.execute(
            "VACUUM ANALYZE scalable_topic, scalable_segment, scalable_segmentload, scalable_evaluation"
        )
    return keys


def change(keys: Sequence[int]) -> None:
    """Note that the loads of these topics changed, whose time has come."""
    loads.report_loads(reporter="bench", watermark_ms=milliseconds(database_now()), loads=[])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scalable_evaluation SET not_before = now() WHERE topic_id = ANY(%s)", [list(keys)]
        )
    evaluations.mark_loads(keys)


def tick(keys: Sequence[int]) -> float:
    """One round: the milliseconds of a tick behind that change."""
    change(keys)
    started_at = perf_counter()
    evaluated = autoscaling.evaluate_due_topics()
    elapsed_ms = (perf_counter() - started_at) * 1000
    if set(evaluated) != set(keys):
        raise RuntimeError(f"{len(evaluated)} topics were evaluated, {len(keys)} had changed")
    return elapsed_ms


def by_key(keys: Sequence[int]) -> float:
    """One round: the milliseconds of the same evaluations, of topics that need not be found."""
    change(keys)
    started_at = perf_counter()
    for first in range(0, len(keys), autoscaling.TOPICS_PER_BATCH):
        batch = keys[first : first + autoscaling.TOPICS_PER_BATCH]
        autoscaling.evaluate_topics(incarnations=batch)
    return (perf_counter() - started_at) * 1000


def steady_ticks(keys: Sequence[int]) -> list[float]:
    """Some rounds behind one that writes each topic's first decision."""
    tick(keys)
    return [tick(keys) for _ in range(ROUNDS)]


def rest(_: Sequence[int]) -> float:
    """The milliseconds of a tick behind which nothing changed."""
    started_at = perf_counter()
    autoscaling.evaluate_due_topics()
    return (perf_counter() - started_at) * 1000


@bench_row(
    number=20,
    title=f"a tick over {TOPICS:,} topics of {SEGMENTS} segments, over one of {CHANGED} that changed",
    unit="ms",
    goal="<= 3",
    higher_is_better=False,
)
def autoscale_tick(bench: Bench) -> Iterator[Comparison]:
    """First with those topics alone in the database, then beside the others."""
    topics.create_topic(name=PATTERN, actor="bench")
    with connection.cursor() as cursor:
        # Topics of rows that ran before this one would come due beside the changed ones.
        cursor.execute("DELETE FROM scalable_evaluation")
    changed = add_topics(1, CHANGED)
    alone = steady_ticks(changed)
    bench.report(f"  alone: {[round(each) for each in alone]}")
    for first in range(CHANGED + 1, TOPICS, 1_800):
        add_topics(first, min(first + 1_799, TOPICS))
        bench.report(f"  {min(first + 1_799, TOPICS):,} topics")
    yield bench.compare(
        "1 % changed",
        floor=lambda: by_key(changed),
        product=lambda: tick(changed),
        note=f"each of the {CHANGED} is read with {SEGMENTS} segments and their loads, and decided about; "
        "the floor evaluates the same topics by their keys",
    )
    yield Comparison(
        label="1 % changed, over a database of those alone",
        floor=alone,
        product=steady_ticks(changed),
        note="the floor's rounds come before the rest of the topics: noise of the machine is in the ratio",
    )
    yield Comparison(
        label="nothing changed",
        floor=alone,
        product=[rest(changed) for _ in range(ROUNDS)],
        note="what all the topics that exist cost by themselves",
        goal="<= 0.1",
    )
