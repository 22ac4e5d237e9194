"""Headers that every answer carries: what a browser may do with it."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The content security policy of answers that are no pages; a page brings its own."""
FIRST = {
    "Content-Security-Policy": NOTHING,
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
GetResponse = Callable[[HttpRequest], HttpResponseBase]


class SafeHeaders:
    """Middleware that adds what a view has not set."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        for name, value in FIRST.items():
            response.headers.setdefault(name, value)
        return response
