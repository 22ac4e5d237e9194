"""Who may see which page of the dashboard; what a page shows comes from doors that check for themselves."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from scalable.api import errors
from scalable.api.authentication import subject_of_user
from scalable.domain.access import GRANTABLE, Right, Scope, Subject
from scalable.domain.errors import Forbidden, ScalableError
from scalable.domain.profiles import PROFILES
from scalable.services import access

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
PAGES = "webui"
MANAGE = "admin"
"""Pages of Django itself, which hand the query to the database as it is; `scalable.admin` says to whom."""

OPEN = frozenset({"login", "logout", "favicon"})
RIGHTS: Mapping[str, Right] = {
    "home": Right.KNOWN,
    "topics": Right.KNOWN,
    "topic": Right.LOOKUP,
    "namespace": Right.LOOKUP,
    "nodes": Right.SUPERUSER,
    "jobs": Right.SUPERUSER,
}
"""The right that each page wants, in the scope of its path; a page without a rule is shut."""


class GuardedPages:
    """Middleware that refuses pages with 403; who is not logged in is led to the login by the page itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, path: dict[str, str]
    ) -> None:
        """Check the page that the path leads to; raises PermissionDenied, BadRequest."""
        match = request.resolver_match
        if match is not None and match.app_name == MANAGE:
            _check_query(request)
        if match is None or match.app_name != PAGES or match.url_name in OPEN:
            return
        subject = subject_of_user(request.user)
        if subject is None:
            return
        right, scope = RIGHTS.get(str(match.url_name)), Scope.of_path(path)
        if right is None:
            raise PermissionDenied
        try:
            access.require(subject=subject, right=right, scope=scope)
        except Forbidden as error:
            raise PermissionDenied from error
        if path:
            request.here = _told_of(subject, scope)  # type: ignore[attr-defined]


def _told_of(subject: Subject, scope: Scope) -> dict[str, list[str]]:
    """What a page of a scope is told: what it need not offer in vain, and which profiles a policy may have.

    The doors check for themselves.
    """
    rights = [right.value for right in GRANTABLE if access.may(subject=subject, right=right, scope=scope)]
    return {"rights": sorted(rights), "profiles": list(PROFILES)}


def failed(request: HttpRequest) -> HttpResponse:
    """Say that the database is out of reach just now, or that something went wrong (Django's handler500).

    The page reads nothing, not even who is logged in.
    """
    status, body = errors.failure(sys.exception())
    headers = {"Retry-After": str(errors.RETRY_AFTER_SECONDS)} if status == 503 else {}
    if "text/html" not in request.headers.get("Accept", ""):
        return JsonResponse(body, status=status, headers=headers)
    page = render_to_string("webui/failed.html", {"unavailable": status == 503, "reason": body["reason"]})
    answer = HttpResponse(page, status=status, headers=headers)
    answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return answer


def unknown(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a path where nothing is: a person with a page, a program as REST does (Django's handler404)."""
    answer = errors.unknown_path(request, exception)
    if "text/html" not in request.headers.get("Accept", ""):
        return answer
    reason = json.loads(answer.content)["reason"]
    page = render(request, "webui/unknown.html", {"reason": reason}, status=answer.status_code)
    page["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return page


def refused(request: HttpRequest, error: ScalableError) -> HttpResponse:
    """Say what a service refused and what helps: to a person with a page, to a program as REST does."""
    status, body = errors.answer_of(error).status, errors.body_of(error)
    if "text/html" not in request.headers.get("Accept", ""):
        return JsonResponse(body, status=status)
    page = render(request, "webui/refused.html", body, status=status)
    page["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    return page


def _check_query(request: HttpRequest) -> None:
    if any("\x00" in value for values in request.GET.lists() for value in (values[0], *values[1])):
        raise BadRequest("NUL")
