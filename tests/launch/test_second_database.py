"""A node that is told of a second database keeps messages and cursors there, by its address alone."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from scalable.client import Admin, Producer
from tests.processes import LiveNode, ProcessFactory

ORDERS = "topic://public/default/elsewhere"
BATCHES = "SELECT count(*) FROM segment_batch"


THREADS = 8
"""Of a node, that work at once when many call at once."""


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(BATCHES).fetchone()
    assert found is not None
    return int(found[0])


@pytest.fixture
def second(service_environment: dict[str, str], external_database: str) -> str:
    """Give the address of the second database."""
    return urlunsplit(urlsplit(service_environment["DATABASE_URL"])._replace(path=f"/{external_database}"))


async def test_messages_lie_in_the_second_database(
    processes: ProcessFactory, service_environment: dict[str, str], second: str
) -> None:
    first = service_environment["DATABASE_URL"]
    before = count(first)
    node = processes.node(SCALABLE_SEGMENTS_DATABASE_URL=second)
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic(ORDERS)
        async with Producer(node.url, ORDERS, token=node.admin_token) as producer:
            await producer.send("key", b"value")
        assert count(first) == before
        assert count(second) >= 1  # load samples, which nodes send themselves, lie there too
        admin.delete_topic(ORDERS)


async def test_all_threads_of_a_node_work_there_at_once(processes: ProcessFactory, second: str) -> None:
    """Each of them keeps its connection: a pool with fewer would leave the others out for ever."""
    node = processes.node(SCALABLE_SEGMENTS_DATABASE_URL=second, SCALABLE_EXECUTOR_THREADS=str(THREADS))
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic(ORDERS, initial_segments=THREADS)
        try:
            await asyncio.gather(*(send_much(node) for _ in range(2 * THREADS)))
            await asyncio.gather(*(asyncio.to_thread(make_and_delete, node, n) for n in range(THREADS)))
        finally:
            admin.delete_topic(ORDERS)


async def send_much(node: LiveNode) -> None:
    async with Producer(node.url, ORDERS, token=node.admin_token) as producer:
        for number in range(20):
            await asyncio.gather(*(producer.send(f"{number} {key}", b"value") for key in range(THREADS)))


def make_and_delete(node: LiveNode, number: int) -> None:
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic(f"{ORDERS}-{number}")
        admin.delete_topic(f"{ORDERS}-{number}")
