"""Single segments, as brokers ask one another for them: for the system role alone (PIP-468, Segments API)."""

from typing import Annotated, Any

from msgspec import Meta
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.serializers import Query, TimeMs
from scalable.api.views.base import DoorView, body_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import (
    CursorNeeded,
    InvalidParameter,
    InvalidRange,
    SegmentClaimed,
    SegmentNotFound,
    SegmentNotLoaded,
    SegmentNotPrunable,
    SegmentsFixed,
    SegmentStoreMissing,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    TopicNotFound,
)
from scalable.domain.names import SegmentName, validate_part
from scalable.services import segment_admin as segments

MAX_SUBSCRIPTIONS = 10_000
SubscriptionNames = Annotated[list[str], Meta(max_length=MAX_SUBSCRIPTIONS)]
FOUND = (InvalidRange, TopicNotFound, SegmentNotFound)


class RoutedQuery(Query):
    """`authoritative` is taken and means nothing: every node answers."""

    authoritative: bool = False


class DeleteSegmentQuery(RoutedQuery):
    """`force` prunes what subscriptions have not drained."""

    force: bool = False


class SeekSegmentQuery(RoutedQuery):
    """A time in milliseconds since the epoch."""

    timestamp: TimeMs | None = None


class SystemView(DoorView):
    """What the views of segments share."""

    tag = "Segments (system)"


def _door(summary: str, *errors: Any, query: type[Query] = RoutedQuery, **more: Any) -> Door:
    answers = more.pop("answers", {204: None})
    return Door(
        summary=summary,
        right=Right.SYSTEM,
        query=query,
        answers=answers,
        errors=(*FOUND, *errors),
        **more,
    )


class SegmentView(SystemView):
    """One segment's store."""

    doors = {
        "PUT": _door(
            "Make an active segment's store and cursors, as far as they are missing",
            SegmentStoreMissing,
            SubscriptionNotFound,
            body=SubscriptionNames,
            body_required=False,
        ),
        "DELETE": _door(
            "Prune a sealed segment; one that is gone is fine",
            SegmentNotPrunable,
            SegmentClaimed,
            query=DeleteSegmentQuery,
        ),
    }

    def put(self, request: Request, **path: str) -> Response:
        subscribed = body_of(request, SubscriptionNames, default=[])
        segments.ensure_segment(name=segment_of(path), subscribed=subscribed)
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        force = self.query(DeleteSegmentQuery).force
        segments.delete_segment(name=segment_of(path), force=force)
        return Response(status=204)


class TerminateSegmentView(SystemView):
    """The end of a segment's writes."""

    doors = {
        "POST": _door("Let a segment take no more messages; again is fine", SegmentsFixed, SegmentNotLoaded)
    }

    def post(self, request: Request, **path: str) -> Response:
        segments.terminate_segment(name=segment_of(path))
        return Response(status=204)


class SegmentSubscriptionView(SystemView):
    """A subscription's cursors in one segment."""

    doors = {
        "PUT": _door(
            "Make the cursors that a subscription lacks in a segment, at earliest",
            SubscriptionNotFound,
            SegmentNotLoaded,
        ),
        "DELETE": _door("Remove what a deleted subscription left in a segment", CursorNeeded),
    }

    def put(self, request: Request, **path: str) -> Response:
        segments.ensure_cursor(name=segment_of(path), subscription=_subscription(path))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        segments.delete_cursor(name=segment_of(path), subscription=_subscription(path))
        return Response(status=204)


class SegmentBacklogView(SystemView):
    """What a subscription has still to receive of a segment."""

    doors = {
        "GET": _door(
            "Count the messages of a segment that a subscription has not acknowledged",
            SubscriptionNotFound,
            SegmentStoreMissing,
            answers={200: int},
        )
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(segments.segment_backlog(name=segment_of(path), subscription=_subscription(path)))


class SegmentSeekView(SystemView):
    """Where a subscription goes on in one segment."""

    doors = {
        "POST": _door(
            "Go on from a time, in one segment",
            SubscriptionNotFound,
            SubscriptionTypeMismatch,
            SegmentNotLoaded,
            InvalidParameter,
            query=SeekSegmentQuery,
        )
    }

    def post(self, request: Request, **path: str) -> Response:
        time_ms = self.query(SeekSegmentQuery).timestamp
        if time_ms is None:
            raise InvalidParameter(parameter="timestamp", value=None, problem="it is missing")
        segments.seek_segment(name=segment_of(path), subscription=_subscription(path), time_ms=time_ms)
        return Response(status=204)


class SegmentSkipAllView(SystemView):
    """The whole backlog of a subscription in one segment."""

    doors = {
        "POST": _door(
            "Skip all messages of one segment",
            SubscriptionNotFound,
            SubscriptionTypeMismatch,
            SegmentNotLoaded,
        )
    }

    def post(self, request: Request, **path: str) -> Response:
        segments.skip_segment(name=segment_of(path), subscription=_subscription(path))
        return Response(status=204)


def segment_of(path: dict[str, str]) -> SegmentName:
    """The segment that a path names, its descriptor as in `0000-7fff-1`; raises InvalidName, InvalidRange."""
    return SegmentName.parse(f"segment://{topic_of(path).path}/{path['descriptor']}")


def _subscription(path: dict[str, str]) -> str:
    return validate_part(path["subscription"], "subscription")
