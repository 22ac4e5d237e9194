"""What every data plane port promises of cursors that many consumers share."""

from functools import partial
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.domain.errors import (
    CursorSought,
    GenerationSuperseded,
    PositionInvalid,
    SegmentStoreMissing,
    SubscriptionNotFound,
)
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import ClaimResult, SegmentKey, SegmentPort
from scalable.wire.batch import decode_batch
from tests.segments.claim_model import HOUR, check_claims
from tests.segments.samples import batch, delayed, fresh_key, in_threads, incarnation_of, new_store


def claim(
    port: SegmentPort,
    key: SegmentKey,
    *,
    session: str = "x",
    messages: int = 1_000,
    max_bytes: int = 10**9,
    lease: float = HOUR,
) -> ClaimResult:
    """Claim for a session of the consumer `c`."""
    return port.claim(
        key,
        subscription="s",
        consumer="c",
        session=session,
        max_messages=messages,
        max_bytes=max_bytes,
        lease_seconds=lease,
    )


def ranges(result: ClaimResult) -> list[tuple[int, int, int]]:
    """Give what was claimed as (first, end, deliveries)."""
    return [
        (first, end, deliveries) for claimed in result.batches for first, end, deliveries in claimed.ranges
    ]


def ready(port: SegmentPort, number: int = 30, each: int = 10) -> SegmentKey:
    """Make a store with a cursor and messages in batches of ten."""
    key = new_store(port, "s")
    for first in range(0, number, each):
        port.append(key, [batch(first, first + each)], producer="p")
    return key


class ClaimSuite:
    """Claims, single acknowledgements, backlogs and offsets by time."""

    claim_histories = 60

    def test_histories_of_a_shared_cursor_are_those_of_its_messages(self, port: SegmentPort) -> None:
        @settings(max_examples=self.claim_histories, deadline=None, derandomize=True)
        @given(st.data())
        def history(data: st.DataObject) -> None:
            check_claims(port, data)

        history()

    def test_a_claim_keeps_to_its_limits_and_gives_whole_batches_to_read(self, port: SegmentPort) -> None:
        key = ready(port)
        result = claim(port, key, messages=14)
        assert ranges(result) == [(0, 10, 1), (10, 14, 1)]
        for claimed in result.batches:
            found = [record.sequence for record in decode_batch(claimed.payload)]
            assert found == list(range(claimed.base_offset, claimed.base_offset + claimed.count))
        assert ranges(claim(port, key, max_bytes=1)) == [(14, 20, 1)]
        assert ranges(claim(port, key, messages=0)) == [(20, 21, 1)]

    def test_at_most_one_session_gets_a_message(self, port: SegmentPort) -> None:
        key = ready(port, 240)
        start = Barrier(4)

        def consumer(session: str) -> list[int]:
            start.wait(60)
            got: list[int] = []
            while found := ranges(claim(port, key, session=session, messages=7)):
                got += [offset for first, end, _ in found for offset in range(first, end)]
                acknowledged = [(first, end) for first, end, _ in found]
                port.acknowledge_ranges(key, subscription="s", generation=None, ranges=acknowledged)
            return got

        got = in_threads([partial(consumer, name) for name in "wxyz"])
        assert sorted(offset for one in got for offset in one) == list(range(240))
        assert port.cursors(key)[0].position == 240

    def test_what_is_due_again_comes_before_what_is_new(self, port: SegmentPort) -> None:
        key = ready(port)
        assert ranges(claim(port, key, messages=6, lease=0)) == [(0, 6, 1)]
        assert ranges(claim(port, key, session="y", messages=8)) == [(0, 6, 2), (6, 8, 1)]
        port.return_claims(key, subscription="s", session="y", ranges=[(3, 4)], delay_seconds=0)
        port.return_claims(
            key, subscription="s", session="y", ranges=[(1, 2)], delay_seconds=0, count_delivery=False
        )
        port.return_claims(key, subscription="s", session="y", ranges=[(5, 6)], delay_seconds=HOUR)
        assert ranges(claim(port, key, session="z", messages=2)) == [(1, 2, 2), (3, 4, 3)]

    def test_what_is_left_of_a_part_is_found_though_more_is_due_after_it(self, port: SegmentPort) -> None:
        """Who has little room takes a part of what came back first; what came back later is no end."""
        key = ready(port, 10)
        claim(port, key, messages=5)
        claim(port, key, session="y", messages=5)
        port.return_claims(key, subscription="s", session="x", ranges=None)
        port.return_claims(key, subscription="s", session="y", ranges=None)
        found: list[int] = []
        while got := ranges(claim(port, key, session="z", messages=1)):
            found += [offset for first, end, _ in got for offset in range(first, end)]
        assert found == list(range(10))

    def test_only_the_session_that_has_a_claim_may_renew_or_return_it(self, port: SegmentPort) -> None:
        key = ready(port, 10)
        claim(port, key, messages=4)
        assert port.renew(key, subscription="s", session="y", lease_seconds=0) == 0
        assert port.return_claims(key, subscription="s", session="y", ranges=[(0, 4)]) == 0
        assert ranges(claim(port, key, session="y")) == [(4, 10, 1)]
        assert port.renew(key, subscription="s", session="x", lease_seconds=0, ranges=[(2, 9)]) == 2
        assert ranges(claim(port, key, session="y")) == [(2, 4, 2)]

    def test_an_acknowledgement_after_the_lease_is_taken(self, port: SegmentPort) -> None:
        key = ready(port, 10)
        claim(port, key, lease=0)
        for _ in range(2):
            port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(0, 9)])
        assert ranges(claim(port, key, session="y")) == [(9, 10, 2)]

    def test_a_delayed_batch_waits_and_lets_others_pass(self, port: SegmentPort) -> None:
        key = new_store(port, "s")
        past = batch(4, 6, deliver_at_ms=1)
        port.append(key, [delayed(0, 2), batch(2, 4), past, delayed(6, 9)], producer="p")
        port.terminate(key, fence=None)
        result = claim(port, key)
        assert ranges(result) == [(2, 4, 1), (4, 6, 1)]
        assert (result.at_end, result.drained) == (True, False)
        state = port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(2, 6)])
        assert state.position == 0
        waiting = claim(port, key)
        assert waiting.batches == ()
        assert waiting.next_due_seconds is not None
        assert waiting.next_due_seconds > HOUR
        assert port.backlog(key, subscription="s") == 5
        port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(0, 2), (6, 9)])
        done = claim(port, key)
        assert (done.drained, done.next_due_seconds) == (True, None)

    def test_fences_and_impossible_ranges_are_refused_by_name_and_change_nothing(
        self, port: SegmentPort
    ) -> None:
        key = ready(port)
        port.own(key, subscription="s", generation=2)
        with pytest.raises(GenerationSuperseded):
            port.acknowledge_ranges(key, subscription="s", generation=1, ranges=[(0, 1)])
        for wrong in ((5, 5), (6, 5), (-1, 2), (29, 31)):
            with pytest.raises(PositionInvalid):
                port.acknowledge_ranges(key, subscription="s", generation=2, ranges=[(0, 1), wrong])
        with pytest.raises(SubscriptionNotFound):
            port.acknowledge_ranges(key, subscription="other", generation=None, ranges=[(0, 1)])
        life = incarnation_of(port, key)
        port.seek(key, subscription="s", position=0)
        with pytest.raises(CursorSought):
            port.acknowledge_ranges(key, subscription="s", generation=2, ranges=[(0, 1)], incarnation=life)
        assert port.cursors(key)[0].position == 0
        assert port.cursors(key)[0].acknowledged == ()

    def test_missing_cursors_and_stores_are_told_by_name(self, port: SegmentPort) -> None:
        for key, expected in ((new_store(port), SubscriptionNotFound), (fresh_key(), SegmentStoreMissing)):
            for ask in (
                lambda key=key: claim(port, key),
                lambda key=key: port.renew(key, subscription="s", session="x", lease_seconds=1),
                lambda key=key: port.return_claims(key, subscription="s", session="x", ranges=None),
                lambda key=key: port.skip(key, subscription="s", count=1),
                lambda key=key: port.skip_to(key, subscription="s", position=1),
                lambda key=key: port.backlog(key, subscription="s"),
            ):
                with pytest.raises(expected):
                    ask()
        with pytest.raises(SegmentStoreMissing):
            port.offset_at(fresh_key(), time_ms=0)
        with pytest.raises(ValueError, match="cannot skip"):
            port.skip(ready(port), subscription="s", count=-1)

    def test_an_acknowledgement_far_above_all_that_was_delivered_is_refused(self, port: SegmentPort) -> None:
        key = new_store(port, "s")
        for first in (0, 600):
            port.append(
                key, [batch(number, number + 1) for number in range(first, first + 600)], producer="p"
            )
        with pytest.raises(PositionInvalid):
            port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(1_199, 1_200)])
        port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(900, 901)])
        assert port.cursors(key)[0].acknowledged == ((900, 901),)
        assert port.backlog(key, subscription="s") == 1_199

    def test_a_trim_takes_claims_along(self, port: SegmentPort) -> None:
        key = ready(port)
        claim(port, key, messages=15)
        port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(3, 5), (12, 13)])
        port.trim(key, before_offset=10, max_batches=5)
        assert port.backlog(key, subscription="s") == 19
        assert ranges(claim(port, key, session="y")) == [(15, 20, 1), (20, 30, 1)]
        assert port.cursors(key)[0].position == 10

    def test_a_hundred_thousand_messages_are_shared_out(self, port: SegmentPort) -> None:
        key = new_store(port, "s")
        for first in range(0, 100_000, 5_000):
            port.append(key, [batch(first, first + 5_000)], producer="p")
        total = 0
        while found := ranges(claim(port, key, messages=3_000)):
            total += sum(end - first for first, end, _ in found)
            odd = [(first + 1, end) for first, end, _ in found if end - first > 1]
            port.acknowledge_ranges(key, subscription="s", generation=None, ranges=odd)
        assert total == 100_000
        assert 0 < port.backlog(key, subscription="s") < 100

    def test_offsets_by_time_never_fall(self, port: SegmentPort) -> None:
        key = ready(port, 200)
        created = port.stats(key).created_at_ms
        assert port.offset_at(key, time_ms=0) == port.offset_at(key, time_ms=created) == 0
        assert port.offset_at(key, time_ms=10**14) == 200
        found = [port.offset_at(key, time_ms=created + step) for step in range(0, 5_000, 100)]
        assert found == sorted(found)
        assert set(found) <= set(range(0, 201, 10))
        assert port.offsets_at(incarnation=key.incarnation, time_ms=10**14) == {0: 200}

    def test_backlogs_of_a_topic_name_every_cursor(self, port: SegmentPort) -> None:
        key = new_store(port, "s", "s/8000-ffff", "other")
        port.append(key, [batch(0, 10)], producer="p")
        port.acknowledge(key, subscription="other", generation=0, position=4)
        port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(1, 3)])
        found = {
            entry.cursor: (entry.position, entry.acknowledged, entry.backlog)
            for entry in port.backlogs(incarnation=key.incarnation)
        }
        assert found == {"other": (4, 0, 6), "s": (0, 2, 8), "s/8000-ffff": (0, 0, 10)}
        own = port.backlogs(incarnation=key.incarnation, subscription="s")
        assert [(entry.segment_id, entry.cursor) for entry in own] == [(0, "s"), (0, "s/8000-ffff")]
        assert port.backlogs(incarnation=fresh_key().incarnation) == []

    def test_usage_tells_what_cursors_have_before_them_and_what_is_out(self, port: SegmentPort) -> None:
        key = new_store(port, "s", "s/8000-ffff", "other")
        batches = [batch(first, first + 10) for first in (0, 10, 20)]
        port.append(key, batches, producer="p")
        sizes = [len(each) for each in batches]
        port.acknowledge(key, subscription="other", generation=0, position=14)
        port.acknowledge(key, subscription="s/8000-ffff", generation=0, position=30)
        claim(port, key, messages=7)
        claim(port, key, messages=5, session="y", lease=-HOUR)  # over: nobody has these
        found = {each.cursor: each[2:] for each in port.usage(incarnation=key.incarnation)}
        assert found == {
            "s": (0, sum(sizes), 7),
            "other": (10, sum(sizes[1:]), 0),
            "s/8000-ffff": (20, sizes[2], 0),
        }
        own = port.usage(incarnation=key.incarnation, subscription="s")
        assert [(each.segment_id, each.cursor) for each in own] == [(0, "s"), (0, "s/8000-ffff")]
        assert port.sizes(incarnation=key.incarnation) == {0: sum(sizes)}
        port.trim(key, before_offset=10, max_batches=10)
        (kept,) = {each[2:4] for each in port.usage(incarnation=key.incarnation) if each.cursor == "s"}
        assert kept == (10, sum(sizes[1:]))
        assert port.sizes(incarnation=key.incarnation) == {0: sum(sizes[1:])}

    def test_a_store_without_messages_uses_nothing(self, port: SegmentPort) -> None:
        key = new_store(port, "s")
        assert [each[2:] for each in port.usage(incarnation=key.incarnation)] == [(0, 0, 0)]
        assert port.sizes(incarnation=key.incarnation) == {0: 0}
        assert port.last_sequences(incarnation=key.incarnation, limit=10) == {}

    def test_producers_are_known_by_their_last_sequence_after_a_seal(self, port: SegmentPort) -> None:
        key = new_store(port)
        port.append(key, [batch(0, 10)], producer="a")
        port.append(key, [batch(0, 5)], producer="b")
        port.append(key, [batch(0, 3)], producer=None)
        child = SegmentKey(key.incarnation, 1)
        port.create(child, hash_range=FULL_RANGE, subscriptions=(), fence=None)
        port.terminate(key, fence=None)
        port.inherit_producer_marks([key], child, fence=None)
        port.append(child, [batch(5, 25)], producer="b")
        assert port.last_sequences(incarnation=key.incarnation, limit=10) == {"a": 9, "b": 24}
        assert port.last_sequences(incarnation=key.incarnation, limit=1) == {"a": 9}

    def test_many_generations_are_raised_at_once(self, port: SegmentPort) -> None:
        key = new_store(port, "s", "other")
        port.own_all(
            incarnation=key.incarnation,
            generations=[(0, "s", 3), (0, "gone", 4), (7, "s", 5), (0, "other", 1)],
        )
        port.own_all(incarnation=key.incarnation, generations=[(0, "s", 2)])
        port.own_all(incarnation=key.incarnation, generations=[])
        assert {each.subscription: each.generation for each in port.cursors(key)} == {"s": 3, "other": 1}
