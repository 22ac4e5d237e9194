"""Namespaces as such, and how long topics and namespaces keep messages and sessions."""

from typing import Annotated, Literal

from msgspec import Meta
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.serializers import Body, Query
from scalable.api.tenant_bodies import NamespaceBody
from scalable.api.views.base import DoorView, body_of, namespace_of, topic_of
from scalable.domain.access import Level, Right
from scalable.domain.errors import (
    InvalidParameter,
    NamespaceDeleting,
    NamespaceFixed,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TenantNotFound,
    TopicNotFound,
    TopicsSwitchedOff,
)
from scalable.domain.lifetimes import Resolved
from scalable.services import lifetimes, namespace_policies, namespaces
from scalable.services.lifetimes import LONGEST_SECONDS, EffectiveLifetimes, Lifetimes

RetentionSeconds = Annotated[int, Meta(ge=-1, le=LONGEST_SECONDS)]
GraceSeconds = Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)]


class DeleteNamespaceQuery(Query):
    """`force` deletes the topics too."""

    force: bool = False


class LifetimesBody(Body, kw_only=True):
    """What is set here; a field that is left out or null is inherited. Retention -1 is for ever."""

    retention_seconds: RetentionSeconds | None = None
    session_grace_seconds: GraceSeconds | None = None


class EffectiveBody(Body):
    """A setting that holds, and whose it is."""

    value: float
    source: Literal["topic", "namespace", "default"]


class LifetimesShownBody(LifetimesBody, kw_only=True):
    """What a topic or namespace sets, and what holds for it."""

    effective: dict[str, EffectiveBody]


class TopicLifetimesView(DoorView):
    """How long a topic keeps messages and sessions."""

    tag = "Topics"
    doors = {
        "GET": Door(
            summary="Get how long a topic keeps messages and sessions",
            right=Right.LOOKUP,
            answers={200: LifetimesShownBody},
            errors=(TopicNotFound,),
        ),
        "POST": Door(
            summary="Replace how long a topic keeps messages and sessions",
            right=Right.ADMIN,
            body=LifetimesBody,
            answers={204: None},
            errors=(TopicNotFound, InvalidParameter),
        ),
        "DELETE": Door(
            summary="Let a topic inherit how long it keeps messages and sessions",
            right=Right.ADMIN,
            answers={204: None},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(_shown(lifetimes.effective_lifetimes(name=topic_of(path))))

    def post(self, request: Request, **path: str) -> Response:
        given = _given(request)
        lifetimes.set_topic_lifetimes(name=topic_of(path), lifetimes=given, actor=actor_of(request))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        lifetimes.set_topic_lifetimes(name=topic_of(path), lifetimes=Lifetimes(), actor=actor_of(request))
        return Response(status=204)


class NamespaceLifetimesView(DoorView):
    """How long the topics of a namespace keep messages and sessions, unless they say otherwise."""

    tag = "Tenants and namespaces"
    doors = {
        "GET": Door(
            summary="Get how long the topics of a namespace keep messages and sessions",
            right=Right.LOOKUP,
            answers={200: LifetimesShownBody},
            errors=(NamespaceNotFound,),
        ),
        "POST": Door(
            summary="Replace what a namespace sets for its topics",
            right=Right.ADMIN,
            body=LifetimesBody,
            answers={204: None},
            errors=(NamespaceNotFound, InvalidParameter),
        ),
        "DELETE": Door(
            summary="Let a namespace set nothing for its topics",
            right=Right.ADMIN,
            answers={204: None},
            errors=(NamespaceNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(_shown(lifetimes.effective_namespace_lifetimes(**namespace_of(path))))

    def post(self, request: Request, **path: str) -> Response:
        given = _given(request)
        lifetimes.set_namespace_lifetimes(**namespace_of(path), lifetimes=given, actor=actor_of(request))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        lifetimes.set_namespace_lifetimes(
            **namespace_of(path), lifetimes=Lifetimes(), actor=actor_of(request)
        )
        return Response(status=204)


class NamespaceLifeView(DoorView):
    """A namespace: made and deleted."""

    tag = "Tenants and namespaces"
    doors = {
        "GET": Door(
            summary="Get what a namespace sets for its topics",
            right=Right.LOOKUP,
            answers={200: NamespaceBody},
            errors=(NamespaceNotFound,),
        ),
        "PUT": Door(
            summary="Create a namespace; one that exists stays as it is",
            right=Right.ADMIN,
            level=Level.TENANT,
            answers={204: None},
            errors=(TenantNotFound, NamespaceFixed, NamespaceDeleting),
        ),
        "DELETE": Door(
            summary="Delete a namespace; 202 while many topics are still being deleted",
            right=Right.ADMIN,
            level=Level.TENANT,
            query=DeleteNamespaceQuery,
            answers={204: None, 202: None},
            errors=(NamespaceNotFound, NamespaceNotEmpty, NamespaceFixed, TopicsSwitchedOff),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        found = namespace_policies.settings_of(**namespace_of(path))
        body = {
            "scalableTopicAutoScalePolicy": found.auto_scale_policy,
            "deleted": found.deleting,
            "createdAtMs": found.created_at_ms,
        }
        return Response(body | _body(found.lifetimes))

    def put(self, request: Request, **path: str) -> Response:
        namespaces.create_namespace(**namespace_of(path), actor=actor_of(request))
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        force = self.query(DeleteNamespaceQuery).force
        finished = namespaces.delete_namespace(**namespace_of(path), force=force, actor=actor_of(request))
        return Response(status=204 if finished else 202)


def _given(request: Request) -> Lifetimes:
    body = body_of(request, LifetimesBody)
    return Lifetimes(body.retention_seconds, body.session_grace_seconds)


def _body(own: Lifetimes) -> dict[str, object]:
    return {
        "retentionSeconds": own.retention_seconds,
        "sessionGraceSeconds": own.session_grace_seconds,
    }


def _shown(effective: EffectiveLifetimes) -> dict[str, object]:
    holds = {
        "retentionSeconds": _effective(effective.retention_seconds),
        "sessionGraceSeconds": _effective(effective.session_grace_seconds),
    }
    return _body(effective.own) | {"effective": holds}


def _effective(resolved: Resolved[int] | Resolved[float]) -> dict[str, object]:
    return {"value": resolved.value, "source": resolved.source.value}
