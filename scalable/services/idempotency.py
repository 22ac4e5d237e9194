"""Requests that may be sent twice and are done once: by the key that the caller gives them.

A key belongs to a role. The answer is kept for a day and given again to the same request; another request
under the key is refused. What a request does is marked at its key in the same transaction (`auditing.record`
does that), so that it is not done again when the answer is lost, be it by a fault of the server or by the
death of the process. A request that has done nothing frees its key with such a fault, or a few minutes later.
"""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from scalable.domain.errors import (
    IdempotencyAnswerLost,
    IdempotencyKeyBusy,
    IdempotencyKeyReused,
    IdempotencyKeysFull,
    InvalidParameter,
)
from scalable.store import idempotency as store
from scalable.store.idempotency import KeptRequest

MAX_KEY_CHARACTERS = 255
MAX_KEYS = 10_000
"""So many keys of one role are kept."""
MAX_BODY_CHARACTERS = 256 * 1024
WORKING_SECONDS = 180
KEPT_SECONDS = 24 * 3600
LEAST_KEPT_SECONDS = 3600
"""An answer is kept for so long even when there are too many."""
TRIMMED_AT_ONCE = 10_000
DROPPED_AT_ONCE = 1_000
SERVER_FAULT = 500


@dataclass(slots=True)
class _InWork:
    """The request that is worked on; shared with whatever runs on another thread or goes on after it."""

    row_id: int
    key: str
    is_answered: bool = False


_in_work: ContextVar[_InWork | None] = ContextVar("scalable_idempotency", default=None)


def begin(*, role: str, key: str, fingerprint: str) -> int | KeptRequest:
    """Take a key for a request, or give the answer that the same request got.

    Raises InvalidParameter, IdempotencyKeyReused, IdempotencyKeyBusy, IdempotencyAnswerLost,
    IdempotencyKeysFull.
    """
    if not (1 <= len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable()):
        problem = f"it has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters"
        raise InvalidParameter(parameter="Idempotency-Key", value=key[:MAX_KEY_CHARACTERS], problem=problem)
    known = store.read(role, key, kept_seconds=KEPT_SECONDS)
    if known is None or known.is_free:
        if known is None:
            _make_room(role)
        row_id = store.begin(
            role=role, key=key, fingerprint=fingerprint, seconds=WORKING_SECONDS, kept_seconds=KEPT_SECONDS
        )
        if row_id is not None:
            return row_id
        known = store.read(role, key, kept_seconds=KEPT_SECONDS)
    return _answer_of(known, key=key, fingerprint=fingerprint)


def work_on(row_id: int, *, key: str) -> None:
    """Let what is done from here on be marked at this key, until its request is finished."""
    _in_work.set(_InWork(row_id, key))


def mark_done() -> None:
    """Mark the request that is worked on, if it has a key; call it in the transaction of its effect.

    Raises IdempotencyKeyBusy when that took so long that another request has the key now.
    """
    request = _in_work.get()
    if request is None or request.is_answered:
        return
    if not store.mark_done(request.row_id):
        raise IdempotencyKeyBusy(key=request.key)


def finish(row_id: int, *, status: int, body: str, headers: Mapping[str, str]) -> None:
    """Keep an answer; without one that can be kept (a fault of the server, or too large) end the work.

    Then the key is free, unless something was done under it.
    """
    request = _in_work.get()
    if request is not None and request.row_id == row_id:
        request.is_answered = True
        _in_work.set(None)
    if status >= SERVER_FAULT or len(body) > MAX_BODY_CHARACTERS:
        store.release(row_id)
        return
    store.finish(row_id, status=status, body=body, headers=json.dumps(dict(headers)), seconds=KEPT_SECONDS)


def forget_old_keys() -> int:
    """Forget keys whose time is over, a bounded number, and count them."""
    return store.trim(limit=TRIMMED_AT_ONCE, kept_seconds=KEPT_SECONDS)


def _make_room(role: str) -> None:
    """Drop what is over, and the oldest answers of a role that has too many; raises IdempotencyKeysFull."""
    if store.count(role) < MAX_KEYS:
        return
    forget_old_keys()
    if store.count(role) < MAX_KEYS:
        return
    left_seconds = KEPT_SECONDS - LEAST_KEPT_SECONDS
    if not store.drop_answered(role, left_seconds=left_seconds, limit=DROPPED_AT_ONCE):
        raise IdempotencyKeysFull(limit=MAX_KEYS)


def _answer_of(known: KeptRequest | None, *, key: str, fingerprint: str) -> KeptRequest:
    if known is None:  # it was freed just now
        raise IdempotencyKeyBusy(key=key)
    if known.fingerprint != fingerprint:
        raise IdempotencyKeyReused(key=key)
    if known.status is not None:
        return known
    if known.is_done and known.is_over:
        raise IdempotencyAnswerLost(key=key)
    raise IdempotencyKeyBusy(key=key)
