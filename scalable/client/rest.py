"""REST calls to one of several nodes, with the domain's errors."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from scalable.client.connection import ConnectionLost, Endpoint, Urls
from scalable.domain.errors import error_from_json
from scalable.domain.names import TopicName

ROOT = "/admin/v2/scalable"

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
        return self._call(method, path, **request).json()

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        answer = self._ask_nodes(method, path, request)
        if answer.is_error:
            raise _error_of(answer)
        return answer

    def _ask_nodes(self, method: str, path: str, request: Json) -> httpx.Response:
        """Ask one node after the other, as long as asking again can do nothing twice."""
        left = len(self._endpoint.urls)
        while True:
            url, left = self._endpoint.url, left - 1
            try:
                return self._http.request(method, url + path, **request)
            except httpx.TransportError as error:
                self._endpoint.failed(url)
                unheard = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if not left or not (unheard or method == "GET"):
                    raise ConnectionLost(1006, f"{method} {path}: {error}") from error


def _error_of(answer: httpx.Response) -> Exception:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("code"):
        return error_from_json(body)
    return ConnectionLost(1006, f"HTTP {answer.status_code} without an error of the product")


def quoted(*parts: object) -> str:
    """Join parts to a path, each quoted whole."""
    return "/".join(quote(str(part), safe="") for part in parts)


def topic_path(topic: TopicName | str, *more: object) -> str:
    """Give the path of a topic's door."""
    name = topic if isinstance(topic, TopicName) else TopicName.parse(topic)
    return f"{ROOT}/{quoted(name.tenant, name.namespace, name.name, *more)}"


def listed(body: Any, key: str) -> list[Json]:
    """Unwrap a list that may come with its page's bounds around it."""
    items = body[key] if isinstance(body, dict) else body
    return list(items)
