"""What every data plane port promises of acknowledgements and their fences."""

from threading import Barrier

import pytest

from scalable.domain.errors import (
    CursorSought,
    GenerationSuperseded,
    PositionInvalid,
    SubscriptionNotFound,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import CursorState, NewStore, SegmentKey, SegmentPort
from tests.segments.samples import (
    batch,
    in_threads,
    incarnation_of,
    new_store,
)


class CursorSuite:
    """Acknowledgements and their fences."""

    def _ready(self, port: SegmentPort) -> SegmentKey:
        key = new_store(port, "s")
        port.append(key, [batch(0, 10)], producer="p")
        return key

    def test_an_acknowledgement_moves_up_and_never_back(self, port: SegmentPort) -> None:
        key = self._ready(port)
        positions = [
            port.acknowledge(key, subscription="s", generation=0, position=position).position
            for position in (3, 3, 1, 10, 0)
        ]
        assert positions == [3, 3, 3, 10, 10]
        life = incarnation_of(port, key)
        assert port.cursor(key, subscription="s") == CursorState("s", 10, life, 0)

    def test_acknowledgements_of_another_generation_are_refused_by_name(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.own(key, subscription="s", generation=2)
        port.own(key, subscription="s", generation=1)
        for generation in (0, 1, 3):
            with pytest.raises(GenerationSuperseded) as caught:
                port.acknowledge(key, subscription="s", generation=generation, position=5)
            assert caught.value.current_generation == 2
        assert port.acknowledge(key, subscription="s", generation=2, position=5).position == 5
        with pytest.raises(GenerationSuperseded):
            port.acknowledge(key, subscription="s", generation=1, position=5)

    def test_positions_behind_the_end_and_unknown_cursors_are_refused(self, port: SegmentPort) -> None:
        key = self._ready(port)
        for position in (11, -1):
            with pytest.raises(PositionInvalid):
                port.acknowledge(key, subscription="s", generation=0, position=position)
        for ask in (
            lambda: port.acknowledge(key, subscription="other", generation=0, position=1),
            lambda: port.seek(key, subscription="other", position=1),
            lambda: port.own(key, subscription="other", generation=1),
        ):
            with pytest.raises(SubscriptionNotFound):
                ask()
        assert port.cursor(key, subscription="other") is None

    def test_acknowledgements_of_a_sealed_segment_are_taken(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.terminate(key, fence=None)
        assert port.acknowledge(key, subscription="s", generation=0, position=10).position == 10

    def test_a_seek_goes_both_ways_and_refuses_earlier_acknowledgements(self, port: SegmentPort) -> None:
        key = self._ready(port)
        life = incarnation_of(port, key)
        port.acknowledge(key, subscription="s", generation=0, position=8, incarnation=life)
        assert port.seek(key, subscription="s", position=2) == CursorState("s", 2, life + 1, 0)
        with pytest.raises(CursorSought) as caught:
            port.acknowledge(key, subscription="s", generation=0, position=9, incarnation=life)
        assert caught.value.current == life + 1
        state = port.acknowledge(key, subscription="s", generation=0, position=3, incarnation=life + 1)
        assert state.position == 3
        assert port.seek(key, subscription="s", position=10).position == 10
        port.trim(key, before_offset=10, max_batches=1)
        for position in (9, 11):
            with pytest.raises(PositionInvalid):
                port.seek(key, subscription="s", position=position)

    def test_no_cursor_takes_what_another_delivered_nor_one_of_its_name_before(
        self, port: SegmentPort
    ) -> None:
        key = self._ready(port)
        sibling, child = SegmentKey(key.incarnation, 1), SegmentKey(key.incarnation, 2)
        port.create(sibling, hash_range=FULL_RANGE, subscriptions=["s", "t"], fence=None)
        port.create_all(incarnation=key.incarnation, stores=[NewStore(2, FULL_RANGE, ["s", "t"])])
        lives = [each.incarnation for store in (sibling, child) for each in port.cursors(store)]
        for again in (self._made_again, self._made_again_with_its_store):
            lives += [incarnation_of(port, key), port.seek(key, subscription="s", position=0).incarnation]
            again(port, key)
            for incarnation in lives:
                with pytest.raises(CursorSought):
                    acknowledge_all(port, key, incarnation)
            assert port.backlog(key, subscription="s") == 10
            assert 0 < incarnation_of(port, key) < 2**53
        lives.append(incarnation_of(port, key))
        assert len(lives) == len(set(lives))
        acknowledge_all(port, key, lives[-1])

    def _made_again(self, port: SegmentPort, key: SegmentKey) -> None:
        port.delete_cursor(key, subscription="s")
        port.create_cursor(key, subscription="s", position=None)

    def _made_again_with_its_store(self, port: SegmentPort, key: SegmentKey) -> None:
        port.delete_all(incarnation=key.incarnation, segment_ids=[key.segment_id])
        port.create_all(incarnation=key.incarnation, stores=[NewStore(key.segment_id, FULL_RANGE, ["s"])])
        port.append(key, [batch(0, 10)], producer="p")

    def test_cursors_begin_where_told_and_are_removed(self, port: SegmentPort) -> None:
        key = self._ready(port)
        port.create_cursor(key, subscription="latest", position=10)
        port.create_cursor(key, subscription="latest", position=4)
        port.append(key, [batch(10, 11)], producer="p")
        port.trim(key, before_offset=10, max_batches=1)
        port.create_cursor(key, subscription="earliest", position=None)
        found = {cursor.subscription: cursor.position for cursor in port.cursors(key)}
        assert found == {"s": 0, "latest": 10, "earliest": 10}
        for _ in range(2):
            port.delete_cursor(key, subscription="s")
        assert port.cursor(key, subscription="s") is None

    def test_acknowledgements_and_a_new_owner_at_the_same_time(self, port: SegmentPort) -> None:
        """Once the generation has moved, no acknowledgement of the former owner moves the cursor."""
        key = self._ready(port)
        start = Barrier(3)

        def former_owner() -> int:
            start.wait(20)
            reached = 0
            for position in range(1, 10):
                try:
                    reached = port.acknowledge(
                        key, subscription="s", generation=0, position=position
                    ).position
                except GenerationSuperseded:
                    break
            return reached

        def new_owner() -> int:
            start.wait(20)
            port.own(key, subscription="s", generation=1)
            cursor = port.cursor(key, subscription="s")
            assert cursor is not None
            return cursor.position

        *reached, seen = in_threads([former_owner, former_owner, new_owner])
        final = port.cursor(key, subscription="s")
        assert final is not None
        assert final.position == seen == max(reached)


def acknowledge_all(port: SegmentPort, key: SegmentKey, incarnation: int) -> None:
    port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(0, 10)], incarnation=incarnation)
