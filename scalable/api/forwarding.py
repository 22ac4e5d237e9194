"""Answers of a topic's leader, given by another node: only the leader remembers who is connected."""

import logging
import ssl
from functools import cache
from typing import Any

import httpx
from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.node import node
from scalable.wire.tls import client_context

logger = logging.getLogger(__name__)

FORWARDED_HEADER = "X-Scalable-Forwarded"
TIMEOUT_SECONDS = 2.0
_PASSED_ON = ("Authorization", "Cookie")


def answer_of_leader(request: Request, url: str | None) -> Response | None:
    """Ask the leader the same, as the same subject; None when this node is to answer by itself.

    It is when it leads the topic or nobody does, and when the leader does not answer in good time. What was
    forwarded once is not forwarded again.
    """
    if url in {None, node.url} or FORWARDED_HEADER in request.headers:
        return None
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    try:
        answer = httpx.get(
            f"{url}{request.get_full_path()}",
            headers={**headers, FORWARDED_HEADER: "1"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
            verify=_tls() if str(url).startswith("https:") else True,
        )
        body: Any = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        logger.info("The leader at %s does not answer: %s", url, error)
        return None
    return Response(body) if answer.is_success else None


@cache
def _tls() -> ssl.SSLContext:
    """How this node meets others: it shows them its own certificate, where it has one."""
    return client_context(
        ca_file=settings.SCALABLE_TLS_CA,
        cert_file=settings.SCALABLE_TLS_CERT,
        key_file=settings.SCALABLE_TLS_KEY,
    )
