"""The node's threads: connections stay open, broken ones are replaced, and the queue is bounded."""

import asyncio
import threading
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from django.db import DatabaseError, connection

from scalable.api import executor as module
from scalable.api.executor import ServiceExecutor
from scalable.domain.errors import TooManyRequests

pytestmark = pytest.mark.django_db(transaction=True)


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[ServiceExecutor]:
    """One thread."""
    made = ServiceExecutor(threads=1)
    yield made
    await asyncio.to_thread(made.close)


def backend_pid() -> int:
    """Name the server process behind this thread's connection."""
    return int(fetch("SELECT pg_backend_pid()"))


def fetch(statement: str) -> str:
    """Give the one value of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return str(cursor.fetchone()[0])


async def test_a_thread_keeps_its_connection(executor: ServiceExecutor) -> None:
    assert await executor.call(backend_pid) == await executor.call(backend_pid)


async def test_a_connection_that_was_cut_is_replaced(executor: ServiceExecutor) -> None:
    pid = await executor.call(backend_pid)
    await asyncio.to_thread(terminate, pid)
    with pytest.raises(DatabaseError):
        await executor.call(backend_pid)
    assert await executor.call(backend_pid) != pid


def terminate(pid: int) -> None:
    """Cut a connection from another one."""
    fetch(f"SELECT pg_terminate_backend({pid})")
    connection.close()


async def test_a_connection_to_a_server_that_became_read_only_is_not_used_again(
    executor: ServiceExecutor,
) -> None:
    pid = await executor.call(backend_pid)
    with pytest.raises(DatabaseError, match="read-only"):
        await executor.call(write_read_only)
    assert await executor.call(backend_pid) != pid
    assert await executor.call(fetch, "SHOW default_transaction_read_only") == "off"


def write_read_only() -> None:
    """Behave as after a fail-over that left this connection behind."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        cursor.execute("CREATE TABLE never (id int)")


async def test_more_calls_than_may_wait_are_refused(
    executor: ServiceExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_limit", 3)
    go_on = threading.Event()
    calls = [asyncio.create_task(executor.call(go_on.wait, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests) as refused:
        await executor.call(backend_pid)
    assert refused.value.retry_after_seconds == module.RETRY_AFTER_SECONDS
    go_on.set()
    assert await asyncio.gather(*calls) == [True, True, True]
    await executor.call(backend_pid)


def test_what_the_pool_hands_out_is_alive(service_environment: dict[str, str]) -> None:
    """A session that ended while nobody used it fails no call."""
    pid = backend_pid()
    with psycopg.connect(service_environment["DATABASE_URL"], autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    connection.close()
    assert backend_pid() != pid
