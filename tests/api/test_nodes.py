"""Several web nodes: who is alive and who leads, whoever is asked; and what a node does that cannot lead."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from django.db import connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from scalable.client.inbox import Inbox
from scalable.services.topics import TopicView
from scalable.store import leases
from scalable.wire.frames import Assignment, ErrorFrame, Register, Welcome
from tests.api.members import CONTROL, member
from tests.api.peers import ask, eventually, socket
from tests.api.test_sessions import paused
from tests.api.watchers import split, watching
from tests.client.proxy import Relay
from tests.processes import LiveNode, ProcessFactory
from tests.topology import make_topic

QUICK = {"SCALABLE_NODE_HEARTBEAT_SECONDS": "0.2", "SCALABLE_NODE_TIMEOUT_SECONDS": "2"}
PATIENT = {**QUICK, "SCALABLE_SESSION_GRACE_SECONDS": "600"}
NODES = "/admin/v2/nodes"


@pytest.fixture
def topic(processes: ProcessFactory) -> TopicView:
    """The topic `orders` with two segments."""
    return make_topic("orders", segments=2)


STARTED_MS = time.time() * 1000


def get(node: LiveNode, path: str) -> httpx.Response:
    return httpx.get(f"{node.url}{path}", headers=node.headers, timeout=30, trust_env=False)


async def nodes_as_told_by(node: LiveNode) -> dict[str, dict[str, Any]]:
    answer = await asyncio.to_thread(get, node, NODES)
    assert answer.status_code == 200
    body = answer.json()
    assert body["total"] == len(body["nodes"])
    return {one["url"]: one for one in body["nodes"]}


async def led_by(url: str, *, asked: LiveNode) -> dict[str, int]:
    """The topics that the node at an address leads, with the term."""
    node_id = (await nodes_as_told_by(asked))[url]["nodeId"]
    answer = await asyncio.to_thread(get, asked, f"{NODES}/{node_id}/topics")
    for one in answer.json()["topics"]:
        assert STARTED_MS <= one["sinceMs"] <= time.time() * 1000 + 1_000, "since this run of the tests"
    return {one["topic"]: one["term"] for one in answer.json()["topics"]}


async def leading_url(topic: TopicView) -> str | None:
    """Where the living leader is, as written down."""
    lease = await ask(leases.read, topic.incarnation, timeout_seconds=2)
    return lease.url if lease.alive else None


async def is_led_by(node: LiveNode, topic: TopicView) -> bool:
    return await leading_url(topic) == node.url


async def test_any_node_tells_who_is_alive_and_who_leads_what(
    processes: ProcessFactory, topic: TopicView
) -> None:
    first, second = processes.node(**PATIENT), processes.node(**PATIENT)
    async with member(first, "a"):
        for asked in (first, second):
            told = await nodes_as_told_by(asked)
            assert list(told) == [first.url, second.url]
            assert all(one["alive"] and one["heartbeatAgeMs"] < 2_000 for one in told.values())
            assert [one["topicsLed"] for one in told.values()] == [1, 0]
            assert await led_by(first.url, asked=asked) == {str(topic.name): 1}
            assert await led_by(second.url, asked=asked) == {}


async def test_a_killed_nodes_topics_are_taken_over_by_themselves(
    processes: ProcessFactory, topic: TopicView
) -> None:
    first, second = processes.node(**PATIENT), processes.node(**PATIENT)
    async with member(first, "a"):
        first.process.send_signal(signal.SIGKILL)
    await eventually(lambda: is_led_by(second, topic))
    told = await nodes_as_told_by(second)
    assert not told[first.url]["alive"]
    assert (told[first.url]["topicsLed"], told[second.url]["topicsLed"]) == (0, 1)
    assert await led_by(second.url, asked=second) == {str(topic.name): 2}


def test_what_is_no_node_and_pages_past_the_bounds_are_refused(live_node: LiveNode) -> None:
    for node_id in ("no-uuid", "00000000-0000-4000-8000-000000000000"):
        refused = get(live_node, f"{NODES}/{node_id}/topics")
        assert (refused.status_code, refused.json()["code"]) == (404, "node_not_found")
    for query in ("limit=0", "limit=1001", "offset=-1", "limit=x"):
        refused = get(live_node, f"{NODES}?{query}")
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_parameter"), query
    assert get(live_node, f"{NODES}?offset=1").json()["nodes"] == []
    assert httpx.get(f"{live_node.url}{NODES}", trust_env=False).status_code == 401


async def test_a_leader_that_slept_demotes_itself_though_everybody_is_still_connected(
    processes: ProcessFactory, topic: TopicView
) -> None:
    """The session is idle, so nothing but the node itself can find out; the watcher sees no term go back."""
    first, second = processes.node(**PATIENT), processes.node(**PATIENT)
    async with member(first, "a") as old, watching(first, topic.name) as watcher:
        await watcher.until(lambda topology: topology.controller_url == first.url)
        with paused(first):
            await eventually(lambda: is_led_by(second, topic))
        assert (await old.peer.wait_for(ErrorFrame)).code in {"term_superseded", "not_leader"}
        assert await old.peer.close_code() in {4409, 4421}
        await watcher.until(lambda topology: topology.controller_url == second.url)
        terms = [delta.term for delta in watcher.deltas]
        assert terms == sorted(terms)
        assert await led_by(first.url, asked=first) == {}
        async with member(second, "a") as back:
            assert back.owned == old.owned


async def test_a_leader_that_slept_through_a_split_gives_up_all_its_topics_and_changes_nothing(
    processes: ProcessFactory, topic: TopicView
) -> None:
    """What it had sent before is known to be older, whenever it arrives; nobody sees an epoch go back."""
    other = await ask(make_topic, "returns", segments=1)
    first, second = processes.node(**PATIENT), processes.node(**PATIENT)
    both = {str(topic.name), str(other.name)}
    async with member(first, "a") as old, watching(first, topic.name) as watcher:
        async with socket(first, f"controller/{other.name.path}/s", consumer="a") as of_other:
            await of_other.expect(Welcome)
            await of_other.send(Register())
            await of_other.expect(Assignment)
            with paused(first):
                await eventually(lambda: is_led_by(second, topic))
                await eventually(lambda: is_led_by(second, other))
                await ask(split, topic.name, 0)
                async with member(second, "b") as b:
                    pass
            for peer in (old.peer, of_other):
                assert (await peer.wait_for(ErrorFrame)).code in {"term_superseded", "not_leader"}
                assert await peer.close_code() in {4409, 4421}
        await watcher.until(lambda known: known.epoch == 1 and known.controller_url == second.url)
        told = [(delta.epoch, delta.term) for delta in watcher.deltas]
        assert told == sorted(told)
    assert await led_by(first.url, asked=second) == {}
    assert await led_by(second.url, asked=first) == dict.fromkeys(both, 2)
    inbox = Inbox(topic.name)
    assert inbox.apply(b.assignment)
    assert not inbox.apply(old.assignment)


async def test_a_leader_whose_database_was_out_of_reach_past_its_lease_leads_no_more(
    processes: ProcessFactory, topic: TopicView, service_environment: dict[str, str]
) -> None:
    host = service_environment["DATABASE_URL"].rpartition("@")[2].partition("/")[0]
    async with Relay(f"http://{host}") as relay:
        through_relay = service_environment["DATABASE_URL"].replace(host, relay.url.removeprefix("http://"))
        first = await asyncio.to_thread(processes.node, **{**PATIENT, "DATABASE_URL": through_relay})
        second = await asyncio.to_thread(processes.node, **PATIENT)
        async with member(first, "a") as old:
            relay.hold()
            await eventually(lambda: is_led_by(second, topic))
            await eventually(lambda: is_ready(first, expected=503))
            relay.let_go()
            await eventually(lambda: is_ready(first, expected=200))
            assert (await old.peer.wait_for(ErrorFrame)).code in {"term_superseded", "not_leader"}
            assert await old.peer.close_code() in {4409, 4421}
        assert await led_by(first.url, asked=first) == {}
        async with member(second, "a") as a, member(second, "b") as b:
            await a.next_assignment()
            assert len(b.owned) + len(a.owned) == 2


async def is_ready(node: LiveNode, *, expected: int) -> bool:
    answer = await asyncio.to_thread(get, node, "/readyz")
    assert expected == 200 or "Retry-After" in answer.headers or answer.status_code == 200
    return answer.status_code == expected


def sessions() -> list[int]:
    """The database sessions that there are."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return [pid for (pid,) in cursor.fetchall()]


@contextmanager
def read_only_database(*, spared: list[int]) -> Iterator[None]:
    """Have every session that begins refuse writes, and end those that have begun, as a fail-over does."""
    name = connection.ops.quote_name(str(connection.settings_dict["NAME"]))
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> ALL(%s)",
            [spared],
        )
        try:
            yield
        finally:
            cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    # What this process's pool opened meanwhile was ended, or refuses writes; later tests would be given it.
    wrapper = connections["default"]
    wrapper.close()
    assert isinstance(wrapper, DatabaseWrapper)
    wrapper.close_pool()


def test_a_node_on_a_read_only_database_is_not_ready_and_mends_itself(processes: ProcessFactory) -> None:
    ours = sessions()
    node = processes.node(**QUICK)
    assert get(node, "/readyz").text.startswith("ready\ndatabase: ok\nnotices: ")
    with read_only_database(spared=ours):
        asyncio.run(eventually(lambda: is_ready(node, expected=503)))
        answer = get(node, "/readyz")
        assert answer.headers["Retry-After"] == "1"
        assert answer.text.startswith("not ready: its ")
        assert get(node, "/livez").status_code == 200
    asyncio.run(eventually(lambda: is_ready(node, expected=200)))
    put = httpx.put(
        f"{node.url}/admin/v2/scalable/public/default/after", headers=node.headers, trust_env=False
    )
    assert put.status_code == 204


def test_a_node_without_notices_says_so_and_works_on(processes: ProcessFactory) -> None:
    node = processes.node(REDIS_URL="redis://127.0.0.1:1/0", **QUICK)
    answer = get(node, "/readyz")
    assert (answer.status_code, "notices: not connected" in answer.text) == (200, True)


@contextmanager
def no_heartbeats() -> Iterator[None]:
    """Let no node write its row, and forget those that there are: nobody can lead."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse_nodes() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no heartbeats today'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER refuse_nodes BEFORE INSERT OR UPDATE ON scalable_node"
            " FOR EACH ROW EXECUTE FUNCTION refuse_nodes()"
        )
        cursor.execute("UPDATE scalable_controllerlease SET node_id = NULL")
        cursor.execute("DELETE FROM scalable_node")
        try:
            yield
        finally:
            cursor.execute("DROP FUNCTION refuse_nodes() CASCADE")


def test_with_no_node_able_to_lead_nobody_is_sent_in_circles(
    processes: ProcessFactory, topic: TopicView
) -> None:
    nodes = [processes.node(**QUICK), processes.node(**QUICK)]
    with no_heartbeats():
        for node in nodes:
            asyncio.run(_is_told_that_nobody_leads(node))
            answer = httpx.post(
                f"{node.url}/admin/v2/scalable/public/default/orders/split/{nodes.index(node)}",
                headers={**node.headers, "Prefer": "respond-async"},
                trust_env=False,
                follow_redirects=False,
            )
            assert answer.status_code == 202, "reshaping needs no leader, so no node sends anybody elsewhere"
    asyncio.run(_can_register(nodes[1]))


async def _is_told_that_nobody_leads(node: LiveNode) -> None:
    async with socket(node, CONTROL, consumer="a") as peer:
        await peer.expect(Welcome)
        await peer.send(Register())
        refused = await peer.expect(ErrorFrame)
        assert (refused.code, "url" in refused.fields) == ("no_leader", False)
        assert await peer.close_code() == 4503


async def _can_register(node: LiveNode) -> None:
    async def registers() -> bool:
        async with socket(node, CONTROL, consumer="a") as peer:
            await peer.expect(Welcome)
            await peer.send(Register())
            return not isinstance(await peer.receive(), ErrorFrame)

    assert await eventually(registers)
