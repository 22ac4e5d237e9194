"""Calls of the product's REST interface from Spark's driver and executors, on the standard library alone.

Executors import this module, so it needs nothing that a cluster might not have. A node that restarts is
waited for; whatever else goes wrong is raised as NodeRefused or NodeUnavailable.
"""

from __future__ import annotations

import json
import os
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from itertools import cycle
from typing import Any
from urllib.parse import quote, urlencode

from scalable.domain.checkpoint import SegmentExtent
from scalable.domain.names import TopicName
from scalable.wire.tls import environment_context

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_FRAME = struct.Struct(">QI")
Answer = tuple[bytes, Mapping[str, str]]
"""Body and headers."""


class NodeRefused(Exception):
    """The node answered that the request is wrong; repeating it does not help.

    `code` is the product's word for it, empty when the answer has none.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class NodeUnavailable(Exception):
    """The node did not answer within the caller's patience."""


@dataclass(frozen=True, slots=True)
class TopicExtents:
    """All segments of a topic with what they hold."""

    incarnation: int
    segments: Mapping[int, SegmentExtent]


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Encoded batches with their base offsets, and where to read on."""

    batches: tuple[tuple[int, bytes], ...]
    next_offset: int


@dataclass(frozen=True, slots=True)
class NodeClient:
    """A web node as Spark sees it, or several with commas between their URLs; executors get it pickled."""

    url: str
    token: str
    timeout_seconds: float = 10.0
    patience_seconds: float = 60.0

    def extents(self, topic: TopicName) -> TopicExtents:
        """Ask which segments the topic has and which offsets they hold."""
        body, _ = self._request("GET", f"{_address(topic)}/positions")
        answer = json.loads(body)
        segments = {int(number): _extent(extent) for number, extent in answer["segments"].items()}
        return TopicExtents(answer["incarnation"], segments)

    def layout(self, topic: TopicName) -> Any:
        """Ask for the metadata of a topic: the JSON of `GET /{topic}`."""
        body, _ = self._request("GET", _address(topic))
        return json.loads(body)

    def batches(
        self, topic: TopicName, segment_id: int, *, incarnation: int, offset: int, max_bytes: int
    ) -> BatchPage:
        """Read batches that hold messages at or above the offset, at least one if there is any.

        Refused with the code `topic_deleted` when the topic is not of this incarnation any more.
        """
        query = urlencode({"incarnation": incarnation, "offset": offset, "maxBytes": max_bytes})
        path = f"{_address(topic)}/segments/{segment_id}/batches?{query}"
        body, headers = self._request("GET", path)
        return BatchPage(tuple(_frames(body)), int(headers["X-Scalable-Next-Offset"]))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON and return the JSON of the answer."""
        answer, _ = self._request("POST", path, json.dumps(body, allow_nan=False).encode())
        return json.loads(answer)

    def _request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        urls = cycle(url.rstrip("/") for url in self.url.split(","))

        def once() -> Answer:
            url = next(urls)
            tls = _tls() if url.startswith("https:") else None
            request = urllib.request.Request(url + path, data=body, headers=headers, method=method)
            with urllib.request.urlopen(request, timeout=self.timeout_seconds, context=tls) as response:
                return response.read(), response.headers

        return _patiently(once, f"{method} {path}", self.patience_seconds)


@cache
def _tls() -> ssl.SSLContext:
    """How encrypted nodes are met, as the environment of the client library says it."""
    return environment_context(os.environ)


def _patiently(once: Callable[[], Answer], what: str, patience_seconds: float) -> Answer:
    """Repeat with growing delays while the node is away; every request of this module is safe to repeat."""
    deadline = time.monotonic() + patience_seconds
    delay = FIRST_DELAY_SECONDS
    while True:
        try:
            return once()
        except urllib.error.HTTPError as error:
            if error.code not in _RETRIED_STATUSES:
                # Spark prints a chain of causes in full; this sentence says all there is to know.
                reason = _reason(error)
                raise NodeRefused(f"{what}: {error.code} {reason}", _code(reason)) from None
            failure = str(error)
        except (OSError, HTTPException) as error:
            failure = str(error)
        if time.monotonic() + delay > deadline:
            raise NodeUnavailable(f"{what}: {failure}")
        time.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY_SECONDS)


def _reason(error: urllib.error.HTTPError) -> str:
    return error.read(1000).decode(errors="replace")


def _code(reason: str) -> str:
    try:
        return str(json.loads(reason)["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _address(topic: TopicName) -> str:
    parts = (quote(part, safe="") for part in (topic.tenant, topic.namespace, topic.name))
    return "/admin/v2/scalable/" + "/".join(parts)


def _extent(body: Mapping[str, Any]) -> SegmentExtent:
    return SegmentExtent(
        start_offset=body["startOffset"],
        end_offset=body["endOffset"],
        terminated=body["terminated"],
        parent_ids=tuple(body["parentIds"]),
    )


def _frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body):
        base_offset, length = _FRAME.unpack_from(body, at)
        at += _FRAME.size
        yield base_offset, body[at : at + length]
        at += length
