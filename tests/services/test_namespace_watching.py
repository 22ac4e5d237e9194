"""Lists of topics and what changes them, as the database tells it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection, transaction

from scalable.domain.errors import NamespaceNotFound
from scalable.domain.names import TopicName
from scalable.services import namespace_watching, namespaces, topics
from scalable.services.namespace_watching import Changes, Position, TopicList
from scalable.store.topic_lists import KEPT_SECONDS

ACTOR = "test"
SPACE = "lists"
WAIT_SECONDS = 30


@pytest.fixture
def space(db: None) -> str:
    """A namespace of the test's own."""
    namespaces.create_namespace(tenant="public", namespace=SPACE, actor=ACTOR)
    return SPACE


def listed(**filters: str) -> TopicList:
    return namespace_watching.topic_list(tenant="public", namespace=SPACE, filters=filters)


def changed(since: Position) -> Changes:
    found = namespace_watching.changes_since(position=since)
    assert found is not None
    return found


def names(changes: Changes) -> set[str]:
    return {change.name for change in changes.changes}


def create(name: str, **properties: str) -> int:
    topic = topics.create_topic(name=TopicName("public", SPACE, name), properties=properties, actor=ACTOR)
    return topic.incarnation


def test_filters_are_exact_and_all_must_hold(space: str) -> None:
    red = create("red", team="red", tier="1")
    create("blue", team="blue", tier="1")
    create("bare")
    assert listed().topics.keys() == {"red", "blue", "bare"}
    assert listed(team="red").topics == {"red": red}
    assert listed(team="red", tier="1").topics == {"red": red}
    assert listed(tier="1").topics.keys() == {"red", "blue"}
    for filters in ({"team": "re"}, {"team": "Red"}, {"team": "red", "tier": "2"}, {"other": ""}):
        assert not listed(**filters).topics


def test_a_namespace_that_is_not_there(db: None) -> None:
    with pytest.raises(NamespaceNotFound):
        listed()


@pytest.mark.django_db(transaction=True)
def test_what_changed_since_a_look(space: str) -> None:
    kept, gone, tagged = create("kept"), create("gone"), create("tagged")
    position = listed().position
    assert not changed(position).changes
    topics.delete_topic(name=TopicName("public", SPACE, "gone"), actor=ACTOR)
    topics.set_properties(name=TopicName("public", SPACE, "tagged"), properties={"a": "1"}, actor=ACTOR)
    topics.set_auto_scale_policy(
        name=TopicName("public", SPACE, "kept"), override={"maxSegments": 7}, actor=ACTOR
    )
    made = create("made", b="2")
    found = changed(position)
    told = {change.name: (change.incarnation, dict(change.properties)) for change in found.changes}
    assert told == {"gone": (None, {}), "tagged": (tagged, {"a": "1"}), "made": (made, {"b": "2"})}
    assert not changed(found.position).changes
    assert kept != gone


@pytest.mark.django_db(transaction=True)
def test_properties_that_stay_the_same_are_no_change(space: str) -> None:
    create("tagged", a="1")
    position = listed().position
    topics.set_properties(name=TopicName("public", SPACE, "tagged"), properties={"a": "1"}, actor=ACTOR)
    assert not changed(position).changes


@contextmanager
def committing_later(name: str) -> Iterator[None]:
    """A topic that somebody else creates inside the block, and commits at its end."""
    created, release = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with transaction.atomic():
                create(name)
                created.set()
                assert release.wait(WAIT_SECONDS)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert created.wait(WAIT_SECONDS)
    try:
        yield
    finally:
        release.set()
        thread.join(WAIT_SECONDS)


@pytest.mark.django_db(transaction=True)
def test_what_began_before_a_look_and_commits_after_later_ones_is_found(space: str) -> None:
    with committing_later("slow"):
        position = listed().position
        create("quick")
        first = changed(position)
        assert names(first) == {"quick"}
        second = changed(first.position)
        assert not second.changes
    assert names(changed(second.position)) == {"slow"}


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_was_no_change(space: str) -> None:
    position = listed().position
    with transaction.atomic():
        create("never")
        transaction.set_rollback(True)
    assert not changed(position).changes


@pytest.mark.django_db(transaction=True)
def test_when_the_changes_can_no_longer_be_told(space: str) -> None:
    position = listed().position
    half = timedelta(seconds=KEPT_SECONDS / 2 + 1)
    assert namespace_watching.changes_since(position=replace(position, at=position.at - half)) is None
    ahead = replace(position, snapshot="1000000000:1000000000:")  # as after a restore of an older state
    assert namespace_watching.changes_since(position=ahead) is None
    namespaces.delete_namespace(tenant="public", namespace=SPACE, actor=ACTOR)
    assert namespace_watching.changes_since(position=position) is None
    namespaces.create_namespace(tenant="public", namespace=SPACE, actor=ACTOR)
    assert namespace_watching.changes_since(position=position) is None


def test_old_changes_are_forgotten_and_young_ones_kept(space: str) -> None:
    create("old")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scalable_topicchange SET changed_at = changed_at - make_interval(secs => %s)",
            [KEPT_SECONDS],
        )
    create("young")
    assert namespace_watching.trim_changes() > 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM scalable_topicchange")
        assert cursor.fetchall() == [("young",)]
    assert namespace_watching.trim_changes() == 0


def test_filters_have_an_index(space: str) -> None:
    """With many topics, those of a rare property are found without reading the others."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            """
            INSERT INTO scalable_topic
                   (namespace_id, name, epoch, revision, next_segment_id, properties, created_at)
            SELECT namespace.id, 't' || number, 0, 1, 1, jsonb_build_object('owner', 'o' || number), now()
              FROM generate_series(1, 20000) AS number, scalable_namespace AS namespace
             WHERE namespace.name = %s
            """,
            [SPACE],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute("ANALYZE scalable_topic")
    assert listed(owner="o77").topics.keys() == {"t77"}
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN SELECT FROM scalable_namespace AS namespace LEFT JOIN scalable_topic AS topic"
            "   ON topic.namespace_id = namespace.id AND topic.properties @> %s::jsonb"
            " WHERE namespace.tenant = 'public' AND namespace.name = %s",
            ['{"owner": "o77"}', SPACE],
        )
        assert "topic_properties" in str(cursor.fetchall())
