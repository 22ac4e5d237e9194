"""Every HTTP door of a node."""

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path

from scalable.api import errors
from scalable.api.urls import urlpatterns as api_urlpatterns


def livez(request: HttpRequest) -> HttpResponse:
    """Answer as soon as this node serves; open to everybody, tells nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


handler400 = errors.bad_request
handler404 = errors.unknown_path
handler500 = errors.server_error
urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", livez, name="livez"),
    *api_urlpatterns,
    path("", include("webui.urls")),
]
