"""Requests as Django reads them, but for what their `Content-Type` says."""

from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.utils.http import parse_header_parameters

UTF_8 = frozenset({"utf-8", "utf8"})
FORMS = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})
UNREADABLE = "application/octet-stream"
_UNFORESEEN = (LookupError, TypeError, ValueError)
"""What reading of parameters raises, beside its own errors, where their charsets or numbers are nonsense."""


class Utf8Request(ASGIRequest):
    """A request whose query and forms are UTF-8; Django would decode both as the header says.

    Some of Python's encodings make characters that no database takes, others cannot decode at all.
    """

    def _set_content_type_params(self, meta: dict[str, str]) -> None:
        try:
            self.content_type, self.content_params = parse_header_parameters(meta.get("CONTENT_TYPE", ""))
        except _UNFORESEEN:
            self.content_type, self.content_params = UNREADABLE, {}

    def _load_post_and_files(self) -> None:
        """Read a form; raises BadRequest, MultiPartParserError."""
        if self.method == "POST" and self.content_type in FORMS and not is_utf8(self):
            raise BadRequest("A form is UTF-8.")
        try:
            super()._load_post_and_files()
        except _UNFORESEEN as error:
            self._mark_post_parse_error()  # type: ignore[attr-defined]
            raise MultiPartParserError("The parameters of a part cannot be read.") from error


def is_utf8(request: HttpRequest) -> bool:
    """Tell whether the body of a request is said to be UTF-8, as it is when nothing is said."""
    return (request.content_params or {}).get("charset", "utf-8").lower() in UTF_8
