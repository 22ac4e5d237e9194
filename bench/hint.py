"""A floor that rows share: one durable commit, then one hint over the broker."""

import time
from collections.abc import Callable, Sequence

import psycopg
import redis

from bench.harness import Bench

ROW = bytes(200)
CHANNEL = "bench:hint"


class CommitAndHint:
    """The floor: a row is committed, then a message on the broker says so and is received."""

    def __init__(self, bench: Bench) -> None:
        self._database = psycopg.connect(bench.database_url, autocommit=True)
        self._database.execute("CREATE TABLE bench_hint (id bigserial PRIMARY KEY, value bytea)")
        self._publisher = redis.Redis.from_url(bench.redis_url)
        self._subscriber = redis.Redis.from_url(bench.redis_url).pubsub()  # type: ignore[no-untyped-call]
        self._subscriber.subscribe(CHANNEL)
        self._subscriber.get_message(timeout=5)

    def round(self, percentile: Callable[[Sequence[float]], float], *, times: int) -> float:
        """Commit and hint some times, one after the other."""
        return percentile([self.once() for _ in range(times)])

    def once(self) -> float:
        """Commit a row, hint, and hear it; gives the seconds."""
        started = time.perf_counter()
        self._database.execute("INSERT INTO bench_hint (value) VALUES (%s)", [ROW])
        self._publisher.publish(CHANNEL, b"1")
        self._subscriber.get_message(timeout=5)
        return time.perf_counter() - started

    def close(self) -> None:
        """Leave nothing behind."""
        self._database.execute("DROP TABLE bench_hint")
        self._database.close()
        self._subscriber.close()
        self._publisher.close()
