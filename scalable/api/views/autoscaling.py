"""The autoscaler: a topic's policy, what was decided about it, and what would be."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.serializers import (
    DecisionPreviewBody,
    DecisionsBody,
    EffectivePolicyBody,
    EpochQuery,
    ListDecisionsQuery,
)
from scalable.api.views.base import DoorView, body_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import EpochMoved, PolicyInvalid, PolicyUnreadable, SegmentsFixed, TopicNotFound
from scalable.services import autoscaling, topics

AS_IT_IS: dict[str, Any] = {}
"""Stands for no body: the topic's own policy counts."""


class DecisionsView(DoorView):
    """What the autoscaler decided."""

    tag = "Autoscaler"
    doors = {
        "GET": Door(
            summary="List decisions that said something new, the newest first",
            right=Right.LOOKUP,
            query=ListDecisionsQuery,
            answers={200: DecisionsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(ListDecisionsQuery)
        found = autoscaling.list_decisions(name=topic_of(path), limit=query.limit, before=query.before)
        following = found[-1].decision_id if len(found) == query.limit else None
        return Response({"decisions": [each.to_json() for each in found], "next": following})


class DecisionPreviewView(DoorView):
    """What the autoscaler would do."""

    tag = "Autoscaler"
    doors = {
        "POST": Door(
            summary="Tell what would be decided now, under its policy or the given one; changes nothing",
            right=Right.LOOKUP,
            body=dict[str, Any],
            body_required=False,
            answers={200: DecisionPreviewBody},
            errors=(TopicNotFound, SegmentsFixed, PolicyUnreadable, PolicyInvalid),
            only_asks=True,
            keeps_answer=False,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        sent = body_of(request, dict[str, Any], default=AS_IT_IS)
        override = None if sent is AS_IT_IS else sent
        decision, effective = autoscaling.preview_decision(name=topic_of(path), override=override)
        return Response({"decision": decision.explanation, "policy": effective.to_json()})


class PolicyView(DoorView):
    """A topic's own policy: what it sets over namespace and defaults."""

    tag = "Autoscaler"
    doors = {
        "GET": Door(
            summary="Get the topic's own policy; 204 when it sets nothing",
            right=Right.LOOKUP,
            answers={200: dict[str, Any], 204: None},
            errors=(TopicNotFound,),
        ),
        "POST": Door(
            summary="Replace the topic's own policy",
            right=Right.ADMIN,
            query=EpochQuery,
            body=dict[str, Any],
            answers={204: None},
            errors=(TopicNotFound, PolicyUnreadable, PolicyInvalid, EpochMoved),
        ),
        "DELETE": Door(
            summary="Remove the topic's own policy",
            right=Right.ADMIN,
            query=EpochQuery,
            answers={204: None},
            errors=(TopicNotFound, EpochMoved),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        override = topics.get_auto_scale_policy(name=topic_of(path))
        return Response(status=204) if override is None else Response(override)

    def post(self, request: Request, **path: str) -> Response:
        override = body_of(request, dict[str, Any])
        topics.set_auto_scale_policy(
            name=topic_of(path),
            override=override,
            expected_epoch=self.query(EpochQuery).epoch,
            actor=actor_of(request),
        )
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        topics.remove_auto_scale_policy(
            name=topic_of(path), expected_epoch=self.query(EpochQuery).epoch, actor=actor_of(request)
        )
        return Response(status=204)


class EffectivePolicyView(DoorView):
    """The policy that rules a topic."""

    tag = "Autoscaler"
    doors = {
        "GET": Door(
            summary="Get the resolved policy with the source of each field",
            right=Right.LOOKUP,
            answers={200: EffectivePolicyBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(topics.effective_policy(name=topic_of(path)).to_json())
