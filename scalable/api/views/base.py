"""What all REST views share: the check of their doors, and what is read of path, query and body."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from scalable import trace
from scalable.api.authentication import BearerAuthentication, HasRight
from scalable.api.doors import Door
from scalable.api.observing import DOOR
from scalable.api.raw_path import check_path, check_query
from scalable.api.requests import is_utf8
from scalable.api.schema import JSON_TYPE, DoorSchema
from scalable.api.serializers import MAX_BIGINT, Query, read_body, read_query
from scalable.api.views import idempotent
from scalable.domain.errors import InvalidParameter, ReadOnly, UnreadableBody
from scalable.domain.names import TopicName, validate_part
from scalable.services import auditing

_Shape = TypeVar("_Shape")
UNNOTED = frozenset({400, 401, 405, 413, 415, 429})
"""Refusals that say nothing of what somebody wanted to do, or come in any number."""


class AnyAccept(BaseContentNegotiation):
    """Answers in the one form there is, whatever the request would like best."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]


class DoorView(APIView):
    """A path with a door for each of its methods; without a door a method is not allowed."""

    authentication_classes = [BearerAuthentication, SessionAuthentication]
    permission_classes = [HasRight]
    content_negotiation_class = AnyAccept
    http_method_names = ["get", "head", "put", "post", "delete"]
    schema = DoorSchema()
    doors: ClassVar[Mapping[str, Door]] = {}
    tag: ClassVar[str] = ""
    _query: Query | None = None
    _idempotent: int | None = None

    @property
    def door(self) -> Door:
        """The door of this request."""
        method = str(self.request.method)
        return self.doors["GET" if method == "HEAD" else method]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the subject and its right first, so that nobody else learns anything, then the parameters."""
        note_door(request)
        super().initial(request, *args, **kwargs)
        check_path(request._request)
        check_query(request.META.get("QUERY_STRING", ""))
        self._query = read_query(request.query_params, self.door.query)
        if settings.SCALABLE_READ_ONLY and self.door.changes(str(request.method), self._query):
            raise ReadOnly
        if self.door.body is None and request._request.body:
            raise UnreadableBody(problem="no body is expected here")
        if self.door.takes_keys(str(request.method)):
            self._idempotent = idempotent.begin(request)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer what was answered before, or say what went wrong."""
        if isinstance(exc, idempotent.Replay):
            return exc.response
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Note in the audit what somebody who is known tried to change and was refused."""
        if response.status_code >= 400 and response.status_code not in UNNOTED:
            self._note_refusal(str(request.method), response)
        if self._idempotent is not None:
            idempotent.finish(self._idempotent, response)
        return super().finalize_response(request, response, *args, **kwargs)

    def _note_refusal(self, method: str, response: Any) -> None:
        door = self.doors.get(method)
        if door is None or not door.changes(method, self._query) or not trace.current().actor:
            return
        match = self.request._request.resolver_match
        auditing.record_refusal(
            action=f"{method} {match.url_name if match else ''}",
            target=self.request.path,
            outcome=str((response.data or {}).get("code", response.status_code)),
        )

    def query(self, shape: type[_Shape]) -> _Shape:
        """The parameters of this request, of the type that its door names."""
        if not isinstance(self._query, shape):
            raise TypeError(f"the door reads {type(self._query).__name__}")
        return self._query


def note_door(request: Request) -> None:
    """Name the door in the request's scope, for its log line and its count (`api/observing.py`)."""
    match = request._request.resolver_match
    scope: dict[str, Any] = getattr(request._request, "scope", {})
    scope[DOOR] = match.route if match is not None else ""


def body_of(request: Request, shape: type[_Shape], *, default: _Shape | None = None) -> _Shape:
    """Read the JSON body; the default stands for an empty one. Raises UnreadableBody, UnknownField."""
    data = request._request.body
    if not data.strip() and default is not None:
        return default
    require_json(request)
    body: _Shape = read_body(data, shape)
    return body


def require_json(request: Request) -> None:
    """Refuse a body that says it is something else than JSON in UTF-8, as a form of another site would."""
    if request._request.content_type not in {JSON_TYPE, ""} or not is_utf8(request._request):
        sent = request._request.META.get("CONTENT_TYPE", "")
        raise UnsupportedMediaType(sent, f'"{sent}" is not JSON in UTF-8')


def topic_of(path: Mapping[str, str]) -> TopicName:
    """The topic that the path names; raises InvalidName."""
    return TopicName(path["tenant"], path["namespace"], path["topic"])


def namespace_of(path: Mapping[str, str]) -> dict[str, str]:
    """The tenant and the namespace that the path names; raises InvalidName."""
    return {part: validate_part(path[part], part) for part in ("tenant", "namespace")}


def segment_id_of(path: Mapping[str, str], parameter: str = "segment_id") -> int:
    """A segment id of the path; raises InvalidParameter."""
    text = path[parameter]
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_BIGINT):
        raise InvalidParameter(parameter=parameter, value=text[:100], problem="it is not a segment id")
    return int(text)
