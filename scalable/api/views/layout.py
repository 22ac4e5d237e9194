"""Questions about a topic's layout: where a key is, what came of what, what was pruned."""

from msgspec import UNSET
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.layout_bodies import (
    HistoryBody,
    HistoryQuery,
    LineageBody,
    LineageQuery,
    LocatedBody,
    LocateQuery,
    lineage_body,
    located_body,
    node_body,
)
from scalable.api.views.base import DoorView, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import InvalidParameter, TopicNotFound
from scalable.domain.keyspace import key_hash
from scalable.services import locating


class LocateView(DoorView):
    """The place of a key."""

    tag = "Split and merge"
    doors = {
        "GET": Door(
            summary="Find the segment of a key, now or at a time, and how far each subscription is with it",
            right=Right.LOOKUP,
            query=LocateQuery,
            answers={200: LocatedBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(LocateQuery)
        at_time_ms = None if query.at_time is UNSET else query.at_time
        found = locating.locate(name=topic_of(path), hash32=_hash(query), at_time_ms=at_time_ms)
        return Response(located_body(found, at_time_ms))


class LineageView(DoorView):
    """The DAG of a topic's segments."""

    tag = "Split and merge"
    doors = {
        "GET": Door(
            summary="Get the segments as nodes and edges, pruned ones too",
            right=Right.LOOKUP,
            query=LineageQuery,
            answers={200: LineageBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(LineageQuery)
        found = locating.lineage(
            name=topic_of(path), pruned_limit=query.pruned, pruned_offset=query.pruned_offset
        )
        return Response(lineage_body(found))


class HistoryView(DoorView):
    """The segments that were pruned."""

    tag = "Split and merge"
    doors = {
        "GET": Door(
            summary="List the segments that were pruned, the last first",
            right=Right.LOOKUP,
            query=HistoryQuery,
            answers={200: HistoryBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(HistoryQuery)
        found, total = locating.pruned_segments(name=topic_of(path), limit=query.limit, offset=query.offset)
        return Response({"segments": [node_body(each) for each in found], "total": total})


def _hash(query: LocateQuery) -> int:
    if (query.key is UNSET) == (query.hash is UNSET):
        value = None if query.key is UNSET else query.key
        raise InvalidParameter(parameter="key", value=value, problem="give a key or a hash, one of them")
    if query.hash is not UNSET:
        return query.hash
    return key_hash(str(query.key))
