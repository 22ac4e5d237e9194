"""Row 6: what idle server processes cost those that split; hints go to all of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import redis

from bench.harness import Bench, Comparison, bench_row
from bench.rows.split import SplitTopic
from launch.process import ProcessSpec
from scalable import announce
from scalable.api.bus import channel
from scalable.services import driver
from tasks.apps import enqueue

PROCESSES = 100
SPLITS_PER_ROUND = 40


def splits_per_second() -> float:
    """Split a new topic some times, each driven in this process."""
    topic = SplitTopic()
    started_at = perf_counter()
    for _ in range(SPLITS_PER_ROUND):
        driver.drive_operation(operation_id=topic.request(), runner="bench")
    return SPLITS_PER_ROUND / (perf_counter() - started_at)


@contextmanager
def idle_processes(bench: Bench, count: int) -> Iterator[None]:
    """Have so many idle listeners."""
    with redis.Redis.from_url(bench.redis_url) as broker:
        spec = ProcessSpec(
            name=f"idle-{count}",
            argv=(sys.executable, "-m", "bench.idle", str(count), bench.redis_url, channel()),
            ready=lambda: int(broker.pubsub_numsub(channel())[0][1]) >= count,
        )
        process = bench.processes.run(spec)
        try:
            yield
        finally:
            process.stop()


def rate_beside(bench: Bench, count: int) -> float:
    """The rate of splits beside so many idle processes."""
    with idle_processes(bench, count):
        return splits_per_second()


@bench_row(
    number=6,
    title=f"split rate with {PROCESSES} idle server processes over with 1",
    unit="splits/s",
    goal=">= 0.9",
    higher_is_better=True,
)
def idle(bench: Bench) -> Iterator[Comparison]:
    """Splits in one process, while the others hear of each."""
    announce.silence(enqueue)
    try:
        yield bench.compare(
            "listeners of the notices",
            floor=lambda: rate_beside(bench, 1),
            product=lambda: rate_beside(bench, PROCESSES),
            note="the listeners read and drop each notice, all in one process that shares the machine;"
            " the quicker a split is, the more the hundred wake-ups weigh",
        )
    finally:
        announce.listen(enqueue)
