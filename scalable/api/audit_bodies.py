"""The audit as REST reads and writes it."""

from typing import Annotated, Any

import msgspec

from scalable.api.serializers import MAX_BIGINT, Body, Query
from scalable.store.audit import AuditFilter, AuditView

Whole = Annotated[int, msgspec.Meta(ge=0, le=MAX_BIGINT)]
MAX_TIME_MS = 253_402_300_799_000
"""The end of the year 9999."""
Moment = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]


class AuditQuery(Query):
    """Which events are wanted, and how many."""

    actor: str = ""
    action: str = ""
    target: str = ""
    outcome: str = ""
    from_ms: Moment | None = None
    to_ms: Moment | None = None
    below_id: Whole | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100

    def wanted(self) -> AuditFilter:
        """What is looked for."""
        return AuditFilter(
            actor=self.actor,
            action=self.action,
            target=self.target,
            outcome=self.outcome,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            below_id=self.below_id,
        )


class AuditEventBody(Body):
    """Who did or tried what, to what, when; `outcome` is `done` or the code of the error."""

    event_id: int
    at_ms: int
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    request_id: str
    outcome: str


class AuditBody(Body):
    """A page of the audit, the newest first; `nextBelowId` reads on, null at the end."""

    events: list[AuditEventBody]
    next_below_id: int | None


def audit_body(events: list[AuditView], *, limit: int) -> AuditBody:
    """Write a page."""
    return AuditBody(
        events=[
            AuditEventBody(**{name: getattr(one, name) for name in AuditEventBody.__struct_fields__})
            for one in events
        ],
        next_below_id=events[-1].event_id if len(events) == limit else None,
    )
