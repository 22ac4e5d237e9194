"""One segment in numbers."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.segment_bodies import SegmentStatsBody, segment_stats_body
from scalable.api.views.base import DoorView, segment_id_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import SegmentNotFound, SegmentStoreMissing, TopicNotFound
from scalable.services import segment_stats


class SegmentStatsView(DoorView):
    """A segment's offsets, size, load and subscriptions."""

    tag = "Load"
    doors = {
        "GET": Door(
            summary="Get a segment's offsets, size, rates and subscriptions",
            right=Right.LOOKUP,
            answers={200: SegmentStatsBody},
            errors=(TopicNotFound, SegmentNotFound, SegmentStoreMissing),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        name, segment_id = topic_of(path), segment_id_of(path)
        return Response(segment_stats_body(segment_stats.segment_figures(name=name, segment_id=segment_id)))
