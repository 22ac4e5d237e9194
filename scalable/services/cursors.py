"""The cursors of a subscription: one in each segment, or one for each of its entry buckets; all or none.

A port outside the metadata database does not roll back with the caller's transaction: what was made or moved
there is undone here when a later step fails. What a crash leaves behind belongs to a subscription that nobody
can find, and is removed before a subscription of that name is made.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from scalable.domain.cursors import cursor_names
from scalable.domain.errors import SegmentStoreMissing
from scalable.domain.layout import Layout, Segment
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.store.subscriptions import SubscriptionView


class Cursor(NamedTuple):
    """One cursor in the data plane."""

    key: SegmentKey
    name: str


def cursors_in(subscription: SubscriptionView, segment: Segment) -> list[Cursor]:
    """Name the cursors that a subscription has in a segment, in the order of its entry buckets."""
    key = SegmentKey(subscription.incarnation, segment.segment_id)
    names = cursor_names(subscription.name, subscription.key_shared, segment.entry_bucket_splits)
    return [Cursor(key, name) for name in names]


def cursors_of(subscription: SubscriptionView, layout: Layout) -> list[Cursor]:
    """Name all cursors of a subscription, in the order in which all lock them."""
    return [
        cursor
        for segment_id in sorted(layout.segments)
        for cursor in cursors_in(subscription, layout.segments[segment_id])
    ]


def create_cursors(subscription: SubscriptionView, layout: Layout, positions: Mapping[int, int]) -> None:
    """Make all cursors of a new subscription, at these positions by segment or at earliest, or none.

    The caller holds the topic's lock. Raises SegmentStoreMissing.
    """
    port, made = segment_port(), []
    if not port.transactional:
        delete_cursors(subscription, layout)
    try:
        for cursor in cursors_of(subscription, layout):
            made.append(cursor)
            position = positions.get(cursor.key.segment_id)
            port.create_cursor(cursor.key, subscription=cursor.name, position=position)
    except BaseException:
        if not port.transactional:
            _remove(made)
        raise


def delete_cursors(subscription: SubscriptionView, layout: Layout) -> None:
    """Remove all cursors of a subscription; missing ones are fine."""
    _remove(cursors_of(subscription, layout))


def _remove(cursors: list[Cursor]) -> None:
    for cursor in cursors:
        segment_port().delete_cursor(cursor.key, subscription=cursor.name)


@contextmanager
def moving_cursors(moves: Mapping[Cursor, int]) -> Iterator[None]:
    """Move cursors for the length of a block: if that fails, a port outside the database is put back.

    The caller holds the topic's and the subscription's lock. Raises PositionInvalid, SubscriptionNotFound,
    SegmentStoreMissing.
    """
    port, before = segment_port(), {}
    try:
        for cursor, position in sorted(moves.items()):
            state = port.cursor(cursor.key, subscription=cursor.name)
            if state is not None:
                before[cursor] = state.position
            port.seek(cursor.key, subscription=cursor.name, position=position)
        yield
    except BaseException:
        if not port.transactional:
            _put_back(before)
        raise


def _put_back(before: Mapping[Cursor, int]) -> None:
    for cursor, position in before.items():
        try:
            segment_port().seek(cursor.key, subscription=cursor.name, position=position)
        except SegmentStoreMissing:  # its topic was deleted meanwhile
            continue
