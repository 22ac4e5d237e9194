"""REST calls that wait for a worker, on real processes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from django.db import connection, transaction

from tests.locks import until_somebody_waits_for_a_lock
from tests.processes import LiveNode, ProcessFactory

PATH = "/admin/v2/scalable/public/default/waited"
OTHER = "/admin/v2/scalable/public/default/other"


def client_of(node: LiveNode) -> httpx.Client:
    return httpx.Client(base_url=node.url, headers=node.headers, timeout=40, trust_env=False)


def split_meanwhile(
    node: LiveNode, act: Callable[[httpx.AsyncClient, str], Awaitable[None]]
) -> httpx.Response:
    """Ask for a split that no worker does, act on its operation while the request waits; give its answer."""

    async def scenario() -> httpx.Response:
        async with httpx.AsyncClient(
            base_url=node.url, headers=node.headers, timeout=40, trust_env=False
        ) as client:
            waiting = asyncio.create_task(client.post(f"{PATH}/split/0"))
            operations: list[dict[str, str]] = []
            while not operations:
                operations = (await client.get(f"{PATH}/operations")).json()["operations"]
            await act(client, operations[0]["operationId"])
            return await waiting

    return asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.fixture
def admin(live_node: LiveNode) -> Iterator[httpx.Client]:
    with client_of(live_node) as client:
        assert client.put(PATH).status_code == 204
        yield client


def test_a_split_and_a_merge_wait_for_their_end(admin: httpx.Client, celery_worker_process: object) -> None:
    assert admin.post(f"{PATH}/split/0").status_code == 204
    assert admin.post(f"{PATH}/split/1", json={"boundaries": [1_000, 2_000]}).status_code == 204
    assert admin.post(f"{PATH}/merge/4/5").status_code == 204
    assert admin.post(f"{PATH}/merge", json={"segmentIds": [3, 6, 2]}).status_code == 204
    topic = admin.get(PATH).json()
    active = [segment["hashRange"] for segment in topic["segments"].values() if segment["state"] == "ACTIVE"]
    assert active == [{"start": 0, "end": 65_535}]
    assert topic["epoch"] == 4


def test_a_rebucket_shows_in_the_metadata(admin: httpx.Client, celery_worker_process: object) -> None:
    assert admin.get(PATH).json()["segments"]["0"]["entryBucketSplits"] == [16_384, 32_768, 49_152]
    assert admin.post(f"{PATH}/rebucket/0?bucketCount=2").status_code == 204
    topic = admin.get(PATH).json()
    assert topic["segments"]["1"]["entryBucketSplits"] == [32_768]
    assert (topic["segments"]["0"]["state"], topic["segments"]["1"]["parentIds"]) == ("SEALED", [0])
    again = admin.post(f"{PATH}/rebucket/1?bucketCount=2")
    assert (again.status_code, again.json()["code"]) == (412, "bucket_count_unchanged")


def test_waiting_hears_of_the_end_although_hints_are_off(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_HINTS_ENABLED="false")
    processes.worker(SCALABLE_HINTS_ENABLED="false")
    with client_of(node) as client:
        client.put(PATH)
        answer = client.post(f"{PATH}/split/0")
        assert answer.status_code == 204
        assert answer.elapsed.total_seconds() < 5


def test_the_wait_ends_without_the_operation(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_OPERATION_WAIT_SECONDS="0.5")  # and no worker
    with client_of(node) as client:
        client.put(PATH)
        answer = client.post(f"{PATH}/split/0")
        assert answer.status_code == 202
        assert "Preference-Applied" not in answer.headers
        operation = answer.json()
        assert operation["outcome"] is None
        assert answer.headers["Location"] == f"{node.url}{PATH}/operations/{operation['operationId']}"


def test_an_aborted_operation_is_said_to_whoever_waits(admin: httpx.Client, live_node: LiveNode) -> None:
    async def abort(client: httpx.AsyncClient, operation_id: str) -> None:
        aborted = await client.post(f"{PATH}/operations/{operation_id}/abort")
        assert aborted.status_code == 200

    answer = split_meanwhile(live_node, abort)
    assert (answer.status_code, answer.json()["code"]) == (409, "operation_aborted")


@pytest.mark.parametrize("made_again", [False, True])
def test_whoever_waits_hears_that_the_topic_went(
    admin: httpx.Client, live_node: LiveNode, made_again: bool
) -> None:
    async def delete(client: httpx.AsyncClient, operation_id: str) -> None:
        assert (await client.delete(PATH, params={"force": "true"})).status_code == 204
        if made_again:
            assert (await client.put(PATH)).status_code == 204

    answer = split_meanwhile(live_node, delete)
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_deleted")
    assert answer.json()["fields"] == {"topic": "topic://public/default/waited"}


def test_those_who_wait_are_bounded_and_hold_no_connection(processes: ProcessFactory) -> None:
    """More wait than the database pool has connections, others are served, and too many are refused."""
    node = processes.node(SCALABLE_OPERATION_WAIT_SECONDS="8", SCALABLE_EXECUTOR_THREADS="2")

    async def scenario() -> list[int]:
        async with httpx.AsyncClient(
            base_url=node.url,
            headers=node.headers,
            timeout=40,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        ) as client:
            await client.put(PATH)
            waiting = [asyncio.create_task(client.post(f"{PATH}/split/0")) for _ in range(70)]
            refused = await next(asyncio.as_completed(waiting))
            assert refused.status_code == 429
            assert refused.headers["Retry-After"]
            assert (await asyncio.wait_for(client.get(PATH), 4)).status_code == 200
            return [answer.status_code for answer in await asyncio.gather(*waiting)]

    statuses = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert statuses.count(429) == 6
    assert statuses.count(202) == 64


def test_requests_that_wait_for_a_lock_leave_connections_to_others(processes: ProcessFactory) -> None:
    node = processes.node(
        SCALABLE_EXECUTOR_THREADS="1", SCALABLE_REQUEST_CONNECTIONS="4", SCALABLE_LOCK_TIMEOUT_MS="60000"
    )
    with client_of(node) as client, ThreadPoolExecutor(3) as threads:
        client.put(PATH)
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM scalable_topic FOR UPDATE")
            waiting = [threads.submit(client.put, f"{PATH}/properties", json={}) for _ in range(3)]
            until_somebody_waits_for_a_lock(count=3)
            assert client.get(PATH).status_code == 200
        assert {each.result().status_code for each in waiting} == {204}


def test_a_large_body_is_refused_before_it_is_taken_in(admin: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(12):
            yield b" " * (1024 * 1024)

    answer = admin.put(OTHER, content=endless(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "message_too_large")
    assert admin.get(OTHER).status_code == 404


def test_an_announced_large_body_is_refused_at_once(live_node: LiveNode) -> None:
    async def scenario() -> bytes:
        host, port = live_node.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"PUT {OTHER} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {2**40}\r\n\r\n"
        writer.write(head.encode())
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        return line

    assert asyncio.run(scenario()).split()[1] == b"413"
