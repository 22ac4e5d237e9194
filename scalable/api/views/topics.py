"""Topics of a namespace, their metadata and their properties."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.serializers import (
    CreateTopicQuery,
    DeleteTopicQuery,
    ListFiguresQuery,
    ListTopicsQuery,
    Properties,
    TopicBody,
    TopicFiguresPage,
    read_body,
)
from scalable.api.views.base import DoorView, namespace_of, require_json, topic_of
from scalable.api.views.waiting import when_unclaimed
from scalable.domain.access import Right
from scalable.domain.errors import (
    EpochMoved,
    InvalidFilter,
    InvalidInitialSegments,
    NamespaceDeleting,
    NamespaceNotFound,
    SegmentClaimed,
    SegmentsFixed,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
)
from scalable.domain.names import validate_part
from scalable.services import topics

TOTAL_HEADER = "X-Scalable-Total"


class NamespaceView(DoorView):
    """The topics of a namespace."""

    tag = "Topics"
    doors = {
        "GET": Door(
            summary="List topics",
            right=Right.LOOKUP,
            query=ListTopicsQuery,
            answers={200: list[str]},
            errors=(NamespaceNotFound, InvalidFilter),
            headers={TOTAL_HEADER: "how many topics match, of which a page is answered"},
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(ListTopicsQuery)
        names, total = topics.list_topics(
            tenant=validate_part(path["tenant"], "tenant"),
            namespace=validate_part(path["namespace"], "namespace"),
            filters=parse_filters(query.property),
            limit=query.limit,
            offset=query.offset,
        )
        return Response([str(name) for name in names], headers={TOTAL_HEADER: str(total)})


class FiguresView(DoorView):
    """The topics of a namespace with their figures, for lists that people read."""

    tag = "Topics"
    doors = {
        "GET": Door(
            summary="List topics with their figures: a page, filtered and sorted",
            right=Right.LOOKUP,
            query=ListFiguresQuery,
            answers={200: TopicFiguresPage},
            errors=(NamespaceNotFound, InvalidFilter),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(ListFiguresQuery)
        wanted = topics.Wanted(
            search=query.search,
            properties=parse_filters(query.property),
            reshaping=None if query.state is None else query.state == "RESHAPING",
            sort=query.sort,
            descending=query.descending,
        )
        found = topics.list_figures(
            **namespace_of(path), wanted=wanted, limit=query.limit, offset=query.offset
        )
        page = [figures_body(one) for one in found.topics]
        return Response({"topics": page, "total": found.total, "totalExact": found.exact})


class TopicView(DoorView):
    """One topic."""

    tag = "Topics"
    doors = {
        "PUT": Door(
            summary="Create a topic; the body holds its properties",
            right=Right.ADMIN,
            query=CreateTopicQuery,
            body=Properties,
            body_required=False,
            answers={204: None},
            errors=(NamespaceNotFound, NamespaceDeleting, TopicExists, InvalidInitialSegments),
        ),
        "GET": Door(
            summary="Get a topic's metadata",
            right=Right.LOOKUP,
            answers={200: TopicBody},
            errors=(TopicNotFound,),
        ),
        "DELETE": Door(
            summary="Delete a topic with its messages, once its splits and merges have ended",
            right=Right.ADMIN,
            query=DeleteTopicQuery,
            answers={204: None},
            errors=(TopicNotFound, TopicDeleted, SegmentsFixed, SegmentClaimed, EpochMoved),
        ),
    }

    def put(self, request: Request, **path: str) -> Response:
        topics.create_topic(
            name=topic_of(path),
            initial_segments=self.query(CreateTopicQuery).num_initial_segments,
            properties=properties_of(request),
            actor=actor_of(request),
        )
        return Response(status=204)

    def get(self, request: Request, **path: str) -> Response:
        return Response(topic_body(topics.get_topic(name=topic_of(path))))

    def delete(self, request: Request, **path: str) -> Response:
        name, query = topic_of(path), self.query(DeleteTopicQuery)
        delete = partial(
            topics.delete_topic,
            name=name,
            incarnation=topics.incarnation_of(name=name),  # another may have the name when the wait is over
            force=query.force,
            expected_epoch=query.epoch,
            actor=actor_of(request),
        )
        when_unclaimed(request, name, delete)
        return Response(status=204)


def properties_of(request: Request) -> dict[str, str]:
    """The properties in the body, none when it is empty; raises UnreadableBody."""
    data = request._request.body
    if not data.strip():
        return {}
    require_json(request)
    properties: dict[str, str] = read_body(data, Properties)
    return properties


def parse_filters(entries: Iterable[str]) -> dict[str, str]:
    """Read `key=value` entries, all of which must hold; empty ones are skipped. Raises InvalidFilter."""
    filters: dict[str, str] = {}
    for entry in filter(None, entries):
        key, separator, value = entry.partition("=")
        if not (separator and key and value):
            raise InvalidFilter(filter=entry[:100], problem="it is not 'key=value'")
        if "\x00" in entry:
            raise InvalidFilter(filter=entry[:100], problem="it contains a NUL")
        filters[key] = value
    return filters


def topic_body(view: topics.TopicView) -> dict[str, Any]:
    """The metadata of a topic by the names of PIP-468's ScalableTopicMetadata."""
    return {
        "name": str(view.name),
        "incarnation": view.incarnation,
        "epoch": view.epoch,
        "revision": view.revision,
        "nextSegmentId": view.layout.next_segment_id,
        "segments": {str(key): segment.to_json() for key, segment in sorted(view.layout.segments.items())},
        "properties": view.properties,
        "autoScalePolicy": view.auto_scale_policy,
        "createdAtMs": view.created_at_ms,
    }


def figures_body(figures: topics.TopicFigures) -> dict[str, Any]:
    """A topic of a list."""
    return {
        "name": figures.name,
        "epoch": figures.epoch,
        "activeSegments": figures.active_segments,
        "sealedSegments": figures.sealed_segments,
        "createdAtMs": figures.created_at_ms,
        "state": "RESHAPING" if figures.reshaping else "STEADY",
        "msgRateIn": round(figures.msg_rate_in, 3),
        "properties": dict(figures.properties),
        "lastDecision": figures.last_decision.to_json() if figures.last_decision else None,
    }
