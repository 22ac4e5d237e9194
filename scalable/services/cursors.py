"""The cursors of a subscription: one in each segment, or one for each of its entry buckets; all or none.

A port outside the metadata database does not roll back with the caller's transaction: what was made or moved
there is undone here when a later step fails. What a crash leaves behind belongs to a subscription that nobody
can find, and is removed before a subscription of that name is made.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from django.db import DatabaseError

from scalable.domain.cursors import cursor_names
from scalable.domain.errors import ScalableError
from scalable.domain.layout import Layout, Segment
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.store.subscriptions import SubscriptionView


class Cursor(NamedTuple):
    """One cursor in the data plane."""

    key: SegmentKey
    name: str


class Move(NamedTuple):
    """Where a cursor goes: to a position, or there by a skip, which keeps what is acknowledged behind it.

    A skip is of so many messages, or (`skips` alone) of all below the position; never back from where the
    cursor has come meanwhile.
    """

    position: int
    skips: bool = False
    skipped: int = 0


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
def moving_cursors(
    moves: Mapping[Cursor, Move], *, check: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Move cursors, then run a block: if either fails, a port outside the database is put back.

    The caller holds the topic's and the subscription's lock; `check` raises when it no longer does, as when
    its session has ended: then no cursor is moved any more, nor put back. Raises what it raises,
    PositionInvalid, SubscriptionNotFound, SegmentStoreMissing.
    """
    transactional = segment_port().transactional
    before: dict[Cursor, int] = {}
    try:
        for cursor in sorted(moves):
            if not transactional:
                before |= _position(cursor)
                check()
            _move(cursor, moves[cursor])
        yield
    except BaseException:
        _put_back(before, check)
        raise


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except (ScalableError, DatabaseError):
        return False
    return True


def _position(cursor: Cursor) -> dict[Cursor, int]:
    state = segment_port().cursor(cursor.key, subscription=cursor.name)
    return {} if state is None else {cursor: state.position}


def _move(cursor: Cursor, move: Move) -> None:
    port = segment_port()
    if move.skipped:
        port.skip(cursor.key, subscription=cursor.name, count=move.skipped)
    elif move.skips:
        port.skip_to(cursor.key, subscription=cursor.name, position=move.position)
    else:
        port.seek(cursor.key, subscription=cursor.name, position=move.position)


def _put_back(before: Mapping[Cursor, int], check: Callable[[], None]) -> None:
    for cursor, position in before.items():
        if not _passes(check):
            return
        with suppress(ScalableError):  # its topic was deleted meanwhile, or its place was trimmed
            segment_port().seek(cursor.key, subscription=cursor.name, position=position)
