"""`Admin` has every operation of the OpenAPI description: each is called, and looked up by what was asked."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from scalable.api.views.description import description
from scalable.client import Admin, AsyncAdmin
from scalable.domain.errors import InvalidName

NAMESPACE, TOPIC, SUBSCRIPTION = "t/n", "topic://t/n/x", "s"
SEGMENT = "segment://t/n/x/0000-ffff-0"
NODE = "00000000-0000-4000-8000-000000000001"
TODAY = datetime.now(UTC).date().isoformat()
BODY = (
    b'{"operations": [], "decisions": [], "tiles": [], "subscriptions": [], "messages": [], "tokens": [], '
    b'"events": [], "segments": [], "nodes": [], "topics": [], "jobs": []}'
)

Call = Callable[[Any], Any]
CALLS: dict[str, Call] = {
    "getNamespace": lambda admin: admin.list_topics(NAMESPACE),
    "getFigures": lambda admin: admin.topics_page(NAMESPACE, state="STEADY", properties={"a": "b"}),
    "getTopic": lambda admin: admin.get_topic(TOPIC),
    "putTopic": lambda admin: admin.create_topic(TOPIC, properties={"a": "b"}),
    "deleteTopic": lambda admin: admin.delete_topic(TOPIC, expected_epoch=1),
    "getProperties": lambda admin: admin.properties(TOPIC),
    "putProperties": lambda admin: admin.set_properties(TOPIC, {"a": "b"}, expected_epoch=1),
    "postMigrate": lambda admin: admin.migrate(TOPIC, force=True),
    "postSplit": lambda admin: admin.split(TOPIC, 0, boundaries=[1]),
    "postMerge": lambda admin: admin.merge(TOPIC, [0, 1], expected_epoch=1),
    "postMergePair": lambda admin: admin.merge_pair(TOPIC, 0, 1),
    "postRebucket": lambda admin: admin.rebucket(TOPIC, 0, 4),
    "getOperations": lambda admin: admin.operations(TOPIC, unfinished=True),
    "getOperation": lambda admin: admin.operation(TOPIC, NODE),
    "postAbort": lambda admin: admin.abort_operation(TOPIC, NODE),
    "postRetry": lambda admin: admin.retry_operation(TOPIC, NODE),
    "getDecisions": lambda admin: admin.decisions(TOPIC, before=1),
    "postDecisionPreview": lambda admin: admin.preview_decision(TOPIC, {"enabled": True}),
    "getLocate": lambda admin: admin.locate(TOPIC, "k", at_ms=1),
    "getLineage": lambda admin: admin.lineage(TOPIC),
    "getHistory": lambda admin: admin.pruned_segments(TOPIC),
    "getPolicy": lambda admin: admin.get_policy(TOPIC),
    "postPolicy": lambda admin: admin.set_policy(TOPIC, {"enabled": True}, expected_epoch=1),
    "deletePolicy": lambda admin: admin.remove_policy(TOPIC, expected_epoch=1),
    "getEffectivePolicy": lambda admin: admin.effective_policy(TOPIC),
    "getTopicLifetimes": lambda admin: admin.lifetimes(TOPIC),
    "postTopicLifetimes": lambda admin: admin.set_lifetimes(TOPIC, retention_seconds=1),
    "deleteTopicLifetimes": lambda admin: admin.remove_lifetimes(TOPIC),
    "getLoads": lambda admin: admin.loads(TOPIC),
    "getTiles": lambda admin: admin.tiles(TOPIC, from_ms=0, to_ms=1),
    "getPositions": lambda admin: admin.positions(TOPIC),
    "getBatches": lambda admin: admin.read_batches(TOPIC, 0, offset=0),
    "getSegmentStats": lambda admin: admin.segment_stats(TOPIC, 0),
    "getTopicStats": lambda admin: admin.stats(TOPIC),
    "getSubscriptions": lambda admin: admin.subscriptions(TOPIC),
    "getSubscription": lambda admin: admin.subscription(TOPIC, SUBSCRIPTION),
    "putSubscription": lambda admin: admin.create_subscription(TOPIC, SUBSCRIPTION, kind="QUEUE"),
    "deleteSubscription": lambda admin: admin.delete_subscription(TOPIC, SUBSCRIPTION),
    "getAssignments": lambda admin: admin.assignments(TOPIC, SUBSCRIPTION),
    "postSeek": lambda admin: admin.seek(TOPIC, SUBSCRIPTION, 1),
    "postSkipAll": lambda admin: admin.clear_backlog(TOPIC, SUBSCRIPTION),
    "postSkip": lambda admin: admin.skip(TOPIC, SUBSCRIPTION, 1),
    "getPeek": lambda admin: admin.peek(TOPIC, SUBSCRIPTION),
    "getTenants": lambda admin: admin.tenants(),
    "getTenant": lambda admin: admin.tenant("t"),
    "putTenant": lambda admin: admin.create_tenant("t", admin_roles=["a"]),
    "postTenant": lambda admin: admin.update_tenant("t", admin_roles=["a"]),
    "deleteTenant": lambda admin: admin.delete_tenant("t"),
    "getTenantNamespaces": lambda admin: admin.namespaces("t"),
    "getNamespaceLife": lambda admin: admin.namespace(NAMESPACE),
    "putNamespaceLife": lambda admin: admin.create_namespace(NAMESPACE),
    "deleteNamespaceLife": lambda admin: admin.delete_namespace(NAMESPACE, force=True),
    "getNamespaceLifetimes": lambda admin: admin.namespace_lifetimes(NAMESPACE),
    "postNamespaceLifetimes": lambda admin: admin.set_namespace_lifetimes(NAMESPACE, retention_seconds=1),
    "deleteNamespaceLifetimes": lambda admin: admin.remove_namespace_lifetimes(NAMESPACE),
    "getEffectiveNamespacePolicy": lambda admin: admin.effective_namespace_policy(NAMESPACE),
    "getNamespacePolicy": lambda admin: admin.get_namespace_policy(NAMESPACE),
    "postNamespacePolicy": lambda admin: admin.set_namespace_policy(NAMESPACE, {"enabled": True}),
    "deleteNamespacePolicy": lambda admin: admin.remove_namespace_policy(NAMESPACE),
    "getTenantPermissions": lambda admin: admin.tenant_permissions("t"),
    "postTenantRolePermissions": lambda admin: admin.grant_on_tenant("t", "r", ["lookup"]),
    "deleteTenantRolePermissions": lambda admin: admin.revoke_on_tenant("t", "r"),
    "getNamespacePermissions": lambda admin: admin.namespace_permissions(NAMESPACE),
    "postNamespaceRolePermissions": lambda admin: admin.grant_on_namespace(NAMESPACE, "r", ["lookup"]),
    "deleteNamespaceRolePermissions": lambda admin: admin.revoke_on_namespace(NAMESPACE, "r"),
    "getTopicPermissions": lambda admin: admin.topic_permissions(TOPIC),
    "postTopicRolePermissions": lambda admin: admin.grant_on_topic(TOPIC, "r", ["lookup"]),
    "deleteTopicRolePermissions": lambda admin: admin.revoke_on_topic(TOPIC, "r"),
    "getTokens": lambda admin: admin.tokens(),
    "postTokens": lambda admin: admin.mint_token("r"),
    "deleteToken": lambda admin: admin.revoke_token(NODE),
    "getAudit": lambda admin: admin.audit(actor="a"),
    "getNodes": lambda admin: admin.nodes(),
    "getLedTopics": lambda admin: admin.topics_led(NODE),
    "getJobs": lambda admin: admin.jobs(kind="compact"),
    "postJobs": lambda admin: admin.start_job("compact", {"before": TODAY}),
    "getJob": lambda admin: admin.job(NODE),
    "postCancelJob": lambda admin: admin.cancel_job(NODE),
    "getJobFile": lambda admin: admin.job_file(NODE, "report.html"),
    "getMetrics": lambda admin: admin.metrics(),
    "postLoadReport": lambda admin: admin.report_loads({}),
    "postTileReport": lambda admin: admin.report_tiles([]),
    "putSegment": lambda admin: admin.ensure_segment(SEGMENT, subscriptions=["s"]),
    "deleteSegment": lambda admin: admin.delete_segment(SEGMENT, force=True),
    "postTerminateSegment": lambda admin: admin.terminate_segment(SEGMENT),
    "putSegmentSubscription": lambda admin: admin.ensure_segment_cursor(SEGMENT, SUBSCRIPTION),
    "deleteSegmentSubscription": lambda admin: admin.delete_segment_cursor(SEGMENT, SUBSCRIPTION),
    "getSegmentBacklog": lambda admin: admin.segment_backlog(SEGMENT, SUBSCRIPTION),
    "postSegmentSeek": lambda admin: admin.seek_segment(SEGMENT, SUBSCRIPTION, 1),
    "postSegmentSkipAll": lambda admin: admin.clear_segment_backlog(SEGMENT, SUBSCRIPTION),
}
OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in description()["paths"].items()
    for method, operation in methods.items()
}


class _Recorder(BaseHTTPRequestHandler):
    """Writes down what it is asked, and answers so that any call of the client can read it."""

    asked: list[tuple[str, str]]

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path))
        batches = self.path.partition("?")[0].endswith("/batches")
        body = b"" if batches else b"0" if self.path.endswith("/backlog") else BODY
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name in ("Next-Offset", "End-Offset", "Terminated"):
            self.send_header(f"X-Scalable-{name}", "0")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - names of the standard library

    def log_message(self, *arguments: Any) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The address of a server that answers anything, and what it was asked."""
    asked: list[tuple[str, str]] = []
    handler = type("Recorder", (_Recorder,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}", asked
        served.shutdown()
        thread.join()


def operation_of(method: str, address: str) -> str:
    """The operation that a request is, its parameters being ones that it has."""
    path, _, query = address.partition("?")
    for name, (its_method, template, operation) in OPERATIONS.items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", template)
        if its_method == method and re.fullmatch(pattern, path):
            known = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
            given = {pair.partition("=")[0] for pair in query.split("&") if pair}
            assert given <= known, (name, given - known)
            return name
    raise AssertionError(f"{method} {path} is no operation")


def test_every_operation_of_the_description_is_called() -> None:
    assert set(CALLS) == set(OPERATIONS)


def test_every_call_is_the_operation_that_it_should_be(server: tuple[str, list[tuple[str, str]]]) -> None:
    url, asked = server
    with Admin(url, "token") as admin:
        for name, call in CALLS.items():
            call(admin)
            assert operation_of(*asked[-1]) == name
    assert len(asked) == len(CALLS)


def test_every_awaited_call_is_the_same(server: tuple[str, list[tuple[str, str]]]) -> None:
    url, asked = server

    async def scenario() -> None:
        async with AsyncAdmin(url, "token") as admin:
            for name, call in CALLS.items():
                await call(admin)
                assert operation_of(*asked[-1]) == name

    asyncio.run(scenario())


def test_a_preview_is_asked_for_and_nothing_else(server: tuple[str, list[tuple[str, str]]]) -> None:
    url, asked = server
    with Admin(url, "token") as admin:
        admin.preview_split(TOPIC, 0, boundaries=[1], expected_epoch=2)
        admin.preview_merge(TOPIC, [0, 1])
        admin.preview_rebucket(TOPIC, 0, 2)
    assert all("preview=true" in address for _, address in asked)
    assert [operation_of(*each) for each in asked] == ["postSplit", "postMerge", "postRebucket"]


@pytest.mark.parametrize("step", [".", ".."])
def test_no_name_leads_to_another_path(step: str) -> None:
    """The HTTP client would resolve it, and ask for all tokens instead of for one."""
    with Admin("http://127.0.0.1:9", "token") as admin:
        asked: list[Callable[[], Any]] = [
            lambda: admin.revoke_token(step),
            lambda: admin.topics_led(step),
            lambda: admin.tenant(step),
            lambda: admin.delete_namespace(f"public/{step}"),
            lambda: admin.revoke_on_namespace(NAMESPACE, step),
            lambda: admin.subscription(TOPIC, step),
            lambda: admin.operation(TOPIC, step),
        ]
        for ask in asked:
            with pytest.raises(InvalidName):
                ask()
