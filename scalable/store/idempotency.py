"""Rows of requests that came with an idempotency key."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from scalable.admin_models import IdempotentRequest
from scalable.store.clock import ClockTimestamp

# One statement, so that of two requests with one key one is first. A row whose time is over is free again.
_BEGIN = """
INSERT INTO scalable_idempotentrequest AS request (role, key, fingerprint, body, headers, expires_at)
VALUES (%(role)s, %(key)s, %(fingerprint)s, '', '{}', clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (role, key) DO UPDATE
   SET fingerprint = excluded.fingerprint, status = NULL, body = '', headers = '{}',
       expires_at = excluded.expires_at
 WHERE request.expires_at <= clock_timestamp()
RETURNING id
"""
_FINISH = """
UPDATE scalable_idempotentrequest
   SET status = %(status)s, body = %(body)s, headers = %(headers)s::jsonb,
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE id = %(id)s AND status IS NULL
"""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """What a key stands for, and how it was answered; a status of None: not yet."""

    fingerprint: str
    status: int | None
    body: str
    headers: Mapping[str, str]


def begin(*, role: str, key: str, fingerprint: str, seconds: float) -> int | None:
    """Take a key that is free for so long, and give the row's id; None when it stands for something."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, {"role": role, "key": key, "fingerprint": fingerprint, "seconds": seconds})
        row: tuple[int] | None = cursor.fetchone()
    return None if row is None else row[0]


def read(role: str, key: str) -> KeptRequest | None:
    """What a role's key stands for, or None."""
    row = IdempotentRequest.objects.filter(role=role, key=key).first()
    return None if row is None else KeptRequest(row.fingerprint, row.status, row.body, row.headers)


def finish(row_id: int, *, status: int, body: str, headers: str, seconds: float) -> None:
    """Keep the answer (`headers` as JSON) for so long."""
    with connection.cursor() as cursor:
        cursor.execute(
            _FINISH, {"id": row_id, "status": status, "body": body, "headers": headers, "seconds": seconds}
        )


def release(row_id: int) -> None:
    """Let the key be used again: its request has done nothing."""
    IdempotentRequest.objects.filter(pk=row_id, status=None).delete()


def count(role: str) -> int:
    """Count the keys of a role that are kept."""
    return IdempotentRequest.objects.filter(role=role).count()


def trim(*, limit: int) -> int:
    """Forget some keys whose time is over, and count them."""
    over = IdempotentRequest.objects.filter(expires_at__lte=ClockTimestamp()).order_by("expires_at")
    deleted, _ = IdempotentRequest.objects.filter(
        pk__in=list(over.values_list("pk", flat=True)[:limit])
    ).delete()
    return deleted
