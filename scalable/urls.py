"""Every HTTP door of a node."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from scalable.api import errors


def livez(request: HttpRequest) -> HttpResponse:
    """Answer as soon as this node serves; open to everybody, tells nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


handler404 = errors.unknown_path
handler500 = errors.server_error
urlpatterns = [
    path("livez", livez, name="livez"),
]
