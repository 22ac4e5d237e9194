"""Web nodes, and which topics they lead."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.node_bodies import LedTopicsBody, NodesBody, PageQuery, led_topic_body, nodes_body
from scalable.api.views.base import DoorView
from scalable.domain.access import Right
from scalable.domain.errors import NodeNotFound
from scalable.services import nodes


class NodesView(DoorView):
    """The web nodes of this instance."""

    tag = "Nodes"
    doors = {
        "GET": Door(
            summary="List web nodes: who is alive, and how many topics each leads",
            right=Right.SUPERUSER,
            query=PageQuery,
            answers={200: NodesBody},
        ),
    }

    def get(self, request: Request) -> Response:
        query = self.query(PageQuery)
        return Response(nodes_body(nodes.list_nodes(limit=query.limit, offset=query.offset)))


class LedTopicsView(DoorView):
    """The topics that a node leads."""

    tag = "Nodes"
    doors = {
        "GET": Door(
            summary="List the topics that a node leads, with term and since when",
            right=Right.SUPERUSER,
            query=PageQuery,
            answers={200: LedTopicsBody},
            errors=(NodeNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(PageQuery)
        led = nodes.list_led_topics(node_id=path["node_id"], limit=query.limit, offset=query.offset)
        return Response({"topics": [led_topic_body(one) for one in led]})
