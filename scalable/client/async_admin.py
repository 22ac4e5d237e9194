"""The asynchronous face of `Admin`: the same operations, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from scalable.client.admin import Admin
from scalable.client.connection import Urls

MAX_CALLS = 16
"""So many calls of one client run at a time; a split or merge that is waited for takes one of them."""

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def _awaited(
    operation: Callable[Concatenate[Admin, _Given], _Answer],
) -> Callable[Concatenate[AsyncAdmin, _Given], Coroutine[Any, Any, _Answer]]:
    @wraps(operation)
    async def call(self: AsyncAdmin, /, *given: _Given.args, **named: _Given.kwargs) -> _Answer:
        return await self._run(partial(operation, self._admin, *given, **named))

    return call


class AsyncAdmin:
    """REST client for code with an event loop; every operation and error is that of `Admin`."""

    def __init__(self, url: Urls, token: str, *, timeout_seconds: float = 40.0) -> None:
        self._admin = Admin(url, token, timeout_seconds=timeout_seconds)
        self._threads = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="scalable-admin")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, once the calls that run have ended."""
        await self._run(self._admin.close)
        self._threads.shutdown(wait=False)

    async def _run(self, call: Callable[[], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    create_topic = _awaited(Admin.create_topic)
    get_topic = _awaited(Admin.get_topic)
    set_properties = _awaited(Admin.set_properties)
    properties = _awaited(Admin.properties)
    list_topics = _awaited(Admin.list_topics)
    delete_topic = _awaited(Admin.delete_topic)
    create_namespace = _awaited(Admin.create_namespace)
    delete_namespace = _awaited(Admin.delete_namespace)
    set_namespace_lifetimes = _awaited(Admin.set_namespace_lifetimes)
    set_lifetimes = _awaited(Admin.set_lifetimes)
    lifetimes = _awaited(Admin.lifetimes)
    split = _awaited(Admin.split)
    merge = _awaited(Admin.merge)
    rebucket = _awaited(Admin.rebucket)
    operations = _awaited(Admin.operations)
    operation = _awaited(Admin.operation)
    abort_operation = _awaited(Admin.abort_operation)
    set_policy = _awaited(Admin.set_policy)
    get_policy = _awaited(Admin.get_policy)
    remove_policy = _awaited(Admin.remove_policy)
    effective_policy = _awaited(Admin.effective_policy)
    decisions = _awaited(Admin.decisions)
    preview_decision = _awaited(Admin.preview_decision)
    loads = _awaited(Admin.loads)
    tiles = _awaited(Admin.tiles)
    positions = _awaited(Admin.positions)
    read_batches = _awaited(Admin.read_batches)
    report_loads = _awaited(Admin.report_loads)
    report_tiles = _awaited(Admin.report_tiles)
    create_subscription = _awaited(Admin.create_subscription)
    subscriptions = _awaited(Admin.subscriptions)
    subscription = _awaited(Admin.subscription)
    delete_subscription = _awaited(Admin.delete_subscription)
    assignments = _awaited(Admin.assignments)
    seek = _awaited(Admin.seek)
    clear_backlog = _awaited(Admin.clear_backlog)
    skip = _awaited(Admin.skip)
    peek = _awaited(Admin.peek)
    stats = _awaited(Admin.stats)
    tenant_permissions = _awaited(Admin.tenant_permissions)
    grant_on_tenant = _awaited(Admin.grant_on_tenant)
    revoke_on_tenant = _awaited(Admin.revoke_on_tenant)
    namespace_permissions = _awaited(Admin.namespace_permissions)
    grant_on_namespace = _awaited(Admin.grant_on_namespace)
    revoke_on_namespace = _awaited(Admin.revoke_on_namespace)
    topic_permissions = _awaited(Admin.topic_permissions)
    grant_on_topic = _awaited(Admin.grant_on_topic)
    revoke_on_topic = _awaited(Admin.revoke_on_topic)
    mint_token = _awaited(Admin.mint_token)
    tokens = _awaited(Admin.tokens)
    revoke_token = _awaited(Admin.revoke_token)
    audit = _awaited(Admin.audit)
    start_job = _awaited(Admin.start_job)
    jobs = _awaited(Admin.jobs)
    job = _awaited(Admin.job)
    cancel_job = _awaited(Admin.cancel_job)
    job_file = _awaited(Admin.job_file)
    locate = _awaited(Admin.locate)
    lineage = _awaited(Admin.lineage)
    pruned_segments = _awaited(Admin.pruned_segments)
    segment_stats = _awaited(Admin.segment_stats)
    preview_split = _awaited(Admin.preview_split)
    preview_merge = _awaited(Admin.preview_merge)
    preview_rebucket = _awaited(Admin.preview_rebucket)
    merge_pair = _awaited(Admin.merge_pair)
    retry_operation = _awaited(Admin.retry_operation)
    migrate = _awaited(Admin.migrate)
    tenants = _awaited(Admin.tenants)
    tenant = _awaited(Admin.tenant)
    create_tenant = _awaited(Admin.create_tenant)
    update_tenant = _awaited(Admin.update_tenant)
    delete_tenant = _awaited(Admin.delete_tenant)
    namespaces = _awaited(Admin.namespaces)
    namespace = _awaited(Admin.namespace)
    namespace_lifetimes = _awaited(Admin.namespace_lifetimes)
    remove_namespace_lifetimes = _awaited(Admin.remove_namespace_lifetimes)
    remove_lifetimes = _awaited(Admin.remove_lifetimes)
    effective_namespace_policy = _awaited(Admin.effective_namespace_policy)
    get_namespace_policy = _awaited(Admin.get_namespace_policy)
    set_namespace_policy = _awaited(Admin.set_namespace_policy)
    remove_namespace_policy = _awaited(Admin.remove_namespace_policy)
    topics_page = _awaited(Admin.topics_page)
    nodes = _awaited(Admin.nodes)
    topics_led = _awaited(Admin.topics_led)
    metrics = _awaited(Admin.metrics)
    ensure_segment = _awaited(Admin.ensure_segment)
    terminate_segment = _awaited(Admin.terminate_segment)
    delete_segment = _awaited(Admin.delete_segment)
    ensure_segment_cursor = _awaited(Admin.ensure_segment_cursor)
    delete_segment_cursor = _awaited(Admin.delete_segment_cursor)
    segment_backlog = _awaited(Admin.segment_backlog)
    seek_segment = _awaited(Admin.seek_segment)
    clear_segment_backlog = _awaited(Admin.clear_segment_backlog)
