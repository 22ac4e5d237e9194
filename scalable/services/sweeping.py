"""Sweeps: put unfinished operations back on the queue, remove orphaned stores, make missing ones."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from django.conf import settings

from scalable import announce
from scalable.domain.errors import TopicNotFound
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.stores import delete_stores
from scalable.services.topics import heal_topic
from scalable.store import operations, topics

logger = logging.getLogger(__name__)

MAX_REQUEUED = 500
TOPICS_PER_PAGE = 500


def sweep_operations() -> list[str]:
    """Queue unfinished operations again whose lease ran out, or that nobody leased; returns their ids.

    They take the same way as new ones, so that a lost notice, a lost task and a dead runner are one case.
    """
    waiting = operations.waiting_for_a_runner(
        idle_seconds=settings.SCALABLE_OPERATION_SWEEP_SECONDS, limit=MAX_REQUEUED
    )
    for operation_id in waiting:
        announce.publish(announce.OperationRequested(operation_id))
    return waiting


def sweep_stores() -> tuple[list[SegmentKey], list[SegmentKey]]:
    """Delete stores that no layout and no unfinished plan knows, and make those that active segments lack.

    Returns the keys of both. A store is made only after a row that names it was committed; so one whose row
    is not found *after* the stores were listed will never have one.
    """
    by_topic: dict[int, set[SegmentKey]] = defaultdict(set)
    for key in segment_port().keys(incarnation=None):
        by_topic[key.incarnation].add(key)
    orphans = [key for page in _pages(sorted(by_topic)) for key in _orphans(page, by_topic)]
    for incarnation, keys in groupby(orphans, key=attrgetter("incarnation")):
        _delete(incarnation, [key.segment_id for key in keys])
    return orphans, list(_healed(by_topic))


def _pages(incarnations: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(incarnations), TOPICS_PER_PAGE):
        yield incarnations[start : start + TOPICS_PER_PAGE]


def _orphans(incarnations: list[int], by_topic: dict[int, set[SegmentKey]]) -> list[SegmentKey]:
    # Plans before layouts: an operation that ends in between has its children in the layout by then.
    known = {
        SegmentKey(operation.incarnation, child_id)
        for operation in operations.unfinished(incarnations)
        for child_id in operation.plan.child_ids
    }
    known |= {SegmentKey(*pair) for pair in topics.segment_ids(incarnations)}
    return sorted({key for incarnation in incarnations for key in by_topic[incarnation]} - known)


def _delete(incarnation: int, segment_ids: Sequence[int]) -> None:
    delete_stores(incarnation, segment_ids)
    # No warning: as long as a topic is being deleted, its stores are orphans too.
    logger.info("Deleted %d orphaned stores of topic %s", len(segment_ids), incarnation)


def _healed(by_topic: dict[int, set[SegmentKey]]) -> Iterator[SegmentKey]:
    after = 0
    while page := topics.active_segment_ids(after=after, topics=TOPICS_PER_PAGE):
        for incarnation, segment_ids in page.items():
            wanted = {SegmentKey(incarnation, segment_id) for segment_id in segment_ids}
            if not wanted <= by_topic[incarnation]:
                yield from _heal(incarnation)
        after = max(page)


def _heal(incarnation: int) -> Collection[SegmentKey]:
    try:
        healed = heal_topic(incarnation=incarnation)
    except TopicNotFound:
        return ()
    if healed:
        logger.warning("Made %d missing stores of topic %s", len(healed), incarnation)
    return [SegmentKey(incarnation, segment_id) for segment_id in healed]
