"""The properties of a topic, by which lists and watches of a namespace choose."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.serializers import EpochQuery, Properties
from scalable.api.views.base import DoorView, body_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import EpochMoved, TopicNotFound
from scalable.services import topics


class PropertiesView(DoorView):
    """All properties of one topic."""

    tag = "Topics"
    doors = {
        "GET": Door(
            summary="Get a topic's properties",
            right=Right.LOOKUP,
            answers={200: Properties},
            errors=(TopicNotFound,),
        ),
        "PUT": Door(
            summary="Replace all properties of a topic",
            right=Right.ADMIN,
            query=EpochQuery,
            body=Properties,
            answers={204: None},
            errors=(TopicNotFound, EpochMoved),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(topics.get_topic(name=topic_of(path)).properties)

    def put(self, request: Request, **path: str) -> Response:
        properties = body_of(request, Properties)
        topics.set_properties(
            name=topic_of(path),
            properties=properties,
            expected_epoch=self.query(EpochQuery).epoch,
            actor=actor_of(request),
        )
        return Response(status=204)
