"""The audit as REST reads and writes it."""

from typing import Annotated, Any

from msgspec import Meta

from scalable.api.serializers import Body, Identifier, PageSize, Query, TimeMs
from scalable.store.audit import AuditFilter, AuditView

Sought = Annotated[str, Meta(max_length=1024, pattern=r"^[^\x00]*$")]
"""What a column is compared with: as long as the longest, and without the character that none can hold."""


class AuditQuery(Query):
    """Which events are wanted, and how many."""

    actor: Sought = ""
    action: Sought = ""
    target: Sought = ""
    outcome: Sought = ""
    from_ms: TimeMs | None = None
    to_ms: TimeMs | None = None
    below_id: Identifier | None = None
    limit: PageSize = 100

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
