"""What every data plane port promises of making, sealing and removing stores."""

import pytest

from scalable.domain.errors import (
    LeaseLost,
    SegmentStoreMissing,
    SegmentTerminated,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import STORES_AT_ONCE, Fence, NewStore, SegmentKey, SegmentPort
from tests.segments.samples import (
    batch,
    fresh_key,
    new_store,
    sequences,
    stored,
    unnumbered,
)


class StoreSuite:
    """Making, sealing and removing stores."""

    def test_create_leaves_what_is_there_and_adds_what_is_missing(self, port: SegmentPort) -> None:
        key = new_store(port, "a")
        port.append(key, [batch(0, 3)], producer="p")
        port.acknowledge(key, subscription="a", generation=0, position=2)
        port.create(key, hash_range=FULL_RANGE, subscriptions=["a", "b"], fence=None)
        assert [(cursor.subscription, cursor.position) for cursor in port.cursors(key)] == [
            ("a", 2),
            ("b", 0),
        ]
        assert sequences(port, key) == [0, 1, 2]

    def test_terminate_seals_for_ever_and_may_be_repeated(self, port: SegmentPort) -> None:
        key = new_store(port)
        port.append(key, [batch(0, 3)], producer="p")
        assert [port.terminate(key, fence=None), port.terminate(key, fence=None)] == [3, 3]
        for producer, payload in [("p", batch(3, 4)), ("p", batch(0, 3)), (None, unnumbered(1))]:
            with pytest.raises(SegmentTerminated):
                port.append(key, [payload], producer=producer)
        assert port.stats(key).terminated
        page = port.read(key, offset=0, max_bytes=1, max_batches=1)
        assert page.at_end

    def test_delete_removes_everything_and_may_be_repeated(self, port: SegmentPort) -> None:
        key, other = new_store(port, "a"), new_store(port, "a")
        port.append(key, [batch(0, 3)], producer="p")
        for _ in range(2):
            port.delete(key)
        assert port.keys(incarnation=key.incarnation) == []
        assert list(port.keys(incarnation=other.incarnation)) == [other]
        assert {key, other} & set(port.keys()) == {other}
        port.create(key, hash_range=FULL_RANGE, subscriptions=[], fence=None)
        assert port.cursors(key) == []
        assert stored(port, key) == []
        assert port.producer_marks(key, producer="p") == []

    def test_many_stores_are_made_at_once_and_what_is_there_stays(self, port: SegmentPort) -> None:
        key = new_store(port, "a")
        port.append(key, [batch(0, 3)], producer="p")
        port.acknowledge(key, subscription="a", generation=0, position=2)
        port.trim(key, before_offset=3, max_batches=1)
        stores = [NewStore(number, FULL_RANGE, ["a", "b"]) for number in reversed(range(STORES_AT_ONCE))]
        for _ in range(2):
            port.create_all(incarnation=key.incarnation, stores=stores)
        made = [SegmentKey(key.incarnation, number) for number in range(STORES_AT_ONCE)]
        assert list(port.keys(incarnation=key.incarnation)) == made
        found = {each: [(at.subscription, at.position) for at in port.cursors(each)] for each in made}
        assert found.pop(key) == [("a", 2), ("b", 3)]
        assert all(cursors == [("a", 0), ("b", 0)] for cursors in found.values())
        port.append(made[-1], [batch(0, 3)], producer="p")
        assert sequences(port, made[-1]) == [0, 1, 2]

    def test_many_stores_are_deleted_at_once_with_all_that_is_in_them(self, port: SegmentPort) -> None:
        key, other = new_store(port, "a"), new_store(port, "a")
        stores = [NewStore(number, FULL_RANGE, ["a"]) for number in range(4)]
        port.create_all(incarnation=key.incarnation, stores=stores)
        for number in range(4):
            port.append(SegmentKey(key.incarnation, number), [batch(0, 3)], producer="p")
        for _ in range(2):
            port.delete_all(incarnation=key.incarnation, segment_ids=[2, 0, 77])
        kept = [SegmentKey(key.incarnation, number) for number in (1, 3)]
        assert list(port.keys(incarnation=key.incarnation)) == kept
        assert list(port.keys(incarnation=other.incarnation)) == [other]
        assert [sequences(port, each) for each in kept] == [[0, 1, 2]] * 2
        port.create_all(incarnation=key.incarnation, stores=[NewStore(2, FULL_RANGE, [])])
        again = SegmentKey(key.incarnation, 2)
        assert (port.cursors(again), stored(port, again)) == ([], [])
        assert port.producer_marks(again, producer="p") == []

    def test_nothing_to_make_or_delete_is_fine(self, port: SegmentPort) -> None:
        key = new_store(port)
        port.create_all(incarnation=key.incarnation, stores=[])
        port.delete_all(incarnation=key.incarnation, segment_ids=[])
        assert list(port.keys(incarnation=key.incarnation)) == [key]

    def test_a_missing_store_is_told_by_name(self, port: SegmentPort) -> None:
        key = fresh_key()
        for ask in (
            lambda: port.append(key, [batch(0, 1)], producer="p"),
            lambda: port.read(key, offset=0, max_bytes=1, max_batches=1),
            lambda: port.terminate(key, fence=None),
            lambda: port.stats(key),
            lambda: port.cursors(key),
            lambda: port.create_cursor(key, subscription="s", position=None),
            lambda: port.trim(key, before_offset=1, max_batches=1),
            lambda: port.inherit_producer_marks([], key, fence=None),
        ):
            with pytest.raises(SegmentStoreMissing):
                ask()
        port.delete_cursor(key, subscription="s")

    def test_a_runner_with_an_older_token_changes_nothing(self, port: SegmentPort) -> None:
        key, parent = new_store(port, "a"), new_store(port)
        port.terminate(parent, fence=None)
        port.create(key, hash_range=FULL_RANGE, subscriptions=[], fence=Fence("op", 5))
        for ask in (
            lambda: port.create(key, hash_range=FULL_RANGE, subscriptions=["late"], fence=Fence("op", 4)),
            lambda: port.terminate(key, fence=Fence("op", 4)),
            lambda: port.inherit_producer_marks([parent], key, fence=Fence("op", 4)),
        ):
            with pytest.raises(LeaseLost):
                ask()
        assert [cursor.subscription for cursor in port.cursors(key)] == ["a"]
        port.append(key, [batch(0, 1)], producer="p")
        port.terminate(key, fence=Fence("another operation", 1))
        assert port.terminate(key, fence=Fence("op", 5)) == 1
        assert port.terminate(key, fence=Fence("op", 6)) == 1
        with pytest.raises(LeaseLost):
            port.terminate(key, fence=Fence("op", 5))
