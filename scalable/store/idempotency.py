"""Rows of requests that came with an idempotency key."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection

from scalable.admin_models import IdempotentRequest

# A row is free again when its time is over; one that is done and unanswered stays for so long after that.
_FREE = """
(request.expires_at <= clock_timestamp() - CASE WHEN request.is_done AND request.status IS NULL
                                                THEN make_interval(secs => %(kept_seconds)s)
                                                ELSE interval '0' END)
"""
# One statement, so that of two requests with one key one is first. A row that is taken over gets another id,
# by which the request that had it can tell.
_BEGIN = f"""
INSERT INTO scalable_idempotentrequest AS request (role, key, fingerprint, body, headers, expires_at)
VALUES (%(role)s, %(key)s, %(fingerprint)s, '', '{{}}',
        clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (role, key) DO UPDATE
   SET id = DEFAULT, fingerprint = excluded.fingerprint, status = NULL, is_done = false, body = '',
       headers = '{{}}', expires_at = excluded.expires_at
 WHERE {_FREE}
RETURNING id
"""
_READ = f"""
SELECT fingerprint, status, body, headers::text, is_done, expires_at <= clock_timestamp(), {_FREE}
  FROM scalable_idempotentrequest AS request
 WHERE role = %(role)s AND key = %(key)s
"""
_FINISH = """
UPDATE scalable_idempotentrequest
   SET status = %(status)s, body = %(body)s, headers = %(headers)s::jsonb,
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE id = %(id)s AND status IS NULL
"""
_END_WORK = """
UPDATE scalable_idempotentrequest SET expires_at = clock_timestamp() WHERE id = %(id)s AND status IS NULL
"""
# Whoever marks a row holds it until its transaction ends: it is passed over, not waited for. An array is
# looked up once, while IN (...) may be asked anew for each row and so take more than its limit.
_TRIM = f"""
DELETE FROM scalable_idempotentrequest
 WHERE id = ANY(ARRAY(
       SELECT id FROM scalable_idempotentrequest AS request
        WHERE expires_at <= clock_timestamp() AND {_FREE}
        ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
"""
_DROP_ANSWERED = """
DELETE FROM scalable_idempotentrequest
 WHERE id = ANY(ARRAY(
       SELECT id FROM scalable_idempotentrequest
        WHERE role = %(role)s AND status IS NOT NULL
          AND expires_at <= clock_timestamp() + make_interval(secs => %(left_seconds)s)
        ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
"""
# One statement, so that it sees one set of keys: what is begun meanwhile is neither moved nor forgotten.
_HAND_ON = """
WITH doubled AS (
    DELETE FROM scalable_idempotentrequest AS request
     USING scalable_idempotentrequest AS other
     WHERE request.role = %(role)s AND other.role = %(heir)s AND other.key = request.key
)
UPDATE scalable_idempotentrequest AS request SET role = %(heir)s
 WHERE role = %(role)s AND NOT EXISTS (SELECT FROM scalable_idempotentrequest AS other
                                        WHERE other.role = %(heir)s AND other.key = request.key)
"""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """What a key stands for, and how it was answered; a status of None: not yet."""

    fingerprint: str
    status: int | None
    body: str
    headers: Mapping[str, str]
    is_done: bool
    is_over: bool
    """Its time is over: nobody works on it any longer."""
    is_free: bool
    """The key may be taken again."""


def begin(*, role: str, key: str, fingerprint: str, seconds: float, kept_seconds: float) -> int | None:
    """Take a key that is free for so long, and give the row's id; None when it stands for something."""
    values = {"role": role, "key": key, "fingerprint": fingerprint}
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, {**values, "seconds": seconds, "kept_seconds": kept_seconds})
        row: tuple[int] | None = cursor.fetchone()
    return None if row is None else row[0]


def read(role: str, key: str, *, kept_seconds: float) -> KeptRequest | None:
    """What a role's key stands for, or None."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"role": role, "key": key, "kept_seconds": kept_seconds})
        row = cursor.fetchone()
    if row is None:
        return None
    fingerprint, status, body, headers, is_done, is_over, is_free = row
    return KeptRequest(fingerprint, status, body, json.loads(headers), is_done, is_over, is_free)


def finish(row_id: int, *, status: int, body: str, headers: str, seconds: float) -> None:
    """Keep the answer (`headers` as JSON) for so long."""
    _change(_FINISH, id=row_id, status=status, body=body, headers=headers, seconds=seconds)


def mark_done(row_id: int) -> bool:
    """Mark a request as done; False when its key was taken by another one. Call it with the effect."""
    return IdempotentRequest.objects.filter(pk=row_id).update(is_done=True) == 1


def release(row_id: int) -> None:
    """Let the key be used again if its request has done nothing; one that has is worked on no longer."""
    IdempotentRequest.objects.filter(pk=row_id, status=None, is_done=False).delete()
    _change(_END_WORK, id=row_id)


def count(role: str) -> int:
    """Count the keys of a role that are kept."""
    return IdempotentRequest.objects.filter(role=role).count()


def drop_answered(role: str, *, left_seconds: float, limit: int) -> int:
    """Forget the oldest answers of a role that would be kept for at most so long, and count them."""
    return _change(_DROP_ANSWERED, role=role, left_seconds=left_seconds, limit=limit)


def hand_on(role: str, *, heir: str | None) -> None:
    """Give a role's keys to another one, less those that it has itself; without an heir forget them."""
    if heir is None:
        IdempotentRequest.objects.filter(role=role).delete()
    else:
        _change(_HAND_ON, role=role, heir=heir)


def trim(*, limit: int, kept_seconds: float) -> int:
    """Forget some keys that are free, and count them."""
    return _change(_TRIM, limit=limit, kept_seconds=kept_seconds)


def _change(statement: str, **values: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        changed: int = cursor.rowcount
    return changed
