"""The segment log in PostgreSQL, in the metadata database and in a second one, keeps what ports promise."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

import pytest
from django.db import connections, transaction

from scalable.domain.errors import GenerationSuperseded, SegmentTerminated
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.port import NewStore, ReadResult, SegmentKey, SegmentPort
from scalable.segments.registry import EXTERNAL_ALIAS
from scalable.segments.schema import SQL, install_schema, remove_schema
from tests.locks import until_somebody_waits_for_a_lock
from tests.segments.samples import batch, fresh_key, in_threads, new_store, sequences
from tests.segments.suite import SegmentSuite


class TestMetadataDatabase(SegmentSuite):
    @pytest.fixture
    def port(self, embedded_port: EmbeddedSegments) -> SegmentPort:
        return embedded_port


class TestSecondDatabase(SegmentSuite):
    @pytest.fixture
    def port(self, external_port: EmbeddedSegments) -> SegmentPort:
        return external_port


def test_effects_join_the_callers_transaction(embedded_port: EmbeddedSegments) -> None:
    key = new_store(embedded_port)
    assert embedded_port.transactional
    with transaction.atomic():
        embedded_port.append(key, [batch(0, 3)], producer="p")
        embedded_port.terminate(key, fence=None)
        transaction.set_rollback(True)
    assert embedded_port.append(key, [batch(0, 3)], producer="p")[0].duplicate is False
    assert sequences(embedded_port, key) == [0, 1, 2]


def test_a_refusal_leaves_the_callers_transaction_usable(embedded_port: EmbeddedSegments) -> None:
    key, other = new_store(embedded_port), new_store(embedded_port)
    embedded_port.terminate(key, fence=None)
    with transaction.atomic():
        with pytest.raises(SegmentTerminated):
            embedded_port.append(key, [batch(0, 1)], producer="p")
        embedded_port.append(other, [batch(0, 1)], producer="p")
    assert sequences(embedded_port, other) == [0]


def test_effects_on_a_second_database_are_their_own_transactions(external_port: EmbeddedSegments) -> None:
    key = new_store(external_port)
    assert not external_port.transactional
    external_port.append(key, [batch(0, 1)], producer="p")
    assert in_threads([lambda: sequences(external_port, key)]) == [[0]]


@pytest.mark.parametrize(("commits", "offset"), [(True, 3), (False, 0)])
def test_nothing_is_read_past_an_append_that_is_not_settled(
    embedded_port: EmbeddedSegments, commits: bool, offset: int
) -> None:
    """A reader that jumped over an open transaction would never deliver what it commits."""
    key = new_store(embedded_port)
    stored, release = Event(), Event()

    def first() -> ReadResult:
        with transaction.atomic():
            embedded_port.append(key, [batch(0, 3)], producer="first")
            stored.set()
            release.wait(20)
            transaction.set_rollback(not commits)
        return embedded_port.read(key, offset=0, max_bytes=1, max_batches=9)

    def second() -> ReadResult:
        stored.wait(20)
        embedded_port.append(key, [batch(0, 2)], producer="second")
        return embedded_port.read(key, offset=offset, max_bytes=1, max_batches=9)

    def reader() -> ReadResult:
        stored.wait(20)
        until_somebody_waits_for_a_lock("default")
        page = embedded_port.read(key, offset=0, max_bytes=1, max_batches=9)
        release.set()
        return page

    _, after, before = in_threads([first, second, reader])
    assert (before.batches, before.end_offset) == ((), 0)
    assert [(entry.base_offset, entry.count) for entry in after.batches] == [(offset, 2)]


def test_the_schema_is_installed_once_and_can_be_removed(external_port: EmbeddedSegments) -> None:
    def install() -> None:
        install_schema(connections[EXTERNAL_ALIAS])

    remove_schema(connections[EXTERNAL_ALIAS])
    installers: list[Callable[[], None]] = [install] * 3
    in_threads(installers)
    with connections[EXTERNAL_ALIAS].cursor() as cursor:
        cursor.execute("SELECT version FROM segment_schema")
        versions = range(1, len(list(SQL.glob("[0-9]*.sql"))) + 1)
        assert cursor.fetchall() == [(version,) for version in versions]
    assert external_port.keys() == []


def test_a_seal_counts_the_append_that_it_waited_for(embedded_port: EmbeddedSegments) -> None:
    key = new_store(embedded_port)
    appended = Event()

    def appender() -> int:
        with transaction.atomic():
            embedded_port.append(key, [batch(0, 3)], producer="p")
            appended.set()
            until_somebody_waits_for_a_lock("default")
        return 0

    def sealer() -> int:
        appended.wait(20)
        return embedded_port.terminate(key, fence=None)

    assert in_threads([appender, sealer]) == [0, 3]


def test_an_acknowledgement_waits_for_a_new_owner_and_is_refused(embedded_port: EmbeddedSegments) -> None:
    key = new_store(embedded_port)
    embedded_port.create_cursor(key, subscription="s", position=None)
    embedded_port.append(key, [batch(0, 3)], producer="p")
    owned = Event()

    def new_owner() -> None:
        with transaction.atomic():
            embedded_port.own(key, subscription="s", generation=1)
            owned.set()
            until_somebody_waits_for_a_lock("default")

    def former_owner() -> None:
        owned.wait(20)
        with pytest.raises(GenerationSuperseded):
            embedded_port.acknowledge(key, subscription="s", generation=0, position=2)

    in_threads([new_owner, former_owner])
    assert embedded_port.cursors(key)[0].position == 0


def test_an_acknowledgement_counts_the_one_that_it_waited_for(embedded_port: EmbeddedSegments) -> None:
    key = new_store(embedded_port)
    embedded_port.create_cursor(key, subscription="s", position=None)
    embedded_port.append(key, [batch(0, 9)], producer="p")
    acknowledged = Event()

    def first() -> int:
        with transaction.atomic():
            state = embedded_port.acknowledge(key, subscription="s", generation=0, position=7)
            acknowledged.set()
            until_somebody_waits_for_a_lock("default")
        return state.position

    def second() -> int:
        acknowledged.wait(20)
        return embedded_port.acknowledge(key, subscription="s", generation=0, position=3).position

    assert in_threads([first, second]) == [7, 7]


@pytest.mark.parametrize("whole", [False, True], ids=["cursor", "store"])
def test_what_a_deletion_waited_for_leaves_no_row(embedded_port: EmbeddedSegments, whole: bool) -> None:
    key = new_store(embedded_port)
    embedded_port.create_cursor(key, subscription="s", position=None)
    embedded_port.append(key, [batch(0, 9)], producer="p")
    before = _rows_of_cursors()
    claimed = Event()

    def claimer() -> None:
        with transaction.atomic():
            _claim(embedded_port, key)
            embedded_port.acknowledge_ranges(key, subscription="s", generation=None, ranges=[(1, 2)])
            claimed.set()
            until_somebody_waits_for_a_lock("default")

    def deleter() -> None:
        claimed.wait(20)
        if whole:
            embedded_port.delete(key)
        else:
            embedded_port.delete_cursor(key, subscription="s")

    in_threads([claimer, deleter])
    assert _rows_of_cursors() == (before[0], before[1] - 1)


def test_those_who_make_and_delete_the_same_stores_in_any_order_wait_and_end(
    embedded_port: EmbeddedSegments,
) -> None:
    incarnation = fresh_key().incarnation
    stores = [NewStore(number, FULL_RANGE, ["s", "t"]) for number in range(200)]

    def make(order: Sequence[NewStore]) -> None:
        embedded_port.create_all(incarnation=incarnation, stores=order)

    def delete(order: Sequence[NewStore]) -> None:
        embedded_port.delete_all(incarnation=incarnation, segment_ids=[store.segment_id for store in order])

    for act in (make, delete):
        backwards = stores[::-1]
        in_threads([partial(act, order) for order in (stores, backwards, stores, backwards)])
        assert len(embedded_port.keys(incarnation=incarnation)) == (200 if act is make else 0)


def _claim(port: EmbeddedSegments, key: SegmentKey) -> None:
    port.claim(
        key,
        subscription="s",
        consumer="c",
        session="x",
        max_messages=5,
        max_bytes=10**6,
        lease_seconds=60,
    )


def _rows_of_cursors() -> tuple[int, int]:
    """Count what is pending, and the positions."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM segment_pending), (SELECT count(*) FROM segment_position)"
        )
        pending, positions = cursor.fetchone()
        return pending, positions


def test_what_the_first_version_of_the_schema_stored_can_be_shared(external_port: EmbeddedSegments) -> None:
    connection = connections[EXTERNAL_ALIAS]
    remove_schema(connection)
    install_schema(connection, up_to=1)
    key, payload = fresh_key(), batch(0, 3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT segment_create(%s, 0, 0, 65535, ARRAY['s'], NULL, NULL)", [key.incarnation])
        cursor.execute(
            "SELECT segment_append(%s, 0, 'p', '{3}', '{0}', '{65535}', '{0}', '{2}', ARRAY[%s], ARRAY[%s])",
            [key.incarnation, len(payload), payload],
        )
        cursor.execute(
            "SELECT segment_acknowledge(%s, 0, 's', 0, NULL, 1)",
            [key.incarnation],
        )
    install_schema(connection)
    created_ms = external_port.stats(key).created_at_ms
    assert external_port.offset_at(key, time_ms=created_ms) == 0
    assert external_port.offset_at(key, time_ms=created_ms + 1) == 3
    assert external_port.backlog(key, subscription="s") == 2
    result = external_port.claim(
        key,
        subscription="s",
        consumer="c",
        session="x",
        max_messages=9,
        max_bytes=10_000,
        lease_seconds=60,
    )
    assert [claimed.ranges for claimed in result.batches] == [((1, 3, 1),)]
    assert external_port.append(key, [payload], producer="p")[0].duplicate
