"""The audit: who did what."""

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.audit_bodies import AuditBody, AuditQuery, audit_body
from scalable.api.doors import Door
from scalable.api.views.base import DoorView
from scalable.domain.access import Right
from scalable.services import auditing


class AuditView(DoorView):
    """Changes and refused attempts."""

    tag = "Access"
    doors = {
        "GET": Door(
            summary="List what was done or tried, the newest first",
            right=Right.SUPERUSER,
            query=AuditQuery,
            answers={200: AuditBody},
        ),
    }

    def get(self, request: Request) -> Response:
        query = self.query(AuditQuery)
        events = auditing.list_events(wanted=query.wanted(), limit=query.limit)
        return Response(msgspec.to_builtins(audit_body(events, limit=query.limit)))
