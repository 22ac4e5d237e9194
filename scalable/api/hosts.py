"""A request says for which host it is."""

from collections.abc import Callable

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponseBase

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class NamedHost:
    """Middleware that refuses a request by HTTP/1.1 without a `Host` (RFC 9112, section 3.2).

    Django takes the address that the server listens on for its host.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        version = getattr(request, "scope", {}).get("http_version")
        if version == "1.1" and "HTTP_HOST" not in request.META:
            raise DisallowedHost("There is no Host.")
        return self._get_response(request)
