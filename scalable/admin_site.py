"""The site of Django's admin: who is let in, what a page may run, how refusals are answered and noted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse

from scalable.api import pages
from scalable.api.errors import answer_of
from scalable.api.views.base import UNNOTED
from scalable.domain.access import role_of_user
from scalable.domain.errors import Forbidden, ReadOnly, ScalableError
from scalable.services import auditing

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
READS = frozenset({"GET", "HEAD"})


def actor_of(request: HttpRequest) -> str:
    """The role by which the audit knows who asks."""
    return role_of_user(request.user.get_username())


@contextmanager
def _refusals_noted(request: HttpRequest) -> Iterator[None]:
    """Note in the audit what somebody who is known tried to change and may not, or cannot."""
    try:
        yield
    except PermissionDenied:
        _note(request, (ReadOnly if settings.SCALABLE_READ_ONLY else Forbidden).code)
        raise
    except ScalableError as error:
        if answer_of(error).status not in UNNOTED:
            _note(request, error.code)
        raise


def _note(request: HttpRequest, outcome: str) -> None:
    if request.method not in READS:
        match = request.resolver_match
        auditing.record_refusal(
            action=f"{request.method} {match.view_name if match else ''}",
            target=request.path,
            outcome=outcome,
            actor=actor_of(request),
        )


@contextmanager
def _odd_values_refused() -> Iterator[None]:
    """Refuse what Django hands to the database unseen, and that does not take."""
    try:
        yield
    except DataError as error:
        raise BadRequest("The database does not take a value") from error


class SuperuserSite(admin.AdminSite):
    """The site; in read-only mode it shows and changes nothing."""

    site_header = site_title = "Scalable Topics"
    index_title = "Access and audit"

    def has_permission(self, request: HttpRequest) -> bool:
        """Let superusers in."""
        return bool(request.user.is_active and request.user.is_superuser)

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Lead to the login of the dashboard, which is throttled."""
        return redirect_to_login(reverse("admin:index"))

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Refuse who is logged in and no superuser; say what the page may run."""
        guarded = super().admin_view(view, cacheable)

        def answer(request: HttpRequest, *arguments: Any, **path: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            response: HttpResponseBase
            try:
                with _refusals_noted(request), _odd_values_refused():
                    self._check(request)
                    response = guarded(request, *arguments, **path)
            except ScalableError as error:  # its transaction is rolled back by now
                response = pages.refused(request, error)
            response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
            return response

        return answer

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        """Complete nothing: no form asks for it, and Django fails at fields that are none of a form."""
        raise Http404

    def _check(self, request: HttpRequest) -> None:
        if not self.has_permission(request):
            raise PermissionDenied
        if settings.SCALABLE_READ_ONLY and request.method not in READS:
            raise PermissionDenied
