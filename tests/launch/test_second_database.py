"""A node that is told of a second database keeps messages and cursors there, by its address alone."""

from urllib.parse import urlsplit, urlunsplit

import psycopg

from scalable.client import Admin, Producer
from tests.processes import ProcessFactory

ORDERS = "topic://public/default/elsewhere"
BATCHES = "SELECT count(*) FROM segment_batch"


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(BATCHES).fetchone()
    assert found is not None
    return int(found[0])


async def test_messages_lie_in_the_second_database(
    processes: ProcessFactory, service_environment: dict[str, str], external_database: str
) -> None:
    first = service_environment["DATABASE_URL"]
    second = urlunsplit(urlsplit(first)._replace(path=f"/{external_database}"))
    before = count(first)
    node = processes.node(SCALABLE_SEGMENTS_DATABASE_URL=second)
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic(ORDERS)
        async with Producer(node.url, ORDERS, token=node.admin_token) as producer:
            await producer.send("key", b"value")
        assert count(first) == before
        assert count(second) >= 1  # load samples, which nodes send themselves, lie there too
        admin.delete_topic(ORDERS)
