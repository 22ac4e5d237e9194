"""Topics with very many segments go many stores at a time, and what stops half-way is finished."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scalable.domain.errors import TopicNotFound
from scalable.segments import statements
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.embedded_tables import Row
from scalable.segments.memory import MemorySegments
from scalable.segments.port import STORES_AT_ONCE, NewStore
from scalable.segments.registry import use_port
from scalable.services import sweeping, topics
from tests.topology import ACTOR, make_topic, store_ids, topic_name

pytestmark = pytest.mark.django_db

MANY = 2 * STORES_AT_ONCE + 1


class CountingSegments(EmbeddedSegments):
    """The embedded data plane, counting its statements."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def _execute(self, statement: str, values: Mapping[str, object]) -> psycopg.Cursor[Row]:
        self.asked.append(statement)
        return super()._execute(statement, values)


class DyingSegments(MemorySegments):
    """A data plane outside the metadata database that ends after the first stores as long as it is to."""

    dies = True

    def create_all(self, *, incarnation: int, stores: Sequence[NewStore]) -> None:
        super().create_all(incarnation=incarnation, stores=stores)
        if self.dies:
            raise ConnectionError

    def delete_all(self, *, incarnation: int, segment_ids: Sequence[int]) -> None:
        super().delete_all(incarnation=incarnation, segment_ids=segment_ids)
        if self.dies:
            raise ConnectionError


@pytest.fixture
def counting() -> Iterator[CountingSegments]:
    with use_port(CountingSegments()) as port:
        assert isinstance(port, CountingSegments)
        yield port


@pytest.fixture
def dying() -> Iterator[DyingSegments]:
    with use_port(DyingSegments()) as port:
        assert isinstance(port, DyingSegments)
        yield port


def lines_of(topic: topics.TopicView, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Give what was logged of a topic."""
    return [each for each in caplog.records if each.getMessage().endswith(f"topic {topic.incarnation}")]


def test_stores_are_made_and_deleted_in_few_statements(counting: CountingSegments) -> None:
    with CaptureQueriesContext(connection) as made:
        topic = make_topic("many", segments=MANY)
    assert counting.asked == [statements.CREATE_ALL] * 3
    assert store_ids(topic) == set(range(MANY))
    counting.asked.clear()
    with CaptureQueriesContext(connection) as deleted:
        topics.delete_topic(name=topic.name, actor=ACTOR)
    assert counting.asked == [statements.KEYS, *[statements.DELETE_ALL] * 3]
    assert store_ids(topic) == set()
    assert max(len(made), len(deleted)) <= 40


def test_what_is_told_of_a_new_topic_is_what_was_stored() -> None:
    topic = make_topic("stored", segments=5, owner="me")
    assert topics.get_topic(name=topic.name) == topic


@pytest.mark.slow
def test_a_topic_has_a_segment_for_each_hash_at_the_most() -> None:
    topic = make_topic("whole", segments=65_536)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as at commit
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    assert len(store_ids(topic)) == len(topics.get_topic(name=topic.name).layout.active) == 65_536
    topics.delete_topic(name=topic.name, actor=ACTOR)
    assert store_ids(topic) == set()


def test_a_half_made_topic_is_healed_with_one_line(
    dying: DyingSegments, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectionError):
        make_topic("half", segments=MANY)
    topic = topics.get_topic(name=topic_name("half"))
    assert store_ids(topic) == set(range(STORES_AT_ONCE))
    dying.dies = False
    _, healed = sweeping.sweep_stores()
    assert sum(key.incarnation == topic.incarnation for key in healed) == MANY - STORES_AT_ONCE
    assert store_ids(topic) == set(range(MANY))
    (line,) = lines_of(topic, caplog)
    assert line.getMessage() == f"Made {MANY - STORES_AT_ONCE} missing stores of topic {topic.incarnation}"


def test_a_half_deleted_topic_is_finished_with_one_line_and_no_warning(
    dying: DyingSegments, caplog: pytest.LogCaptureFixture
) -> None:
    dying.dies = False
    topic, kept = make_topic("half", segments=MANY), make_topic("kept", segments=3)
    dying.dies = True
    with pytest.raises(ConnectionError):
        topics.delete_topic(name=topic.name, actor=ACTOR)
    with pytest.raises(TopicNotFound):
        topics.get_topic(name=topic.name)
    assert store_ids(topic) == set(range(STORES_AT_ONCE, MANY))
    dying.dies = False
    with caplog.at_level(logging.INFO):
        orphans, _ = sweeping.sweep_stores()
    assert [key.segment_id for key in orphans] == list(range(STORES_AT_ONCE, MANY))
    assert (store_ids(topic), store_ids(kept)) == (set(), {0, 1, 2})
    (line,) = lines_of(topic, caplog)
    assert line.levelno == logging.INFO
    assert line.getMessage() == f"Deleted {len(orphans)} orphaned stores of topic {topic.incarnation}"
