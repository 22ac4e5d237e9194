"""The audit: what was done is written in the transaction that does it, what was refused by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import Error, transaction

from scalable import trace
from scalable.services import idempotency
from scalable.store import audit as store
from scalable.store.audit import AuditFilter, AuditView
from scalable.store.clock import database_now

logger = logging.getLogger(__name__)

DONE = "done"
NOBODY = "nobody"
FORGET_AT_ONCE = 10_000
LEAST_RETENTION = timedelta(days=30)
"""What the database lets nobody delete earlier."""

Json = Mapping[str, Any]


def record(
    action: str,
    target: object,
    *,
    actor: str = "",
    before: Json | None = None,
    after: Json | None = None,
) -> None:
    """Note that something is done; call it in the transaction that does it.

    Whoever asked (`trace`) counts before the `actor` that the service was told. The idempotency key of the
    request, if there is one, is marked as done; raises IdempotencyKeyBusy when another one has it now.
    """
    idempotency.mark_done()
    about = trace.current()
    store.insert(
        actor=about.actor or actor or NOBODY,
        action=action,
        target=str(target),
        before=before,
        after=after,
        request_id=about.request_id,
        outcome=DONE,
    )


def record_refusal(*, action: str, target: str, outcome: str, actor: str = "") -> None:
    """Note that something was tried and refused; trouble with that is logged and changes nothing.

    Whoever asked counts as for `record`.
    """
    about = trace.current()
    try:
        with transaction.atomic():
            store.insert(
                actor=about.actor or actor or NOBODY,
                action=action,
                target=target,
                before=None,
                after=None,
                request_id=about.request_id,
                outcome=outcome,
            )
    except Error:
        logger.warning("A refusal is missing in the audit: %s of %s", action, target, exc_info=True)


def list_events(*, wanted: AuditFilter, limit: int) -> list[AuditView]:
    """Give events, the newest first; read on with `below_id`."""
    return store.page(wanted, limit=limit)


def forget_old() -> int:
    """Drop what is older than the setting allows, never what is younger than thirty days; give how many."""
    kept = max(timedelta(days=settings.SCALABLE_AUDIT_RETENTION_DAYS), LEAST_RETENTION)
    with transaction.atomic():
        return store.forget(before=database_now() - kept, limit=FORGET_AT_ONCE)
