"""The header `Idempotency-Key`: a request that is sent again gets the answer of the first time."""

import hashlib
import json
import logging
from typing import Any

from django.db import DatabaseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from scalable.api.authentication import subject_of
from scalable.domain.errors import InvalidParameter, TooManyRequests
from scalable.services import idempotency
from scalable.store.idempotency import KeptRequest

logger = logging.getLogger(__name__)

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_KEPT_HEADERS = ("Location", "Preference-Applied", "X-Scalable-Total")
_NOT_DONE = TooManyRequests.code


class Replay(Exception):
    """The request was answered before; this is that answer."""

    def __init__(self, kept: KeptRequest) -> None:
        super().__init__("answered before")
        body = json.loads(kept.body) if kept.body else None
        self.response = Response(body, status=kept.status, headers={**kept.headers, REPLAYED: "true"})


def begin(request: Request) -> int | None:
    """Take the key that a request came with, if any; raises Replay, and why a key is refused."""
    key = _key_of(request)
    if key is None:
        return None
    begun = idempotency.begin(role=subject_of(request).role, key=key, fingerprint=_fingerprint(request))
    if isinstance(begun, KeptRequest):
        raise Replay(begun)
    idempotency.work_on(begun, key=key)
    return begun


def _key_of(request: Request) -> str | None:
    """Read the header; Django would join several of it to one text, which is the key of no request."""
    key = request.headers.get(HEADER)
    # A request of another server than ASGI's has no scope.
    scope = getattr(request._request, "scope", {"headers": ()})
    if sum(name == HEADER.lower().encode() for name, _ in scope["headers"]) > 1:
        raise InvalidParameter(parameter=HEADER, value=key, problem="it is given more than once")
    return key


def finish(row_id: int, response: Any) -> None:
    """Keep the answer of a request; one that was turned away unread may come again.

    Without the database the answer goes out all the same, and the key stays busy until its time is over.
    """
    data = getattr(response, "data", None)
    turned_away = isinstance(data, dict) and data.get("code") == _NOT_DONE
    try:
        idempotency.finish(
            row_id,
            status=idempotency.SERVER_FAULT if turned_away else response.status_code,
            body="" if data is None else json.dumps(data, cls=JSONEncoder),
            headers={name: response[name] for name in _KEPT_HEADERS if response.has_header(name)},
        )
    except DatabaseError:
        logger.warning("The answer of a request with an idempotency key was not kept", exc_info=True)


def _fingerprint(request: Request) -> str:
    plain = request._request
    parts = (plain.method or "", plain.get_full_path(), plain.headers.get("Prefer", ""))
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(b"\n" + plain.body)
    return digest.hexdigest()
