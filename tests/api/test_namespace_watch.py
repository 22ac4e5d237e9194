"""The namespace watch over real sockets of real nodes; the test itself commits the changes."""

from launch.sandbox import LiveNode
from scalable.domain.topic_list import hash_of
from tests.api.list_watchers import create, delete, list_socket, listing
from tests.api.peers import ask

SPACE = "public/default"


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
