"""The auto-scale policy that a namespace sets for its topics (PIP-483, Policies)."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.serializers import EffectivePolicyBody
from scalable.api.views.base import DoorView, body_of, namespace_of
from scalable.domain.access import Right
from scalable.domain.errors import NamespaceNotFound, PolicyInvalid, PolicyUnreadable
from scalable.services import namespace_policies


class NamespacePolicyView(DoorView):
    """What a namespace sets of the policy."""

    tag = "Autoscaler"
    doors = {
        "GET": Door(
            summary="Get the policy that a namespace sets for its topics; 204 when it sets nothing",
            right=Right.LOOKUP,
            answers={200: dict[str, Any], 204: None},
            errors=(NamespaceNotFound,),
        ),
        "POST": Door(
            summary="Replace the policy that a namespace sets for its topics",
            right=Right.ADMIN,
            body=dict[str, Any],
            answers={204: None},
            errors=(NamespaceNotFound, PolicyUnreadable, PolicyInvalid),
        ),
        "DELETE": Door(
            summary="Remove the policy that a namespace sets for its topics",
            right=Right.ADMIN,
            answers={204: None},
            errors=(NamespaceNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        override = namespace_policies.settings_of(**namespace_of(path)).auto_scale_policy
        return Response(status=204) if override is None else Response(override)

    def post(self, request: Request, **path: str) -> Response:
        override = body_of(request, dict[str, Any])
        namespace_policies.set_auto_scale_policy(
            **namespace_of(path), override=override, actor=actor_of(request)
        )
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        namespace_policies.remove_auto_scale_policy(**namespace_of(path), actor=actor_of(request))
        return Response(status=204)


class EffectiveNamespacePolicyView(DoorView):
    """The policy of topics that set nothing themselves."""

    tag = "Autoscaler"
    doors = {
        "GET": Door(
            summary="Get the resolved policy of a namespace with the source of each field",
            right=Right.LOOKUP,
            answers={200: EffectivePolicyBody},
            errors=(NamespaceNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(namespace_policies.effective_policy(**namespace_of(path)).to_json())
