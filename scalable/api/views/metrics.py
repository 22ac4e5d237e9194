"""What Prometheus asks a node for."""

from django.http import HttpResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from rest_framework.request import Request

from scalable.api import metrics
from scalable.api.doors import Door
from scalable.api.views.base import DoorView
from scalable.domain.access import Right


class MetricsView(DoorView):
    """The figures of this node."""

    tag = "Nodes"
    doors = {
        "GET": Door(
            summary="Get the figures of this node in Prometheus' text format",
            right=Right.OBSERVE,
            answers={200: str},
        ),
    }

    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(metrics.exposition(), content_type=CONTENT_TYPE_LATEST)
