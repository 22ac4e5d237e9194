"""Answers of a server that is none of ours: what nests too deep, or is no JSON, is as good as no answer."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scalable.client import Admin, ConnectionLost
from scalable.client.connection import Endpoint, open_connection
from scalable.domain.names import TopicName
from scalable.wire.frames import PROTOCOL_VERSION, Hello

TOPIC = TopicName("public", "default", "none")
UNREADABLE = [b"[" * 60_000, b"<html>"]
REFUSAL = b'{"code": "topic_not_found", "fields": ' + b"[" * 500 + b"]" * 500 + b"}"

Serve = Callable[[int, bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers everything with one status and one body; gives its URL."""
    said: list[tuple[int, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = said[-1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def begin(status: int, body: bytes) -> str:
            said.append((status, body))
            return f"http://127.0.0.1:{server.server_port}"

        yield begin
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("body", UNREADABLE)
def test_an_answer_that_is_no_json_is_none(serve: Serve, body: bytes) -> None:
    with Admin(serve(200, body), "") as admin, pytest.raises(ConnectionLost, match="no JSON"):
        admin.get_policy(TOPIC)


@pytest.mark.parametrize("body", [*UNREADABLE, REFUSAL])
def test_a_refusal_that_nests_too_deep_tells_its_status(serve: Serve, body: bytes) -> None:
    with Admin(serve(500, body), "") as admin, pytest.raises(ConnectionLost, match="HTTP 500 without"):
        admin.get_policy(TOPIC)


@pytest.mark.parametrize("body", [*UNREADABLE, REFUSAL])
async def test_so_does_one_of_a_socket(serve: Serve, body: bytes) -> None:
    endpoint = Endpoint(serve(503, body), "")
    with pytest.raises(ConnectionLost, match="HTTP 503"):
        await open_connection(endpoint, "lookup", TOPIC, hello=Hello(protocol=PROTOCOL_VERSION))
