"""The DAG watch over real sockets of real nodes."""

import asyncio

import httpx
import pytest

from scalable.wire.frames import Snapshot, Welcome
from tests.api.watchers import watching
from tests.processes import LiveNode, ProcessFactory

TOPIC = "public/default/watched"
PATH = f"/admin/v2/scalable/{TOPIC}"
LIMIT_SECONDS = 20


@pytest.fixture
def admin(live_node: LiveNode) -> httpx.Client:
    return httpx.Client(base_url=live_node.url, headers=live_node.headers, timeout=40, trust_env=False)


async def test_snapshot_then_a_delta_per_split(
    live_node: LiveNode, admin: httpx.Client, celery_worker_process: object
) -> None:
    assert admin.put(PATH).status_code == 204
    async with asyncio.timeout(LIMIT_SECONDS), watching(live_node, TOPIC) as watcher:
        assert isinstance(await watcher.receive(), Welcome)
        first = await watcher.receive()
        assert isinstance(first, Snapshot)
        answer = await asyncio.to_thread(admin.post, f"{PATH}/split/0")
        assert answer.status_code == 204, answer.text
        topology = await watcher.until_epoch(1)
        assert [segment.segmentId for segment in topology.active] == [1, 2]
