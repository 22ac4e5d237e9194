"""What is acknowledged while a skip is on its way stays acknowledged: skips go forward only."""

from collections.abc import Callable

import pytest

from scalable.domain.names import SegmentName
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.services import seeking, segment_admin
from scalable.services.backlogs import Backlog, backlog_of
from scalable.services.positions import AtTime
from scalable.services.topics import TopicView
from tests.services.test_seeking import positions
from tests.services.test_subscriptions import backlog, create
from tests.topology import append, layout_of, make_topic

pytestmark = pytest.mark.django_db

TO_COME = AtTime(9_999_999_999_999)
STREAM, QUEUE = SubscriptionType.STREAM, SubscriptionType.QUEUE


def skip_segment(topic: TopicView) -> None:
    segment = layout_of(topic).segments[0]
    name = SegmentName(topic.name, segment.hash_range, segment.segment_id)
    segment_admin.skip_segment(name=name, subscription="s")


SKIPS: dict[str, Callable[[TopicView], object]] = {
    "all": lambda topic: seeking.clear_backlog(name=topic.name, subscription="s"),
    "more than there are": lambda topic: seeking.skip(name=topic.name, subscription="s", count=100),
    "as many as there are": lambda topic: seeking.skip(name=topic.name, subscription="s", count=10),
    "some": lambda topic: seeking.skip(name=topic.name, subscription="s", count=3),
    "to the latest": lambda topic: seeking.seek(name=topic.name, subscription="s", start="latest"),
    "to a time to come": lambda topic: seeking.seek(name=topic.name, subscription="s", start=TO_COME),
    "one segment": skip_segment,
}
KINDS = {"stream": (STREAM, False), "shared by key": (STREAM, True), "queue": (QUEUE, False)}


def acknowledge_all(topic: TopicView) -> None:
    """Acknowledge what there is, as consumers do."""
    port, key = segment_port(), SegmentKey(topic.incarnation, 0)
    end_offset = port.stats(key).end_offset
    for cursor in port.cursors(key):
        port.acknowledge(
            key, subscription=cursor.subscription, generation=cursor.generation, position=end_offset
        )


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("skip", SKIPS.values(), ids=SKIPS)
def test_no_acknowledgement_is_taken_back(
    port: SegmentPort,
    monkeypatch: pytest.MonkeyPatch,
    skip: Callable[[TopicView], object],
    kind: tuple[SubscriptionType, bool],
) -> None:
    topic = make_topic(segments=1)
    create(topic, kind=kind[0], key_shared=kind[1])
    for number in range(10):
        append(topic, 0, f"before {number}")

    def read_then_overtaken(*arguments: object) -> Backlog:
        found = backlog_of(*arguments)  # type: ignore[arg-type]
        for number in range(5):
            append(topic, 0, f"meanwhile {number}")
        acknowledge_all(topic)
        return found

    monkeypatch.setattr(seeking, "backlog_of", read_then_overtaken)
    skip(topic)
    assert {at for each in positions(topic).values() for at in each} == {15}
    assert backlog(topic) == {0: 0}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "skip", [SKIPS[each] for each in ("all", "to the latest", "to a time to come", "one segment")]
)
def test_what_comes_meanwhile_is_not_skipped(
    port: SegmentPort,
    monkeypatch: pytest.MonkeyPatch,
    skip: Callable[[TopicView], object],
    kind: tuple[SubscriptionType, bool],
) -> None:
    topic = make_topic(segments=1)
    create(topic, kind=kind[0], key_shared=kind[1])
    append(topic, 0, "before")

    def read_then_more(*arguments: object) -> Backlog:
        found = backlog_of(*arguments)  # type: ignore[arg-type]
        append(topic, 0, "meanwhile")
        return found

    monkeypatch.setattr(seeking, "backlog_of", read_then_more)
    skip(topic)
    monkeypatch.undo()
    assert backlog(topic) == {0: 1}
