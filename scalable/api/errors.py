"""How errors leave: one table from code to HTTP status and close code, and the body that REST answers.

Close codes are 4000 plus the HTTP status of the same meaning, so that both can be read without the table.
"""

import logging
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, TooManyFieldsSent
from django.db import InternalError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from psycopg.errors import IdleInTransactionSessionTimeout
from rest_framework import exceptions
from rest_framework.response import Response

from scalable.api.raw_path import SHOWN_CHARACTERS, check_path
from scalable.domain.errors import (
    CrossSiteRequest,
    Internal,
    InvalidName,
    InvalidParameter,
    MessageTooLarge,
    ScalableError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnknownPath,
    UnreadableBody,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1
AUTHENTICATE_HEADER = 'Bearer realm="scalable"'
WRONG_METHOD = "method_not_allowed"
BAD_REQUEST = "bad_request"
INTERNAL = "internal"
PLAIN_HINTS = {
    WRONG_METHOD: "The answer's Allow header names the methods that this path takes.",
    BAD_REQUEST: "Mend the request; its Host must be a name of the node (SCALABLE_ALLOWED_HOSTS).",
    INTERNAL: "Try again after a pause; the node's log tells what happened.",
}


class Answer(NamedTuple):
    """How one error leaves: HTTP status, and the close code where it ends a socket."""

    status: int
    close_code: int


ANSWERS: dict[str, Answer] = {
    # What was sent cannot be read.
    "batch_invalid": Answer(400, 4400),
    "frame_invalid": Answer(400, 4400),
    "frame_unknown_type": Answer(400, 4400),
    "invalid_boundaries": Answer(400, 4400),
    "invalid_name": Answer(400, 4400),
    "invalid_parameter": Answer(400, 4400),
    "invalid_range": Answer(400, 4400),
    "load_report_unreadable": Answer(400, 4400),
    "policy_unreadable": Answer(400, 4400),
    "position_invalid": Answer(400, 4400),
    "unknown_field": Answer(400, 4400),
    "unreadable_body": Answer(400, 4400),
    "protocol_unsupported": Answer(400, 4426),
    "hello_missing": Answer(400, 4425),
    # Who asks.
    "unauthenticated": Answer(401, 4401),
    "forbidden": Answer(403, 4403),
    "cross_site_request": Answer(403, 4403),
    "read_only": Answer(403, 4403),
    # What is asked for is not there.
    "job_file_not_found": Answer(404, 4404),
    "job_not_found": Answer(404, 4404),
    "namespace_not_found": Answer(404, 4404),
    "node_not_found": Answer(404, 4404),
    "operation_not_found": Answer(404, 4404),
    "segment_not_found": Answer(404, 4404),
    "segment_store_missing": Answer(404, 4404),
    "subscription_not_found": Answer(404, 4404),
    "tenant_not_found": Answer(404, 4404),
    "token_not_found": Answer(404, 4404),
    "topic_not_found": Answer(404, 4404),
    "unknown_path": Answer(404, 4404),
    "topic_deleted": Answer(404, 4410),
    # Somebody was faster, or holds it.
    "batch_partly_duplicate": Answer(409, 4409),
    "checkpoint_superseded": Answer(409, 4409),
    "cursor_needed": Answer(409, 4409),
    "cursor_sought": Answer(409, 4409),
    "epoch_moved": Answer(409, 4409),
    "generation_superseded": Answer(409, 4409),
    "idempotency_answer_lost": Answer(409, 4409),
    "idempotency_key_busy": Answer(409, 4409),
    "idempotency_key_reused": Answer(422, 4422),
    "job_busy": Answer(409, 4409),
    "job_ended": Answer(409, 4409),
    "key_sharing_mismatch": Answer(409, 4409),
    "lease_lost": Answer(409, 4409),
    "namespace_deleting": Answer(409, 4409),
    "namespace_not_empty": Answer(409, 4409),
    "operation_aborted": Answer(409, 4409),
    "operation_not_abortable": Answer(409, 4409),
    "operation_not_retriable": Answer(409, 4409),
    "segment_claimed": Answer(409, 4409),
    "segment_not_owned": Answer(409, 4409),
    "segment_terminated": Answer(409, 4409),
    "session_superseded": Answer(409, 4423),
    "stream_broken": Answer(409, 4409),
    "subscription_type_mismatch": Answer(409, 4409),
    "tenant_exists": Answer(409, 4409),
    "tenant_not_empty": Answer(409, 4409),
    "term_superseded": Answer(409, 4409),
    "topic_exists": Answer(409, 4409),
    # The thing is there and does not allow it.
    "access_full": Answer(412, 4412),
    "cluster_not_found": Answer(412, 4412),
    "bucket_count_unchanged": Answer(412, 4412),
    "invalid_bucket_count": Answer(412, 4412),
    "invalid_filter": Answer(412, 4412),
    "invalid_initial_segments": Answer(412, 4412),
    "namespace_fixed": Answer(412, 4412),
    "policy_invalid": Answer(412, 4412),
    "segment_not_active": Answer(412, 4412),
    "segment_not_prunable": Answer(412, 4412),
    "segment_too_narrow": Answer(412, 4412),
    "too_many_buckets": Answer(412, 4412),
    "too_many_parts": Answer(412, 4412),
    "segments_fixed": Answer(412, 4412),
    "segments_not_adjacent": Answer(412, 4412),
    "tenant_fixed": Answer(412, 4412),
    "topics_switched_off": Answer(412, 4412),
    # Limits.
    "batch_too_large": Answer(413, 4413),
    "frame_too_large": Answer(413, 4413),
    "message_too_large": Answer(413, 4413),
    "body_too_slow": Answer(408, 4408),
    "permits_exceeded": Answer(429, 4429),
    "too_many_requests": Answer(429, 4429),
    "reader_too_slow": Answer(503, 4408),
    "operation_wait_limit": Answer(202, 4408),
    # Somewhere else, later, or our own fault.
    "not_leader": Answer(421, 4421),
    "no_leader": Answer(503, 4503),
    "segment_not_loaded": Answer(503, 4503),
    "idempotency_keys_full": Answer(503, 4503),
    "not_supported": Answer(501, 4501),
    "unavailable": Answer(503, 4503),
    "internal": Answer(500, 4500),
    "layout_corrupt": Answer(500, 4500),
    "unrecognised": Answer(502, 4500),
}


def answer_of(error: ScalableError) -> Answer:
    """The row of the table for this error."""
    return ANSWERS[error.code]


def close_code_of(error: ScalableError) -> int:
    """The code with which this error closes a socket."""
    return answer_of(error).close_code


def internal_error(error: BaseException) -> Internal | Unavailable:
    """Log an unexpected error under a reference and give the error that names only that reference."""
    reference = uuid.uuid4().hex
    if is_passing(error):  # by the hundred, while the database is away
        logger.warning("The database is away, or busy for too long, reference %s: %s", reference, error)
        return Unavailable(reference=reference)
    logger.error("Unexpected error, reference %s", reference, exc_info=error)
    return Internal(reference=reference)


def is_passing(error: BaseException | None) -> bool:
    """Tell whether the database is away, or ended a transaction in which nothing was asked for too long.

    That end is an internal error to the driver; here a node that is short of time comes to it.
    """
    ended = isinstance(error, InternalError) and isinstance(error.__cause__, IdleInTransactionSessionTimeout)
    return ended or isinstance(error, OperationalError)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Turn whatever a view raised into the documented body and status (named in the REST settings)."""
    if isinstance(error, ScalableError):
        return _answer(error)
    known = _known_error(error, context)
    if known is not None:
        return _answer(
            known, status=error.status_code if isinstance(error, exceptions.APIException) else None
        )
    if isinstance(error, exceptions.APIException):
        return Response(_plain_body(str(error.default_code), str(error.detail)), error.status_code)
    return _answer(internal_error(error))


def body_of(error: ScalableError) -> dict[str, Any]:
    """The body of an error answer: reason, code, fields, hint."""
    return error.to_json()


def unknown_path(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Answer a path that is no door of this product, or cannot be one (Django's handler404)."""
    try:
        check_path(request)
        error: ScalableError = no_such_path(request.path)
    except InvalidName as invalid:
        error = invalid
    return JsonResponse(body_of(error), status=answer_of(error).status)


def no_such_path(path: str) -> UnknownPath:
    """The error for a path that is no door, whoever knocks."""
    return UnknownPath(path=path[:SHOWN_CHARACTERS])


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Answer a request that is refused before any view sees it, as one for a foreign host (handler400)."""
    return JsonResponse(
        _plain_body(BAD_REQUEST, f"The request is not acceptable ({type(exception).__name__})."), status=400
    )


def wrong_method(method: str, allowed: Sequence[str]) -> JsonResponse:
    """Answer a method that a door outside REST does not take."""
    body = _plain_body(WRONG_METHOD, f'Method "{method}" not allowed.')
    return JsonResponse(body, status=405, headers={"Allow": ", ".join(allowed)})


def failure(error: BaseException | None) -> tuple[int, dict[str, Any]]:
    """The status and the body for an error outside any REST view; Django has logged it already."""
    if error is not None and is_passing(error):
        known = internal_error(error)
        return answer_of(known).status, body_of(known)
    return 500, _plain_body(INTERNAL, "Something went wrong inside the server.")


def _answer(error: ScalableError, *, status: int | None = None) -> Response:
    status = status or answer_of(error).status
    return Response(body_of(error), status=status, headers=headers_of(error, status))


def headers_of(error: ScalableError, status: int) -> dict[str, str]:
    """Give the headers of an answer that say what to do next."""
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": AUTHENTICATE_HEADER}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(max(RETRY_AFTER_SECONDS, round(error.retry_after_seconds)))}
    return {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else {}


def _known_error(error: Exception, context: dict[str, Any]) -> ScalableError | None:
    match error:
        case exceptions.AuthenticationFailed() | exceptions.NotAuthenticated():
            return Unauthenticated(problem=str(error.detail))
        case exceptions.PermissionDenied() | PermissionDenied():
            # Only the session's check against requests forged by other sites raises these.
            return CrossSiteRequest(problem=str(error).removeprefix("CSRF Failed: ").rstrip("."))
        case exceptions.ParseError() | exceptions.UnsupportedMediaType():
            return UnreadableBody(problem=str(error.detail))
        case Http404():
            return no_such_path(str(getattr(context.get("request"), "path", "")))
        case RequestDataTooBig():
            return MessageTooLarge(size_bytes=-1, limit_bytes=-1)
        case TooManyFieldsSent():
            most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            return InvalidParameter(
                parameter="query", value="...", problem=f"it has more than {most} parameters"
            )
        case _:
            return None


def _plain_body(code: str, reason: str) -> dict[str, Any]:
    return {"reason": reason, "code": code, "fields": {}, "hint": PLAIN_HINTS.get(code, "")}
