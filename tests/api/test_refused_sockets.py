"""What the answer to a refused handshake says, as REST says it."""

from typing import Any

import pytest

from scalable.api.errors import AUTHENTICATE_HEADER
from scalable.api.sockets.handshake import deny
from scalable.domain.errors import Forbidden, ScalableError, TooManyRequests, Unauthenticated, Unavailable

REFUSALS = [
    (TooManyRequests(limit=5, retry_after_seconds=7.2), 429, {b"retry-after": b"7"}),
    (Unauthenticated(problem="no token"), 401, {b"www-authenticate": AUTHENTICATE_HEADER.encode()}),
    (Unavailable(reference="r"), 503, {b"retry-after": b"1"}),
    (Forbidden(role="r", right="produce"), 403, {}),
]


@pytest.mark.parametrize(("error", "status", "headers"), REFUSALS, ids=lambda each: getattr(each, "code", ""))
async def test_a_refusal_says_what_to_do_next(
    error: ScalableError, status: int, headers: dict[bytes, bytes]
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await deny({"extensions": {"websocket.http.response": {}}}, send, error)
    start, body = sent
    assert (start["status"], dict(start["headers"])) == (
        status,
        {b"content-type": b"application/json", **headers},
    )
    assert error.code.encode() in body["body"]
