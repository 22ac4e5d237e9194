"""Loads of segments, the tiles of the map, and the reports of the load pipeline."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.load_bodies import (
    LoadReportBody,
    LoadsBody,
    ReportOutcomeBody,
    TileReportBody,
    TilesBody,
    TilesQuery,
)
from scalable.api.views.base import DoorView, body_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import LoadReportUnreadable, TopicNotFound
from scalable.services import loads
from scalable.store.loads import Tile


class LoadsView(DoorView):
    """The rates of a topic's segments."""

    tag = "Load"
    doors = {
        "GET": Door(
            summary="Get the rates per segment",
            right=Right.LOOKUP,
            answers={200: LoadsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(loads.topic_loads(name=topic_of(path)).to_json())


class TilesView(DoorView):
    """The tiles of a topic's map."""

    tag = "Load"
    doors = {
        "GET": Door(
            summary="Get tiles of messages in, per 1/32 of each segment's range; the past in coarser ones",
            right=Right.LOOKUP,
            query=TilesQuery,
            answers={200: TilesBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        span = self.query(TilesQuery)
        tiles = loads.tiles(name=topic_of(path), from_ms=span.from_ms, to_ms=span.to_ms)
        return Response({"tiles": [tile_body(tile) for tile in tiles]})


class LoadReportView(DoorView):
    """What the load pipeline computed."""

    tag = "Load"
    doors = {
        "POST": Door(
            summary="Report rates; those that changed materially are kept",
            right=Right.SYSTEM,
            of_machinery=True,
            body=LoadReportBody,
            answers={200: ReportOutcomeBody},
            errors=(LoadReportUnreadable,),
        ),
    }

    def post(self, request: Request) -> Response:
        report = body_of(request, LoadReportBody)
        outcome = loads.report_loads(
            reporter=report.reporter, watermark_ms=report.watermark_ms, loads=report.loads
        )
        return Response(outcome.to_json())


class TileReportView(DoorView):
    """The tiles that the load pipeline computed."""

    tag = "Load"
    doors = {
        "POST": Door(
            summary="Report one-minute tiles; one that is there is replaced",
            right=Right.SYSTEM,
            of_machinery=True,
            body=TileReportBody,
            answers={200: ReportOutcomeBody},
            errors=(LoadReportUnreadable,),
        ),
    }

    def post(self, request: Request) -> Response:
        outcome = loads.report_tiles(tiles=body_of(request, TileReportBody).tiles)
        return Response(outcome.to_json())


def tile_body(tile: Tile) -> dict[str, object]:
    """A tile by the names of the report."""
    return {
        "segmentId": tile.segment_id,
        "minuteMs": tile.minute_ms,
        "spanMs": tile.span_minutes * 60_000,
        "observedMs": tile.observed_ms,
        "mean": tile.mean,
        "max": tile.peak,
    }
