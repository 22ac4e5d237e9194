"""Which tests begin first where several processes share them, and which ones keep to one process."""

from collections import Counter

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK = "tests/spark/"


class LongOnesFirst(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Share files in the order of the collection, all of Spark's as one: its session takes long to start."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


def long_ones_first(items: list[pytest.Item]) -> None:
    """Put Spark's tests first, then files with slow tests, then those with many: no process ends up alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[bool, bool, int, str]:
        is_spark = item.nodeid.startswith(SPARK)
        return not is_spark, item.path not in slow, -count[item.path], str(item.path)

    items.sort(key=rank)  # a stable one: within a file all stays as it is
