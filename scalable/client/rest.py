"""REST calls to one of several nodes, with the domain's errors."""

from __future__ import annotations

import time
import uuid
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from scalable.client.connection import ConnectionLost, Endpoint, Urls
from scalable.domain.errors import IdempotencyKeyBusy, IdempotencyKeysFull, InvalidName, error_from_json
from scalable.domain.json_text import load_json, load_shallow_json
from scalable.domain.names import TopicName

ROOT = "/admin/v2/scalable"
TOKENS_PATH = "/admin/v2/tokens"
KEY_HEADER = "Idempotency-Key"
LOST_ANSWERS = 1
"""So often a request is sent again whose answer was lost, or to each other node once."""
BUSY_ANSWERS = 60
"""So often the answer of a request is asked for that is still worked on."""
REPEAT_SECONDS = 0.5
PATH_STEPS = frozenset({".", ".."})
"""What the HTTP client resolves before it asks."""

Json = dict[str, Any]


class RestClient:
    """Asks a node, and the next one when it does not answer; raises what it answers, or ConnectionLost."""

    def __init__(self, url: Urls, token: str, *, timeout_seconds: float = 40.0) -> None:
        self._endpoint = Endpoint(url, token)
        self._http = httpx.Client(
            headers=self._endpoint.headers,
            timeout=timeout_seconds,
            trust_env=not self._endpoint.is_loopback,
            verify=self._endpoint.tls or True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _object(self, method: str, path: str, **request: Any) -> Json:
        return dict(self._json(method, path, **request))

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return body_of(self._call(method, path, **request))

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        answer = self._ask_nodes(method, path, request)
        if answer.is_error:
            raise _error_of(answer)
        return answer

    def _ask_nodes(self, method: str, path: str, request: Json) -> httpx.Response:
        """Ask one node after the other, as long as asking again can do nothing twice.

        A change goes under a key of its own, under which it is done once however often it is asked for. A
        node that keeps no more keys is asked without one, and then once.
        """
        key, busy_left = _key_for(method, path), BUSY_ANSWERS
        while True:
            keyed = {**request, "headers": {**(request.get("headers") or {}), **key}}
            answer = self._ask_until_heard(method, path, keyed)
            code = _code_of(answer) if key else ""
            if code == IdempotencyKeysFull.code:
                key = {}
            elif code == IdempotencyKeyBusy.code and busy_left:
                # The first request, whose answer was lost, is still worked on.
                busy_left -= 1
                time.sleep(REPEAT_SECONDS)
            else:
                return answer

    def _ask_until_heard(self, method: str, path: str, request: Json) -> httpx.Response:
        repeatable = method == "GET" or KEY_HEADER in request["headers"]
        nodes_left = len(self._endpoint.urls)
        answers_left = max(LOST_ANSWERS, nodes_left - 1) if repeatable else 0
        while True:
            url = self._endpoint.url
            try:
                return self._http.request(method, url + path, **request)
            except httpx.TransportError as error:
                self._endpoint.failed(url)
                if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    nodes_left -= 1
                else:
                    answers_left -= 1
                if nodes_left <= 0 or answers_left < 0:
                    raise ConnectionLost(1006, f"{method} {path}: {error}") from error


def _key_for(method: str, path: str) -> dict[str, str]:
    """A new key for a change; the answer that has a new token is kept for nobody."""
    if method == "GET" or (method, path) == ("POST", TOKENS_PATH):
        return {}
    return {KEY_HEADER: str(uuid.uuid4())}


def body_of(answer: httpx.Response) -> Any:
    """Read the JSON of an answer; raises ConnectionLost where there is none, as from another server."""
    try:
        return load_json(answer.content)
    except ValueError as error:
        raise ConnectionLost(1006, f"HTTP {answer.status_code} with a body that is no JSON") from error


def _refusal_of(answer: httpx.Response) -> Any:
    try:
        return load_shallow_json(answer.content)
    except ValueError:
        return None


def _code_of(answer: httpx.Response) -> str:
    body = _refusal_of(answer) if answer.is_error else None
    return str(body.get("code", "")) if isinstance(body, dict) else ""


def _error_of(answer: httpx.Response) -> Exception:
    body = _refusal_of(answer)
    if isinstance(body, dict) and body.get("code"):
        return error_from_json(body)
    return ConnectionLost(1006, f"HTTP {answer.status_code} without an error of the product")


def quoted(*parts: object) -> str:
    """Join parts to a path, each quoted whole; raises InvalidName for one that would lead to another path."""
    names = [str(part) for part in parts]
    for name in names:
        if name in PATH_STEPS:
            raise InvalidName(field="name", value=name, problem="it is a path step")
    return "/".join(quote(name, safe="") for name in names)


def topic_path(topic: TopicName | str, *more: object) -> str:
    """Give the path of a topic's door."""
    name = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
    return f"{ROOT}/{quoted(name.tenant, name.namespace, name.name, *more)}"


def listed(body: Any, key: str) -> list[Json]:
    """Unwrap a list that may come with its page's bounds around it."""
    items = body[key] if isinstance(body, dict) else body
    return list(items)
