"""Row 19: a page of 50 out of 100,000 topics by REST, in each order and through each filter."""

import logging
from collections.abc import Callable, Iterator
from time import perf_counter

import httpx
from django.db import connection, transaction

from bench.harness import Bench, Comparison, bench_row
from scalable.domain.errors import TopicExists
from scalable.domain.names import TopicName
from scalable.services import topics

TOPICS = 100_000
REQUESTS_PER_ROUND = 20
PAGE = 50
NAME = TopicName("public", "default", "first-of-many")
ONE = f"/admin/v2/scalable/{NAME.path}"
COLLECTION = f"/admin/v2/scalable-topics/{NAME.tenant}/{NAME.namespace}"
VARIANTS = {
    "by name": "sort=name",
    "by creation": "sort=created&descending=true",
    "by segments": "sort=segments&descending=true",
    "by rate": "sort=rate&descending=true",
    "with a property of every tenth": "property=tenth=3&sort=rate",
    "with a property of one in a thousand": "property=thousandth=3&sort=created",
    "with part of the name, of ten": "search=order-7777&sort=segments",
    "with part of the name, of all": "search=order&sort=rate&descending=true",
    "at rest, by rate": "state=STEADY&sort=rate",
    "page 1,000": f"offset={PAGE * 1_000}",
}

_TOPICS = """
INSERT INTO scalable_topic
       (name, namespace_id, epoch, revision, next_segment_id, properties, created_at,
        active_segments, msg_rate_in)
SELECT 'order-' || n, namespace_id, 0, 1, 1,
       jsonb_build_object('tenth', (n % 10)::text, 'thousandth', (n % 1000)::text),
       created_at + n * interval '1 second', n * 31 % 64 + 1, n * 7919 % 100003
  FROM scalable_topic, generate_series(1, {count}) AS n
 WHERE name = '{name}'
"""
_SEGMENTS = """
INSERT INTO scalable_segment
       (topic_id, segment_id, hash_start, hash_end, state, parent_ids, child_ids, entry_bucket_splits,
        created_epoch, sealed_epoch, created_at)
SELECT id, 0, 0, 65535, 'ACTIVE', '{{}}', '{{}}', '{{}}', 0, 0, created_at
  FROM scalable_topic WHERE name LIKE 'order-%'
"""


def fill() -> None:
    """Have a namespace with so many topics; the checks of the layout are left out, for their time."""
    try:
        topics.create_topic(name=NAME, actor="bench")
    except TopicExists:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(_TOPICS.format(count=TOPICS, name=NAME.name))
        cursor.execute(_SEGMENTS.format())
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE scalable_topic, scalable_segment")


def asked(client: httpx.Client, path: str) -> Callable[[], float]:
    """One round: the milliseconds of a request, of some one after the other."""

    def milliseconds() -> float:
        started_at = perf_counter()
        for _ in range(REQUESTS_PER_ROUND):
            client.get(path).raise_for_status()
        return (perf_counter() - started_at) * 1000 / REQUESTS_PER_ROUND

    return milliseconds


@bench_row(
    number=19,
    title=f"a page of {PAGE} out of {TOPICS:,} topics over a read of one by its key, both by REST",
    unit="ms",
    goal="<= 5",
    higher_is_better=False,
)
def topic_list(bench: Bench) -> Iterator[Comparison]:
    """Every order, every filter, and a page far down."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    fill()
    node = bench.node()
    with httpx.Client(base_url=node.url, headers=node.headers, timeout=60, trust_env=False) as client:
        one = asked(client, ONE)
        for label, query in VARIANTS.items():
            yield bench.compare(label, floor=one, product=asked(client, f"{COLLECTION}?{query}&limit={PAGE}"))
