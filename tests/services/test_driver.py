"""The driver: phases are interrupted and repeated, a superseded runner changes nothing, errors are kept."""

from itertools import product
from typing import Any

import pytest

from scalable.domain.cursors import bucket_ranges
from scalable.domain.errors import OperationNotAbortable
from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import use_port
from scalable.services import scaling, subscriptions, sweeping, topics
from scalable.services.driver import Moment, drive_operation
from scalable.services.topics import TopicView
from scalable.store.operations import read
from tests.services.interruptions import assert_sound, crash, expire_lease, interrupted
from tests.services.mortal import Crash
from tests.services.ports import PORTS
from tests.topology import (
    ACTOR,
    append_everywhere,
    drive,
    layout_of,
    make_topic,
    request,
)

pytestmark = pytest.mark.django_db

PHASES = {
    "embedded": [Phase.COMMITTED, Phase.NOTIFIED],
    "external": [
        Phase.CHILDREN_CREATED,
        Phase.TERMINATING,
        Phase.PARENTS_TERMINATED,
        Phase.COMMITTED,
        Phase.NOTIFIED,
    ],
}
POINTS = [
    (name, kind, phase, moment)
    for name, kind in product(PORTS, OperationKind)
    for phase, moment in product(PHASES[name], Moment)
]
POINTS_OUTSIDE_TRANSACTIONS = [point for point in POINTS if point[3] is not Moment.AFTER_EFFECT]
"""Where a runner holds no transaction open, for which others would wait; for the rest see `tests/faults`."""


@pytest.mark.parametrize("kind", OperationKind)
def test_an_operation_walks_its_phases(port: SegmentPort, kind: OperationKind) -> None:
    topic = make_topic()
    messages = append_everywhere(topic, "before")
    walked: list[tuple[Phase, Moment]] = []
    operation = request(kind, topic)
    drive_operation(
        operation_id=operation.operation_id,
        runner="runner",
        probe=lambda phase, moment: walked.append((phase, moment)),
    )
    name = "embedded" if port.transactional else "external"
    assert walked == list(product(PHASES[name], Moment))
    done = read(operation.operation_id)
    assert (done.phase, done.outcome, done.epoch, done.error) == (Phase.NOTIFIED, Outcome.SUCCEEDED, 1, None)
    assert list(done.to_json()["timings"]) == [Phase.PLANNED, *PHASES[name]]
    assert all(elapsed_ms >= 0 for elapsed_ms in done.timings.values())
    assert {segment.segment_id for segment in layout_of(topic).active} >= set(operation.plan.child_ids)
    assert_sound(topic, messages)


@pytest.mark.parametrize(("name", "kind", "phase", "moment"), POINTS)
def test_a_runner_that_dies_anywhere_is_succeeded_by_another(
    name: str, kind: OperationKind, phase: Phase, moment: Moment
) -> None:
    with use_port(PORTS[name]()):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(kind, topic)
        with pytest.raises(Crash):
            interrupted(operation, phase, moment, crash)
        assert drive(operation, runner="too early").outcome is None or phase is Phase.NOTIFIED
        expire_lease(operation)
        sweeping.sweep_stores()
        done = drive(operation, runner="second")
        assert (done.outcome, layout_of(topic).epoch) == (Outcome.SUCCEEDED, 1)
        assert_sound(topic, messages)


@pytest.mark.parametrize(("name", "kind", "phase", "moment"), POINTS_OUTSIDE_TRANSACTIONS)
def test_a_runner_that_was_overtaken_changes_nothing(
    name: str, kind: OperationKind, phase: Phase, moment: Moment
) -> None:
    with use_port(PORTS[name]()):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(kind, topic)
        seen: list[TopicView] = []

        def overtake() -> None:
            expire_lease(operation)
            drive(operation, runner="second")
            messages.update(append_everywhere(topic, "behind the back of the first"))
            seen.append(topics.get_topic(name=topic.name))

        interrupted(operation, phase, moment, overtake)
        assert topics.get_topic(name=topic.name) == seen[0]
        assert read(operation.operation_id).outcome is Outcome.SUCCEEDED
        sweeping.sweep_stores()
        assert_sound(topic, messages)


@pytest.mark.parametrize(("name", "kind", "phase", "moment"), POINTS_OUTSIDE_TRANSACTIONS)
def test_an_abort_succeeds_until_the_point_of_no_return_and_not_behind_it(
    name: str, kind: OperationKind, phase: Phase, moment: Moment
) -> None:
    with use_port(PORTS[name]()):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(kind, topic)
        refused: list[OperationNotAbortable] = []

        def abort() -> None:
            try:
                scaling.abort_operation(name=topic.name, operation_id=operation.operation_id, actor=ACTOR)
            except OperationNotAbortable as refusal:
                refused.append(refusal)

        interrupted(operation, phase, moment, abort)
        terminating = (Phase.TERMINATING, Moment.AFTER_RECORDING)
        committed = (Phase.COMMITTED, Moment.AFTER_RECORDING)
        turn = committed if name == "embedded" else terminating
        walk = list(product(PHASES[name], Moment))
        behind = walk.index((phase, moment)) >= walk.index(turn)
        done = read(operation.operation_id)
        assert (done.outcome, bool(refused)) == (
            (Outcome.SUCCEEDED, True) if behind else (Outcome.ABORTED, False)
        )
        assert layout_of(topic).epoch == int(behind)
        sweeping.sweep_stores()
        assert_sound(topic, messages)


@pytest.mark.parametrize("phase", [phase for phase in PHASES["external"] if phase is not Phase.NOTIFIED])
def test_a_subscription_made_on_the_way_has_a_cursor_in_each_child(
    external: MemorySegments, phase: Phase
) -> None:
    topic = make_topic()
    _subscribe(topic, "old")
    operation = request(OperationKind.SPLIT, topic)

    def change() -> None:
        subscriptions.delete_subscription(name=topic.name, subscription="old")
        _subscribe(topic, "new")

    interrupted(operation, phase, Moment.BEFORE_EFFECT, change)
    for segment_id in layout_of(topic).segments:
        cursors = external.cursors(SegmentKey(topic.incarnation, segment_id))
        assert [(cursor.subscription, cursor.position) for cursor in cursors] == [("new", 0)]


@pytest.mark.parametrize("kind", OperationKind)
def test_a_key_shared_subscription_has_a_cursor_for_each_entry_bucket(
    port: SegmentPort, kind: OperationKind
) -> None:
    topic = make_topic()
    _subscribe(topic, "plain")
    _subscribe(topic, "shared", key_shared=True)
    drive(request(kind, topic))
    for segment_id, segment in layout_of(topic).segments.items():
        found = {cursor.subscription for cursor in port.cursors(SegmentKey(topic.incarnation, segment_id))}
        ranges = bucket_ranges(segment.entry_bucket_splits)
        assert found == {"plain", *(f"shared/{bucket_range.hex}" for bucket_range in ranges)}


def test_a_key_shared_subscription_deleted_on_the_way_leaves_no_cursor(external: MemorySegments) -> None:
    topic = make_topic()
    _subscribe(topic, "shared", key_shared=True)
    operation = request(OperationKind.REBUCKET, topic)
    interrupted(
        operation,
        Phase.COMMITTED,
        Moment.BEFORE_EFFECT,
        lambda: subscriptions.delete_subscription(name=topic.name, subscription="shared"),
    )
    for segment_id in layout_of(topic).segments:
        assert external.cursors(SegmentKey(topic.incarnation, segment_id)) == []


def test_a_subscription_made_at_the_last_moment_makes_the_commit_repeat(external: MemorySegments) -> None:
    topic = make_topic()
    operation = request(OperationKind.SPLIT, topic)
    names = iter(f"subscription {number}" for number in range(3))
    original = external.create

    def create_and_race(key: SegmentKey, **arguments: Any) -> None:
        original(key, **arguments)
        name = next(names, None)
        if name is not None:
            _subscribe(topic, name)

    external.create = create_and_race  # type: ignore[method-assign]
    assert drive(operation).outcome is Outcome.SUCCEEDED
    for child_id in operation.plan.child_ids:
        assert len(external.cursors(SegmentKey(topic.incarnation, child_id))) == 3


def _subscribe(topic: TopicView, name: str, *, key_shared: bool = False) -> None:
    subscriptions.create_subscription(
        name=topic.name, subscription=name, kind=SubscriptionType.STREAM, key_shared=key_shared
    )


@pytest.mark.parametrize("kind", OperationKind)
def test_cooldowns_start_when_the_operation_was_asked_for(port: SegmentPort, kind: OperationKind) -> None:
    topic = make_topic()
    operation = drive(request(kind, topic))
    after = topics.get_topic(name=topic.name)
    times = {
        OperationKind.SPLIT: (operation.created_at_ms, None, None),
        OperationKind.MERGE: (None, operation.created_at_ms, None),
        OperationKind.REBUCKET: (None, None, operation.created_at_ms),
    }
    assert (after.last_split_at_ms, after.last_merge_at_ms, after.last_rebucket_at_ms) == times[kind]
