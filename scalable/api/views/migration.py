"""The migration of ordinary topics, which belongs to the adapter for Pulsar."""

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.serializers import Query
from scalable.api.views.base import DoorView, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import NotSupported


class MigrateQuery(Query):
    """`force` would migrate although clients without scalable topics are connected."""

    force: bool = False


class MigrateView(DoorView):
    """An ordinary topic that becomes a scalable one."""

    tag = "Topics"
    doors = {
        "POST": Door(
            summary="Migrate an ordinary topic: not without an adapter for Pulsar",
            right=Right.ADMIN,
            query=MigrateQuery,
            answers={},
            errors=(NotSupported,),
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        raise NotSupported(action=f"migrate {topic_of(path)}", needs="the adapter for Pulsar")
