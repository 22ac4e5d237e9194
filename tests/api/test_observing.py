"""Request ids, log lines and metrics of a node."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pythonjsonlogger.json import JsonFormatter

from launch.process import ManagedProcess
from scalable import trace
from scalable.api.executor import ServiceExecutor
from scalable.api.observing import SOCKETS, Observed, request_id_of, shown
from scalable.api.sockets.routing import doors
from scalable.client import Admin, Endpoint, Producer, TopologyWatch
from scalable.domain.names import TopicName
from tests.faults.waiting import until
from tests.processes import LiveNode, ProcessFactory

TOPIC = "topic://public/default/observed"


@pytest.fixture
def http(live_node: LiveNode) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {live_node.admin_token}"}
    with httpx.Client(base_url=live_node.url, headers=headers) as client:
        yield client


def figures(http: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_each_socket_is_counted_by_its_own_name() -> None:
    assert {str(door.pattern).split("/")[3] for door in doors} == SOCKETS


def wait_until_closed(http: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while figures(http)["scalable_sockets", (("socket", "produce"),)] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_answer_names_its_request(http: httpx.Client) -> None:
    given = http.get("/admin/v2/nodes", headers={"X-Request-Id": "trace-7.a_B"})
    assert given.headers["X-Request-Id"] == "trace-7.a_B"
    made = {http.get("/livez").headers["X-Request-Id"] for _ in range(2)}
    assert len(made) == 2
    refused = http.get("/admin/v2/nodes/nobody/topics", headers={"X-Request-Id": "x" * 65})
    assert len(refused.headers["X-Request-Id"]) == 32


@pytest.mark.parametrize("given", ["", "a b", "a\nb", "é", "x" * 65, '"', "{}"])
def test_an_id_that_could_confuse_a_log_is_not_taken(given: str) -> None:
    scope = {"headers": [(b"x-request-id", given.encode("latin-1"))]}
    assert request_id_of(scope) != given


def test_requests_are_counted_by_door_and_status(http: httpx.Client) -> None:
    before = figures(http)
    for _ in range(3):
        assert http.get("/admin/v2/scalable/public/default/absent").status_code == 404
    after = figures(http)
    door = "admin/v2/scalable/<str:tenant>/<str:namespace>/<str:topic>"
    key = ("scalable_http_requests_total", (("door", door), ("method", "GET"), ("status", "404")))
    assert after[key] - before.get(key, 0) == 3
    assert after["scalable_node_ready", ()] == 1
    assert "absent" not in http.get("/metrics").text


async def test_messages_and_sockets_are_counted(live_node: LiveNode, http: httpx.Client) -> None:
    with Admin(live_node.url, live_node.admin_token) as admin:
        await asyncio.to_thread(admin.create_topic, TOPIC)
    before = figures(http)
    watch = TopologyWatch(Endpoint(live_node.url, live_node.admin_token), TopicName.parse(TOPIC))
    async with watch, Producer(live_node.url, TOPIC, live_node.admin_token) as producer:
        for number in range(5):
            await producer.send("key", str(number).encode())
        during = figures(http)
        assert during["scalable_sockets", (("socket", "produce"),)] == 1
        assert during["scalable_sockets", (("socket", "lookup"),)] == 2
    assert during["scalable_messages_in_total", ()] - before["scalable_messages_in_total", ()] == 5
    await asyncio.to_thread(wait_until_closed, http)
    closes = figures(http)["scalable_socket_closes_total", (("code", "1000"), ("socket", "produce"))]
    assert closes == 1


async def test_a_request_of_unknown_kind_makes_no_label_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        logging.getLogger("scalable.test").warning("inside")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("broken")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {}

    scope = {"type": "http", "method": "BREW", "path": "/secret?", "headers": [(b"x-request-id", b"r1")]}
    with caplog.at_level(logging.INFO), pytest.raises(RuntimeError):
        await Observed(application)(scope, receive, send)
    assert sent[0]["headers"] == [(b"x-request-id", b"r1")]
    assert any("BREW /secret? 200" in record.getMessage() for record in caplog.records)


async def test_what_a_thread_logs_is_about_the_request_that_called_it(db: None) -> None:
    executor = ServiceExecutor(threads=1)
    try:
        with trace.about(request_id="r2"):
            assert (await executor.call(trace.current)).request_id == "r2"
        assert (await executor.call(trace.current)).request_id == ""
    finally:
        await asyncio.to_thread(executor.close)


def test_log_lines_as_json_carry_what_they_are_about() -> None:
    record = logging.LogRecord("scalable", logging.INFO, __file__, 1, "sealed %s", (7,), None)
    with trace.about(request_id="r3", operation_id="o1"), trace.about(actor="admin"):
        trace.TraceFilter().filter(record)
    assert record.__dict__["about"] == " [request=r3 operation=o1 by=admin]"
    line = JsonFormatter("%(message)s %(request_id)s %(operation_id)s %(actor)s").format(record)
    body = json.loads(line)
    assert body["message"] == "sealed 7"
    assert (body["request_id"], body["operation_id"], body["actor"]) == ("r3", "o1", "admin")


@pytest.mark.parametrize(
    "path", ["/a\nb", "/a\r2026 INFO", "/a\x1b[2K", "/a\u2028b", "/a\u202eb", "/a\x00", "/\ud800"]
)
def test_a_path_is_one_line_of_the_log_and_all_of_it(path: str) -> None:
    assert shown(path).isascii()
    assert shown(path).isprintable()
    assert shown("/topics/größe") == "/topics/größe"


def lines_of(process: ManagedProcess) -> list[dict[str, Any]]:
    """The lines of a log, each of which is an object; Celery alone greets in its own way."""
    lines = process.log.path.read_text().splitlines()
    return [
        json.loads(line) for line in lines if "worker" not in process.log.path.name or line.startswith("{")
    ]


@pytest.mark.slow
def test_every_line_of_a_node_and_a_worker_is_an_object_and_says_what_it_is_about(
    processes: ProcessFactory,
) -> None:
    node = processes.node(SCALABLE_LOG_FORMAT="json")
    worker = processes.worker(SCALABLE_LOG_FORMAT="json")
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic("topic://public/default/lines")
        admin.split("topic://public/default/lines", 0)
        done = admin.operations("topic://public/default/lines")[0]["operationId"]
    named = f"/operations/{done}"
    for headers, role in ((node.headers, "admin"), ({}, "")):
        httpx.post(f"{node.url}/admin/v2/scalable/public/default/lines{named}/abort", headers=headers)
        until(partial(has_asked, node, named, role), what=f"the line of {role}")
    until(lambda: done in {line["operation_id"] for line in lines_of(worker)}, what="the operation's line")


def has_asked(node: LiveNode, path: str, role: str) -> bool:
    """Tell whether the log says that a role asked for a path, and in which request."""
    return any(
        path in line["message"] and line["actor"] == role and line["request_id"]
        for line in lines_of(node.process)
        if line["name"] == "scalable.access"
    )
