"""A watch through a proxy that serves the node below a path of its own and cuts what is idle."""

import asyncio

from uvicorn import Config

from launch.sandbox import ProcessFactory
from scalable.client import Admin, Endpoint, TopologyWatch
from scalable.domain.names import TopicName
from tests.api.peers import ask
from tests.api.watchers import create, split
from tests.client.proxy import Relay

NAME = TopicName("public", "default", "proxied")
PREFIX = "/pulsar/scalable"
PROXY_IDLE_SECONDS = 60
SIGNS_OF_LIFE = 8


class BehindAPath(Relay):
    """Serves the node below a path, which the node is not told."""

    def __init__(self, target_url: str) -> None:
        super().__init__(target_url)
        self._awaited = 0
        self._came = asyncio.Event()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        if not answers:
            method, path, version = (await source.readline()).split(b" ")
            assert path.startswith(f"{PREFIX}/".encode()), path
            sink.write(b" ".join((method, path.removeprefix(PREFIX.encode()), version)))
        await super()._copy(source, sink, answers=answers)

    def passed(self, data: bytes, *, answers: bool) -> None:
        self._awaited -= answers
        if not self._awaited:
            self._came.set()

    async def came(self, count: int) -> None:
        """Wait until the node has sent something so many times more."""
        self._awaited, self._came = count, asyncio.Event()
        async with asyncio.timeout(60):
            await self._came.wait()


async def test_a_silent_watch_is_kept_open_and_tells_of_what_comes(processes: ProcessFactory) -> None:
    node = processes.node(UVICORN_WS_PING_INTERVAL="0.2")
    await ask(create, NAME)
    async with BehindAPath(node.url) as proxy:
        endpoint = Endpoint(proxy.url + PREFIX, node.admin_token)
        watch = TopologyWatch(endpoint, NAME, client="test")
        await watch.start()
        await proxy.came(SIGNS_OF_LIFE)
        await ask(split, NAME, 0)
        await watch.wait_for(lambda seen: seen.epoch == 1, 60)
        await watch.close()
        assert proxy.connections == 1
        with Admin(proxy.url + PREFIX, node.admin_token) as admin:
            assert (await asyncio.to_thread(admin.get_topic, NAME))["epoch"] == 1


def test_a_node_pings_more_often_than_proxies_lose_patience() -> None:
    interval_seconds = Config("scalable.asgi:application").ws_ping_interval
    assert interval_seconds is not None
    assert interval_seconds < PROXY_IDLE_SECONDS / 2
