"""Shell pages: each is drawn by its ES module from the public API; none reads topics itself."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.views.decorators.csrf import ensure_csrf_cookie

View = Callable[..., HttpResponseBase]

# The pages run their own modules only: no inline script, no foreign host. Drawn colours are style attributes.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self' {sockets}; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def guarded(view: View) -> View:
    """Let a page run its own scripts alone, and speak to its own host alone."""

    @wraps(view)
    def answer(request: HttpRequest, **given: Any) -> HttpResponseBase:
        response = view(request, **given)
        sockets = f"{'wss' if request.is_secure() else 'ws'}://{request.get_host()}"  # not 'self' everywhere
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY.format(sockets=sockets)
        return response

    return answer


def _page(view: View) -> View:
    return ensure_csrf_cookie(login_required(guarded(view)))


@_page
def home(request: HttpRequest) -> HttpResponse:
    """Lead to the topic list; where there are no topics, say so to whom a login led here."""
    if settings.SCALABLE_TOPICS_ENABLED:
        return redirect("webui:topics")
    return render(request, "webui/switched_off.html")


def favicon(request: HttpRequest) -> HttpResponse:
    """Lead to the icon, for what asks at the usual place: a page without a head, as an answer of REST is."""
    return redirect(static("webui/icon.svg"))


@guarded
def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Refuse a page to whom it is not for, be there anything behind it or not; a reason given is told."""
    return render(request, "webui/forbidden.html", {"reason": str(exception)}, status=403)


def _shown(request: HttpRequest, page: str, **values: str) -> HttpResponse:
    """A page that knows whether this node changes anything."""
    return render(request, f"webui/{page}.html", {"read_only": settings.SCALABLE_READ_ONLY, **values})


def _of_topics(request: HttpRequest, page: str, **values: str) -> HttpResponse:
    """A page of topics, or what is there in its place while they are switched off."""
    if not settings.SCALABLE_TOPICS_ENABLED:
        return render(request, "webui/switched_off.html", status=404)
    return _shown(request, page, **values)


@_page
def nodes(request: HttpRequest) -> HttpResponse:
    """The web nodes, and which topics each leads."""
    return _shown(request, "nodes")


@_page
def jobs(request: HttpRequest) -> HttpResponse:
    """The batch jobs on Spark."""
    return _shown(request, "jobs")


@_page
def topics(request: HttpRequest) -> HttpResponse:
    """The topics of one namespace (`?namespace=tenant/name`)."""
    namespace = request.GET.get("namespace", "public/default")
    place = "" if "" in namespace.split("/") or namespace.count("/") != 1 else namespace
    return _of_topics(request, "topics", namespace=namespace, place=place)


@_page
def namespace(request: HttpRequest, tenant: str, namespace: str) -> HttpResponse:
    """What a namespace sets for its topics: the policy, retention and grace."""
    return _of_topics(request, "namespace", tenant=tenant, namespace=namespace)


@_page
def topic(request: HttpRequest, tenant: str, namespace: str, topic: str) -> HttpResponse:
    """One topic: its map, active segments, operations, the last decision, and its policy."""
    return _of_topics(request, "topic", tenant=tenant, namespace=namespace, topic=topic)
