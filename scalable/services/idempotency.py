"""Requests that may be sent twice and are done once: by the key that the caller gives them.

A key belongs to a role. The answer is kept for a day and given again to the same request; another request
under the key is refused. A request that ends in a fault of the server frees its key: it may be repeated.
When the process dies over it, nobody knows what it had done: then the key is busy for a few minutes, and free
after that.
"""

import json
from collections.abc import Mapping

from scalable.domain.errors import (
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
TRIMMED_AT_ONCE = 10_000
SERVER_FAULT = 500


def begin(*, role: str, key: str, fingerprint: str) -> int | KeptRequest:
    """Take a key for a request, or give the answer that the same request got.

    Raises InvalidParameter, IdempotencyKeyReused, IdempotencyKeyBusy, IdempotencyKeysFull.
    """
    if not (1 <= len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable()):
        problem = f"it has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters"
        raise InvalidParameter(parameter="Idempotency-Key", value=key[:MAX_KEY_CHARACTERS], problem=problem)
    known = store.read(role, key)
    if known is None and store.count(role) >= MAX_KEYS and not store.trim(limit=TRIMMED_AT_ONCE):
        raise IdempotencyKeysFull(limit=MAX_KEYS)
    row_id = store.begin(role=role, key=key, fingerprint=fingerprint, seconds=WORKING_SECONDS)
    if row_id is not None:
        return row_id
    kept = store.read(role, key)
    if kept is None or (kept.status is None and kept.fingerprint == fingerprint):
        raise IdempotencyKeyBusy(key=key)
    if kept.fingerprint != fingerprint:
        raise IdempotencyKeyReused(key=key)
    return kept


def finish(row_id: int, *, status: int, body: str, headers: Mapping[str, str]) -> None:
    """Keep an answer, or free the key when it was a fault of the server or is too large to be kept."""
    if status >= SERVER_FAULT or len(body) > MAX_BODY_CHARACTERS:
        store.release(row_id)
        return
    store.finish(row_id, status=status, body=body, headers=json.dumps(dict(headers)), seconds=KEPT_SECONDS)


def forget_old_keys() -> int:
    """Forget keys whose time is over, a bounded number, and count them."""
    return store.trim(limit=TRIMMED_AT_ONCE)
