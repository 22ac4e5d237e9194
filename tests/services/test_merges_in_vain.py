"""What was merged and soon split again, as decisions read it from the database, pruned or not."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from scalable.models import PrunedSegment, Segment, Topic
from scalable.services import pruning, scaling
from scalable.services.autoscaling import evaluate_due_topics
from scalable.services.topics import TopicView, get_topic
from tests.services.ageing import split
from tests.services.test_autoscaling import COLD, due_in_seconds, let_time_come, report, ruled, rules
from tests.services.test_recent_loads import read, read_views, told
from tests.topology import ACTOR, drive, layout_of

pytestmark = pytest.mark.django_db(transaction=True)

REPEAT: dict[str, Any] = {"mergeRepeatSeconds": 3_600, "mergeCooldownSeconds": 0, "mergeWindowSeconds": 0}


def merge(topic: TopicView, segment_ids: Sequence[int]) -> None:
    """Merge by hand."""
    drive(scaling.request_merge(name=topic.name, segment_ids=segment_ids, actor=ACTOR))


def parted(name: str = "parted", **policy: Any) -> TopicView:
    """A topic whose segments 0 and 1 were merged into 2, which was split into 3 and 4 at once."""
    topic = ruled(name, segments=2, **{**REPEAT, **policy})
    merge(topic, [0, 1])
    split(topic, 2)
    report(topic, {3: COLD, 4: COLD})
    return topic


def let_pass(topic: TopicView, seconds: float) -> None:
    """Let all that happened to a topic have happened so much earlier."""
    by = timedelta(seconds=seconds)
    for model in (Segment, PrunedSegment):
        rows = model.objects.filter(topic_id=topic.incarnation)
        rows.update(created_at=F("created_at") - by)
        rows.filter(sealed_at__isnull=False).update(sealed_at=F("sealed_at") - by)
    topics = Topic.objects.filter(pk=topic.incarnation)
    topics.update(last_split_at=F("last_split_at") - by, last_merge_at=F("last_merge_at") - by)


@pytest.mark.parametrize("goes", [(), (0, 1), (0, 1, 2)], ids=["nothing", "grandparents", "all"])
def test_what_was_merged_in_vain_waits_also_when_its_ancestors_were_pruned(goes: tuple[int, ...]) -> None:
    topic = parted()
    if goes:
        _prune(topic, goes)
    assert set(layout_of(topic).segments) == {0, 1, 2, 3, 4} - {*goes}
    assert read(topic).merged_for_ms.keys() == {3, 4}
    decision, guards = told(topic)
    assert decision.action is None
    guard = guards["MERGED_IN_VAIN"]
    assert (guard.segment_ids, guard.threshold) == ((3, 4), 3_600)
    let_time_come(topic)
    evaluate_due_topics()
    assert rules(topic) == ["MERGED_IN_VAIN"]
    assert 3_500 < due_in_seconds(topic) <= 3_600
    let_pass(topic, 3_601)
    assert read(topic).merged_for_ms == {}
    decision, _ = told(topic)
    assert decision.action is not None
    assert decision.action.segment_ids == (3, 4)


def _prune(topic: TopicView, goes: tuple[int, ...]) -> None:
    """Prune these and no others: what else could go is held by a retention meanwhile."""
    Segment.objects.filter(topic_id=topic.incarnation, segment_id__in=goes).update(
        sealed_at=F("sealed_at") - timedelta(seconds=100)
    )
    kept = () if 2 in goes else (2,)
    Topic.objects.filter(pk=topic.incarnation).update(retention_seconds=50 if kept else None)
    assert sorted(pruning.prune_topic(incarnation=topic.incarnation)) == sorted(goes)


def test_what_held_for_long_is_merged_again_at_once() -> None:
    topic = ruled(segments=2, **REPEAT)
    merge(topic, [0, 1])
    let_pass(topic, 3_601)
    split(topic, 2)
    report(topic, {3: COLD, 4: COLD})
    assert read(topic).merged_for_ms == {}
    assert told(topic)[0].action is not None


def test_what_is_read_of_a_topic_does_not_depend_on_the_others_and_takes_as_many_statements() -> None:
    topics = [parted(f"topic {number}", mergeRepeatSeconds=10 * number) for number in range(4)]
    for number, topic in enumerate(topics):
        let_pass(topic, 5 * number)
    views = [get_topic(name=each.name) for each in topics]
    with CaptureQueriesContext(connection) as of_one:
        (alone,) = read_views(views[-1:])
    with CaptureQueriesContext(connection) as of_all:
        together = read_views(views)
    assert together[-1].merged_for_ms == alone.merged_for_ms
    assert [set(each.merged_for_ms) for each in together] == [set(), {3, 4}, {3, 4}, {3, 4}]
    assert len(of_all) == len(of_one)


def test_a_topic_without_the_option_or_without_young_segments_asks_nothing() -> None:
    for topic in (parted("off", mergeRepeatSeconds=0), ruled("fresh", segments=4, **REPEAT)):
        with CaptureQueriesContext(connection) as asked:
            read(topic)
        assert not [each for each in asked if "prunedsegment" in each["sql"]], topic.name
