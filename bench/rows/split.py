"""Row 1: a split, from the request to the committed layout, over one durable commit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from uuid import uuid4

import psycopg
import redis

from bench.harness import Bench, Comparison, bench_row
from bench.no_op import ANSWERS, answer
from launch.services import worker_spec
from scalable import announce
from scalable.domain.names import TopicName
from scalable.domain.operations import Phase
from scalable.services import driver, scaling, topics
from scalable.services.driver import Moment
from scalable.store.operations import read
from tasks.apps import enqueue

SPLITS_PER_ROUND = 20
COMMITS_PER_ROUND = 200
WAIT_SECONDS = 60


class SplitTopic:
    """A topic whose widest segments are split one after the other."""

    def __init__(self) -> None:
        self.name = TopicName("public", "default", f"bench-{uuid4()}")
        topics.create_topic(name=self.name, actor="bench")

    def request(self) -> str:
        """Ask for the next split and give the operation's id."""
        active = topics.get_topic(name=self.name).layout.active
        widest = max(active, key=lambda segment: segment.hash_range.size)
        return scaling.request_split(name=self.name, segment_id=widest.segment_id, actor="bench").operation_id


def milliseconds(work: Callable[[], object], *, times: int) -> float:
    """Measure the median duration of some work."""
    return median(_duration_ms(work) for _ in range(times))


def _duration_ms(work: Callable[[], object]) -> float:
    started_at = perf_counter()
    work()
    return (perf_counter() - started_at) * 1000


def inline_round_ms() -> float:
    """Request and drive the splits of a new topic in this process; give the median time to the commit."""
    topic = SplitTopic()
    return median(_inline_split_ms(topic) for _ in range(SPLITS_PER_ROUND))


def _inline_split_ms(topic: SplitTopic) -> float:
    committed_at: list[float] = []

    def probe(phase: Phase, moment: Moment) -> None:
        if (phase, moment) == (Phase.COMMITTED, Moment.AFTER_RECORDING):
            committed_at.append(perf_counter())

    started_at = perf_counter()
    driver.drive_operation(operation_id=topic.request(), runner="bench", probe=probe)
    return (committed_at[0] - started_at) * 1000


class ThroughWorker:
    """Requests a split here and lets a Celery worker drive it; timed until its commit is seen here."""

    def __init__(self, bench: Bench) -> None:
        spec = worker_spec(environment={"REDIS_URL": bench.redis_url}, name="bench")
        argv = ("bench.worker" if part == "tasks.app" else part for part in spec.argv)
        bench.processes.run(replace(spec, argv=tuple(argv)))
        self._redis = redis.Redis.from_url(bench.redis_url, socket_timeout=None)
        self._notices = self._redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._notices.subscribe("scalable:notices")

    def round_ms(self) -> float:
        """Give the median of the splits of a new topic."""
        topic = SplitTopic()
        return median(self._split_ms(topic) for _ in range(SPLITS_PER_ROUND))

    def _split_ms(self, topic: SplitTopic) -> float:
        """Give the time until a notice made this process see the committed layout."""
        started_at = perf_counter()
        operation_id = topic.request()
        while read(operation_id).phase not in (Phase.COMMITTED, Phase.NOTIFIED):
            self._notices.get_message(timeout=WAIT_SECONDS)
        return (perf_counter() - started_at) * 1000

    def no_op(self) -> None:
        """Send a task that does nothing and wait for its answer."""
        answer.delay()
        self._redis.blpop([ANSWERS], timeout=WAIT_SECONDS)


@bench_row(
    number=1, title="split: request to committed layout over one durable commit", unit="ms", goal="<= 4"
)
def split(bench: Bench) -> Iterator[Comparison]:
    """Split in this process, then through the queue."""
    announce.silence(enqueue)
    with psycopg.connect(bench.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bench_commit AS SELECT 1 AS id, 0 AS value")
        commit = partial(connection.execute, "UPDATE bench_commit SET value = value + 1")
        yield bench.compare(
            "in one process",
            floor=lambda: milliseconds(commit, times=COMMITS_PER_ROUND),
            product=inline_round_ms,
            note="three commits (the plan, the lease, the layout) in about 25 statements, each a round trip;"
            " the floor is one statement of the bare driver",
        )
        connection.execute("DROP TABLE bench_commit")
    worker = ThroughWorker(bench)
    yield bench.compare(
        "through a Celery worker, over a split in one process and a no-op task",
        floor=lambda: inline_round_ms() + milliseconds(worker.no_op, times=SPLITS_PER_ROUND),
        product=lambda: through(worker),
        note="to be at most 1",
    )


def through(worker: ThroughWorker) -> float:
    """Let requests reach the queue for one round."""
    announce.listen(enqueue)
    try:
        return worker.round_ms()
    finally:
        announce.silence(enqueue)
