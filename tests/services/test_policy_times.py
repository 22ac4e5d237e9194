"""Times of policies, whatever they are: no node and no evaluation of any topic comes to grief over one."""

from typing import Any

import pytest

from scalable.domain.errors import PolicyInvalid
from scalable.domain.policy import MAX_SECONDS, TIMES, resolve, violations
from scalable.models import Evaluation, Topic
from scalable.services import autoscaling, sampling, topics
from scalable.services.autoscaling import evaluate_due_topics, preview_decision
from scalable.services.topics import TopicView
from tests.services.test_autoscaling import COLD, due_in_seconds, let_time_come, report, ruled, rules
from tests.services.test_autoscaling_options import report_minutes
from tests.topology import ACTOR, make_topic

pytestmark = pytest.mark.django_db

EXTREMES = (0, 5e-324, 1e12, 2**53, 1e308)
AN_HOUR = 3_600


def rising(name: str) -> TopicView:
    """Make a topic whose policy looks at all there is, and whose load rises."""
    topic = ruled(name, segments=2, splitCooldownSeconds=60, lookAheadSeconds=20, mergePeakSeconds=60)
    report(topic, {0: {**COLD, "msgRateIn": 9_000.0}, 1: COLD})
    report_minutes(topic, {0: [300.0] * 32}, minutes=3)
    return topic


def store(topic: TopicView, policy: Any) -> None:
    """Write a policy past all checks, as an older version or a namespace may have left it."""
    Topic.objects.filter(pk=topic.incarnation).update(auto_scale_policy=policy)
    let_time_come(topic)


@pytest.mark.parametrize("field", TIMES)
def test_a_time_is_refused_or_it_works(field: str) -> None:
    well, made = rising("well"), {seconds: rising(f"with {seconds}") for seconds in EXTREMES}
    for seconds, ill in made.items():
        own = {**(ill.auto_scale_policy or {}), field: seconds}
        if violations(resolve(own).policy):
            with pytest.raises(PolicyInvalid, match=field):
                topics.set_auto_scale_policy(name=ill.name, override=own, actor=ACTOR)
        else:
            topics.set_auto_scale_policy(name=ill.name, override=own, actor=ACTOR)
        store(ill, own)
    assert set(evaluate_due_topics()) == {each.incarnation for each in (well, *made.values())}
    assert not Evaluation.objects.filter(failures__gt=0).exists()
    for seconds, ill in made.items():
        is_refused = bool(violations(resolve({field: seconds}).policy))
        assert is_refused or seconds <= MAX_SECONDS
        assert due_in_seconds(ill) <= AN_HOUR
        assert (rules(ill)[0] == "POLICY_INVALID") is is_refused
        assert (preview_decision(name=ill.name)[0].rule == "POLICY_INVALID") is is_refused


def test_a_node_samples_all_topics_whatever_their_times_are() -> None:
    well, made = make_topic("well"), {}
    for field in TIMES:
        for seconds in EXTREMES:
            made[field, seconds] = make_topic(f"{field} {seconds}", segments=1)
            store(made[field, seconds], {field: seconds})
    found = {new.topic.incarnation for new in sampling.new_segments(above=0)}
    assert found == {each.incarnation for each in (well, *made.values())}
    for ill in made.values():
        sampled = sampling.topic_sampling(incarnation=ill.incarnation)
        assert sampled is not None
        assert 100 <= sampled.interval_ms <= AN_HOUR * 1000
        assert 100 <= sampled.window_ms <= 24 * AN_HOUR * 1000


@pytest.mark.parametrize(
    "broken",
    ["gibberish", [], {"rateWindowSeconds": "long"}, {"maxSegments": 10**400, "splitTargetShare": {}}],
)
def test_a_policy_that_cannot_be_read_keeps_no_node_from_other_topics(broken: object) -> None:
    ill, well = make_topic("ill"), make_topic("well")
    store(ill, broken)
    found = {new.topic.incarnation: new.topic for new in sampling.new_segments(above=0)}
    assert {ill.incarnation, well.incarnation} <= found.keys()
    assert found[ill.incarnation].window_ms == found[well.incarnation].window_ms


def test_the_policy_that_stopped_all_sampling_is_refused_and_told() -> None:
    topic = make_topic("endless")
    with pytest.raises(PolicyInvalid, match=r"rateWindowSeconds \(1e\+308\) is above 315360000"):
        topics.set_auto_scale_policy(name=topic.name, override={"rateWindowSeconds": 1e308}, actor=ACTOR)


def test_what_is_shown_of_a_policy_can_be_sent_back() -> None:
    topic = make_topic("sent back")
    for number in (1e16, 2.0**53, 2.0**53 + 2, 1e300):
        topics.set_auto_scale_policy(
            name=topic.name, override={"splitMsgRateInThreshold": number}, actor=ACTOR
        )
        shown = topics.get_topic(name=topic.name).auto_scale_policy
        topics.set_auto_scale_policy(name=topic.name, override=shown, actor=ACTOR)
        assert topics.get_topic(name=topic.name).auto_scale_policy == shown
        autoscaling.evaluate_topic(incarnation=topic.incarnation)
