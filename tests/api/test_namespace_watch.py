"""The namespace watch over real sockets of real nodes; the test itself commits the changes."""

import asyncio
from collections.abc import Mapping
from random import Random

import pytest
from django.db import connection, transaction
from pytest_django.fixtures import Settings

from launch.sandbox import LiveNode, ProcessFactory
from scalable.domain.access import Scope
from scalable.domain.errors import ScalableError
from scalable.domain.topic_list import hash_of
from scalable.services import grants, namespaces, topics
from scalable.services.access import mint_token
from scalable.wire.frames import PROTOCOL_VERSION, ErrorFrame, Hello, TopicsSnapshot, WatchTopics, encode
from tests.api.list_watchers import ACTOR, ListPeer, create, delete, list_socket, listing, name_in
from tests.api.peers import ask, raw_socket

SPACE = "public/default"
NEVER = "3600"
HEAL_SECONDS = 30.0
STEPS = 40


def tag(name: str, **properties: str) -> None:
    topics.set_properties(name=name_in(SPACE, name), properties=properties, actor=ACTOR)


async def test_a_list_and_then_what_changes(live_node: LiveNode) -> None:
    first = await ask(create, SPACE, "first")
    async with listing(live_node, SPACE) as watcher:
        assert watcher.names == {first}
        second = await ask(create, SPACE, "second")
        assert (await watcher.next_diff()).added == [second]
        await ask(delete, SPACE, "first")
        assert (await watcher.next_diff()).removed == [first]
        assert [frame.generation for frame in watcher.frames] == [1, 2, 3]


async def test_who_holds_the_list_hears_nothing_until_it_changes(live_node: LiveNode) -> None:
    first = await ask(create, SPACE, "first")
    async with list_socket(live_node, SPACE, known_hash=hash_of([first])) as watcher:
        assert await watcher.stays_silent(1.0)
        second = await ask(create, SPACE, "second")
        told = await watcher.next_diff()
        assert (told.generation, told.added) == (1, [second])


async def test_who_holds_another_list_is_told_all_of_it(live_node: LiveNode) -> None:
    first = await ask(create, SPACE, "first")
    async with list_socket(live_node, SPACE, known_hash=hash_of([])) as watcher:
        assert await watcher.snapshot() == {first}


async def test_filters_choose_and_properties_that_change_let_in_and_out(live_node: LiveNode) -> None:
    red = await ask(create, SPACE, "red", team="red", tier="1")
    other = await ask(create, SPACE, "other", team="red")
    async with listing(live_node, SPACE, filters={"team": "red", "tier": "1"}) as watcher:
        assert watcher.names == {red}
        await ask(tag, "other", team="red", tier="1", more="x")
        assert (await watcher.next_diff()).added == [other]
        await ask(tag, "red", team="red", tier="2")
        assert (await watcher.next_diff()).removed == [red]
        await ask(tag, "other", team="red", tier="1")  # it matches as before
        await ask(delete, SPACE, "other")
        assert (await watcher.next_diff()).removed == [other]


# What happens within one window; a transaction is one, however slow the machine is.


async def test_what_came_and_went_at_once_is_not_told(live_node: LiveNode) -> None:
    def come_and_go() -> str:
        with transaction.atomic():
            create(SPACE, "passing")
            delete(SPACE, "passing")
            return create(SPACE, "lasting")

    async with listing(live_node, SPACE) as watcher:
        lasting = await ask(come_and_go)
        told = await watcher.next_diff()
        assert (told.removed, told.added) == ([], [lasting])


async def test_what_went_and_came_again_is_told_as_both(live_node: LiveNode) -> None:
    first = await ask(create, SPACE, "first")

    def make_again() -> None:
        with transaction.atomic():
            delete(SPACE, "first")
            create(SPACE, "first")

    async with listing(live_node, SPACE) as watcher:
        await ask(make_again)
        told = await watcher.next_diff()
        assert (told.removed, told.added) == ([first], [first])
        text = encode(told)
        assert text.index('"removed"') < text.index('"added"')
        assert watcher.names == {first}


async def test_many_changes_at_once_are_one_push(live_node: LiveNode) -> None:
    def make_many() -> list[str]:
        with transaction.atomic():
            return [create(SPACE, f"t{number}") for number in range(20)]

    async with listing(live_node, SPACE) as watcher:
        names = await ask(make_many)
        assert (await watcher.next_diff()).added == sorted(names)


async def test_nothing_is_told_before_the_commit_or_of_what_was_rolled_back(live_node: LiveNode) -> None:
    release, loop = asyncio.Event(), asyncio.get_running_loop()

    def slow(commits: bool, name: str) -> None:
        with transaction.atomic():
            create(SPACE, name)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(HEAL_SECONDS)
            transaction.set_rollback(not commits)

    async with listing(live_node, SPACE) as watcher:
        both = [asyncio.create_task(ask(slow, commits, str(commits))) for commits in (True, False)]
        assert await watcher.stays_silent(1.0)
        release.set()
        await asyncio.gather(*both)
        assert (await watcher.next_diff()).added == [str(name_in(SPACE, "True"))]
        assert await watcher.stays_silent(1.0)


# Nodes and hints.


async def test_any_node_serves_the_watch(processes: ProcessFactory) -> None:
    nodes = [processes.node(), processes.node()]
    async with listing(nodes[0], SPACE) as one, listing(nodes[1], SPACE) as other:
        name = await ask(create, SPACE, "made")
        await one.until({name})
        await other.until({name})


async def test_a_lost_hint_heals_by_itself(live_node: LiveNode, settings: Settings) -> None:
    settings.SCALABLE_HINTS_ENABLED = False
    async with listing(live_node, SPACE) as watcher:
        name = await ask(create, SPACE, "made")
        await watcher.until({name})


# The ends of a session.


async def end_of(watcher: ListPeer) -> tuple[str, int]:
    """The code of the last error frame, and of the close."""
    error = await watcher.peer.wait_for(ErrorFrame)
    return error.code, await watcher.peer.close_code()


async def test_an_unknown_namespace(live_node: LiveNode) -> None:
    async with list_socket(live_node, "public/nowhere") as watcher:
        assert await end_of(watcher) == ("namespace_not_found", 4404)


async def test_a_deleted_namespace(live_node: LiveNode) -> None:
    await ask(namespaces.create_namespace, tenant="public", namespace="passing", actor=ACTOR)
    async with listing(live_node, "public/passing") as watcher:
        await ask(namespaces.delete_namespace, tenant="public", namespace="passing", actor=ACTOR)
        assert await end_of(watcher) == ("namespace_not_found", 4404)


async def test_frames_that_make_no_sense(live_node: LiveNode) -> None:
    for text in (
        encode(WatchTopics()),  # it watches already
        '{"type":"watch_topics","hash":"195271AE"}',
        '{"type":"watch_topics","hash":"195271a"}',
        '{"type":"watch_topics","filters":{"":"x"}}',
        '{"type":"watch_topics","filters":{"a":1}}',
        '{"type":"watch_topics","filters":["a=1"]}',
    ):
        async with listing(live_node, SPACE) as watcher:
            await watcher.peer.send_raw(text)
            assert await end_of(watcher) == ("frame_invalid", 4400), text


async def test_a_filter_is_bounded_as_a_whole(live_node: LiveNode) -> None:
    filters = {str(number): "é" * 2_047 for number in range(8)}  # 4,094 bytes each, and a name of 1
    async with listing(live_node, SPACE, filters={**filters, "more": "1234"}):
        pass  # it took its list
    async with list_socket(live_node, SPACE, filters={**filters, "more": "12345"}) as watcher:
        assert await end_of(watcher) == ("frame_invalid", 4400)


async def test_an_explicit_close(live_node: LiveNode) -> None:
    async with listing(live_node, SPACE) as watcher:
        await watcher.peer.send_raw('{"type":"close"}')
        assert await watcher.peer.close_code() == 1000


async def test_a_watch_without_a_hello(live_node: LiveNode) -> None:
    async with raw_socket(live_node, f"topics/{SPACE}") as peer:
        await peer.send(WatchTopics())
        assert (await peer.wait_for(ErrorFrame)).code == "hello_missing"
        await peer.connection.wait_closed()


async def test_who_may_look_at_one_topic_may_not_watch_them_all(live_node: LiveNode) -> None:
    topic = name_in(SPACE, "first")
    await ask(create, SPACE, "first")
    scope = Scope(topic.tenant, topic.namespace, topic.name)
    await ask(grants.grant, scope=scope, role="guest", actions=["lookup"], actor=ACTOR)
    with pytest.raises(Exception, match="403"):
        async with list_socket(live_node, SPACE, token=mint_token(role="guest")):
            pass


async def test_the_watch_ends_when_the_right_is_withdrawn(live_node: LiveNode) -> None:
    scope = Scope("public", "default")
    await ask(grants.grant, scope=scope, role="guest", actions=["lookup"], actor=ACTOR)
    async with list_socket(live_node, SPACE, token=mint_token(role="guest")) as watcher:
        await watcher.snapshot()
        await ask(grants.revoke, scope=scope, role="guest", actor=ACTOR)
        assert await end_of(watcher) == ("forbidden", 4403)


# All together.


FILTERS: tuple[Mapping[str, str], ...] = ({}, {"team": "red"}, {"team": "red", "tier": "1"}, {"tier": "9"})
NAMES = tuple(f"t{number}" for number in range(8))


def random_changes(random: Random, steps: int) -> None:
    """Create, delete and tag topics, some of it in one transaction."""
    done = 0
    while done < steps:
        together = random.choice((1, 1, 1, 3))
        with transaction.atomic():
            for _ in range(together):
                random_change(random)
        done += together


def random_change(random: Random) -> None:
    name = random.choice(NAMES)
    properties = {"team": random.choice(("red", "blue")), "tier": random.choice(("1", "2"))}
    try:
        match random.choice(("create", "create", "delete", "tag")):
            case "create":
                create(SPACE, name, **properties)
            case "delete":
                delete(SPACE, name)
            case _:
                tag(name, **properties)
    except ScalableError:  # it was there already, or was not
        return


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_list_and_its_changes_add_up_to_a_fresh_list(live_node: LiveNode, seed: int) -> None:
    random = Random(seed)
    await ask(random_changes, random, STEPS // 4)
    async with (
        listing(live_node, SPACE, filters=FILTERS[0]) as everything,
        listing(live_node, SPACE, filters=FILTERS[1]) as red,
        listing(live_node, SPACE, filters=FILTERS[2]) as first,
        listing(live_node, SPACE, filters=FILTERS[3]) as none,
    ):
        watchers = (everything, red, first, none)
        await ask(random_changes, random, STEPS)
        last = await ask(create, SPACE, "last", team="red", tier="1")
        for watcher, filters in zip(watchers, FILTERS, strict=True):
            async with listing(live_node, SPACE, filters=filters) as fresh:
                assert (last in fresh.names) == (filters != FILTERS[3])
                await watcher.until(set(fresh.names))


@pytest.mark.slow
async def test_a_list_of_100_000_topics_comes_in_frames_below_the_limit(live_node: LiveNode) -> None:
    await ask(make_rows, 100_000)
    async with raw_socket(live_node, f"topics/{SPACE}") as peer:
        await peer.send(Hello(protocol=PROTOCOL_VERSION))
        await peer.send(WatchTopics())
        watcher = ListPeer(peer)
        await watcher.next()
        async with asyncio.timeout(120):
            names = await watcher.snapshot()
        assert len(names) == 100_000
        assert len(watcher.frames) > 10
        assert all(
            isinstance(frame, TopicsSnapshot) and len(encode(frame)) < 1024 * 1024 for frame in watcher.frames
        )
        added = await ask(create, SPACE, "one-more")
        assert (await watcher.next_diff()).added == [added]
        known = hash_of(names)
    async with list_socket(live_node, SPACE, known_hash=known) as again:
        await ask(delete, SPACE, "one-more")
        assert (await again.next_diff()).removed == [added]  # and nothing before it


def make_rows(count: int) -> None:
    """Topics as rows alone, without the triggers that would take minutes; names of 200 characters."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            """
            INSERT INTO scalable_topic
                   (namespace_id, name, epoch, revision, next_segment_id, properties, created_at)
            SELECT namespace.id, 't' || lpad(number::text, 199, '0'), 0, 1, 1, '{}', now()
              FROM generate_series(1, %s) AS number, scalable_namespace AS namespace
             WHERE namespace.tenant = 'public' AND namespace.name = 'default'
            """,
            [count],
        )
