"""Leadership of topics: one living node leads, under a rising term; a superseded one changes nothing."""

import uuid

import pytest
from pytest_django import Settings

from scalable.domain.errors import NoLeader, TermSuperseded, TopicNotFound
from scalable.models import ConsumerRegistration, Node
from scalable.services import controller
from scalable.store.clock import seconds_from_now
from tests.services.group import URL, Group, leader_of, new_node
from tests.topology import make_topic, topic_name

pytestmark = pytest.mark.django_db


def test_the_first_node_that_asks_leads_and_the_others_learn_its_address() -> None:
    topic, first, second = make_topic(), new_node(), new_node()
    mine = controller.acquire_leadership(name=topic.name, node_id=first)
    theirs = controller.acquire_leadership(name=topic.name, node_id=second)
    assert (mine.mine, mine.term, mine.url) == (True, 1, URL)
    assert (theirs.mine, theirs.term, theirs.url) == (False, 1, URL)
    assert controller.acquire_leadership(name=topic.name, node_id=first) == mine


def test_a_dead_leader_is_followed_under_a_higher_term(settings: Settings) -> None:
    topic, first, second = make_topic(), new_node(), new_node()
    controller.acquire_leadership(name=topic.name, node_id=first)
    grow_old(first, settings)
    taken = controller.acquire_leadership(name=topic.name, node_id=second)
    assert (taken.mine, taken.term) == (True, 2)
    controller.heartbeat_node(node_id=first, url=URL)
    assert not controller.acquire_leadership(name=topic.name, node_id=first).mine


def test_a_node_that_leaves_frees_its_leaderships_at_once() -> None:
    topic, first, second = make_topic(), new_node(), new_node()
    controller.acquire_leadership(name=topic.name, node_id=first)
    controller.remove_node(node_id=first)
    assert controller.acquire_leadership(name=topic.name, node_id=second).term == 2


def test_a_node_that_comes_back_at_its_address_need_not_wait_for_its_former_life() -> None:
    topic, former, present = make_topic(), new_node(), uuid.uuid4()
    controller.acquire_leadership(name=topic.name, node_id=former)
    controller.begin_node(node_id=present, url=URL)
    taken = controller.acquire_leadership(name=topic.name, node_id=present)
    assert (taken.mine, taken.term) == (True, 2)


def test_a_superseded_leader_changes_nothing(settings: Settings) -> None:
    topic = make_topic()
    group = Group(topic)
    group.join("a")
    grow_old(group.leader.node_id, settings)
    leader_of(topic)
    with pytest.raises(TermSuperseded):
        group.join("b")
    with pytest.raises(TermSuperseded):
        group.leave("a")
    with pytest.raises(TermSuperseded):
        group.view("a")
    assert list(ConsumerRegistration.objects.values_list("name", flat=True)) == ["a"]


def test_a_node_without_a_row_leads_nothing() -> None:
    topic, node_id = make_topic(), new_node()
    controller.remove_node(node_id=node_id)
    with pytest.raises(NoLeader):
        controller.acquire_leadership(name=topic.name, node_id=node_id)


def test_leadership_of_an_unknown_topic_is_refused() -> None:
    with pytest.raises(TopicNotFound):
        controller.acquire_leadership(name=topic_name("none"), node_id=new_node())


def test_topics_whose_leader_died_are_found_while_they_have_consumers(settings: Settings) -> None:
    lonely, idle = make_topic("lonely"), make_topic("idle")
    group = Group(lonely)
    group.join("a")
    grow_old(group.leader.node_id, settings)
    grow_old(leader_of(idle).node_id, settings)
    assert controller.orphaned_topics() == [lonely.name]


def grow_old(node_id: uuid.UUID, settings: Settings) -> None:
    """Let a node be silent for longer than the time-out."""
    silent = seconds_from_now(-1.5 * settings.SCALABLE_NODE_TIMEOUT_SECONDS)
    Node.objects.filter(pk=node_id).update(heartbeat_at=silent)
