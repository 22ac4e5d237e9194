"""Every HTTP door of a node."""

import functools
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.csrf import csrf_exempt

from scalable.admin import site
from scalable.api import bus, errors, pages
from scalable.api.node import node
from scalable.api.urls import is_of_topics
from scalable.api.urls import urlpatterns as api_urlpatterns

READS = ("GET", "HEAD")


def probe(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Open a door to everybody who reads; what changes nothing needs no check for forged requests."""

    @csrf_exempt
    @functools.wraps(answer)
    def door(request: HttpRequest) -> HttpResponse:
        return answer(request) if request.method in READS else errors.wrong_method(str(request.method), READS)

    return door


@probe
def livez(request: HttpRequest) -> HttpResponse:
    """Answer as soon as this node serves; open to everybody, tells nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


@probe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while this node's heartbeats are written, else 503; with each part's state, to everybody.

    Without notices a node works on: what others did it sees a few seconds later.
    """
    trouble = node.trouble
    parts = {"database": trouble, "notices": bus.hearing.trouble}
    lines = ["ready" if trouble is None else f"not ready: {trouble}"]
    lines += [f"{part}: {state or 'ok'}" for part, state in parts.items()]
    body = "\n".join(lines) + "\n"
    if trouble is None:
        return HttpResponse(body, content_type="text/plain")
    headers = {"Retry-After": str(errors.RETRY_AFTER_SECONDS)}
    return HttpResponse(body, status=503, content_type="text/plain", headers=headers)


handler400 = errors.bad_request
handler403 = "webui.views.forbidden"
handler404 = pages.unknown
handler500 = pages.failed
urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", livez, name="livez"),
    path("readyz", readyz, name="readyz"),
    *(entry for entry in api_urlpatterns if settings.SCALABLE_TOPICS_ENABLED or not is_of_topics(entry)),
    path("manage/", site.urls),
    path("", include("webui.urls")),
]
"""Without `SCALABLE_TOPICS_ENABLED` the doors of scalable topics are not there; their data stays."""
