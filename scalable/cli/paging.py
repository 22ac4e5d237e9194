"""Lists that come in pages, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

PAGE = 1_000
"""The most that a node gives at once."""

T = TypeVar("T")

limit_option = click.option("--limit", type=click.IntRange(1), help="No more than so many.")


def gather(page: Callable[[int, int], list[T]], limit: int | None) -> list[T]:
    """Read page after page; `page` takes how many and behind how many."""
    found: list[T] = []
    while limit is None or len(found) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        got = page(size, len(found))
        found += got
        if len(got) < size:
            break
    return found
