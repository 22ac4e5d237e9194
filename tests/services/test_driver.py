"""The driver: phases are interrupted and repeated, a superseded runner changes nothing, errors are kept."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from pytest_django import Settings

from scalable.domain.errors import OperationNotAbortable
from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import Operation, Segment
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import Fence, SegmentKey, SegmentPort
from scalable.segments.registry import use_port
from scalable.services import driver, scaling, subscriptions, sweeping, topics
from scalable.services.driver import Moment, Probe, drive_operation
from scalable.services.scaling import OperationView
from scalable.services.topics import TopicView
from scalable.store.operations import read
from tests.topology import (
    ACTOR,
    append_everywhere,
    drive,
    layout_of,
    make_topic,
    read_all,
    request,
    store_ids,
)

pytestmark = pytest.mark.django_db

PORTS: dict[str, Callable[[], SegmentPort]] = {"embedded": EmbeddedSegments, "external": MemorySegments}
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


class Crash(BaseException):
    """The end of a runner that leaves no time for anything."""


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest) -> Iterator[SegmentPort]:
    """The data plane inside the metadata database, then one outside it."""
    with use_port(PORTS[request.param]()) as chosen:
        yield chosen


@pytest.fixture
def external() -> Iterator[MemorySegments]:
    """A data plane outside the metadata database."""
    memory = MemorySegments()
    with use_port(memory):
        yield memory


def at(phase: Phase, moment: Moment, act: Callable[[], object]) -> Probe:
    """Do something once, at one point of one phase."""
    done: list[bool] = []

    def probe(*point: object) -> None:
        if point == (phase, moment) and not done:
            done.append(True)
            act()

    return probe


def crash() -> None:
    raise Crash


def expire_lease(operation: OperationView) -> None:
    """Let the time of the present lease be over."""
    Operation.objects.filter(pk=operation.operation_id).update(lease_expires_at="2000-01-01T00:00:00Z")


def interrupted(operation: OperationView, phase: Phase, moment: Moment, act: Callable[[], object]) -> None:
    probe = at(phase, moment, act)
    drive_operation(operation_id=operation.operation_id, runner="first", probe=probe)


def assert_sound(topic: TopicView, messages: set[str]) -> None:
    """The layout tiles, takes writes, has exactly its stores, and no message is lost or doubled."""
    layout = layout_of(topic)
    messages |= append_everywhere(topic, f"at the end of epoch {layout.epoch}")
    assert store_ids(topic) == set(layout.segments)
    assert sorted(read_all(topic)) == sorted(messages)


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


def _subscribe(topic: TopicView, name: str) -> None:
    subscriptions.create_subscription(name=topic.name, subscription=name, kind=SubscriptionType.STREAM)


@pytest.mark.parametrize("kind", OperationKind)
def test_cooldowns_start_when_the_operation_was_asked_for(port: SegmentPort, kind: OperationKind) -> None:
    topic = make_topic()
    operation = drive(request(kind, topic))
    after = topics.get_topic(name=topic.name)
    times = {
        OperationKind.SPLIT: (operation.created_at_ms, None),
        OperationKind.MERGE: (None, operation.created_at_ms),
    }
    assert (after.last_split_at_ms, after.last_merge_at_ms) == times[kind]


class Unreachable(Exception):
    """What a data plane outside the metadata database answers at times."""


class UnreachableSegments(MemorySegments):
    """A data plane whose `effect` fails as long as `broken`."""

    def __init__(self, effect: str) -> None:
        super().__init__()
        self.effect, self.broken = effect, False

    def _reach(self, effect: str) -> None:
        if self.broken and effect == self.effect:
            raise Unreachable(effect)

    def create(self, key: SegmentKey, **arguments: Any) -> None:
        self._reach("create")
        super().create(key, **arguments)

    def terminate(self, key: SegmentKey, *, fence: Fence | None) -> int:
        self._reach("terminate")
        return super().terminate(key, fence=fence)


def _exhaust(operation: OperationView) -> OperationView:
    for _ in range(driver.MAX_ATTEMPTS):
        expire_lease(operation)
        drive(operation)
    return read(operation.operation_id)


def test_an_error_is_kept_and_the_operation_tried_again_when_it_is_due(settings: Settings) -> None:
    port = UnreachableSegments("create")
    with use_port(port):
        topic = make_topic()
        operation = request(OperationKind.SPLIT, topic)
        port.broken = True
        failed = drive(operation)
        assert (failed.outcome, failed.phase, failed.attempts) == (None, Phase.PLANNED, 1)
        assert failed.error is not None
        assert "Unreachable" in failed.error["reason"]
        assert drive(operation).attempts == 1, "it is not due yet"
        assert sweeping.sweep_operations() == []
        expire_lease(operation)
        assert sweeping.sweep_operations() == [operation.operation_id]
        port.broken = False
        done = drive(operation)
        assert (done.outcome, done.error, done.attempts) == (Outcome.SUCCEEDED, None, 2)


def test_before_the_point_of_no_return_attempts_are_bounded_and_leave_nothing() -> None:
    port = UnreachableSegments("create")
    with use_port(port):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(OperationKind.SPLIT, topic)
        port.broken = True
        failed = _exhaust(operation)
        assert (failed.outcome, failed.attempts) == (Outcome.FAILED, driver.MAX_ATTEMPTS)
        assert failed.error is not None
        port.broken = False
        assert drive(request(OperationKind.SPLIT, topic)).outcome is Outcome.SUCCEEDED
        assert_sound(topic, messages)


def test_behind_the_point_of_no_return_it_goes_on_for_ever() -> None:
    port = UnreachableSegments("terminate")
    with use_port(port):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(OperationKind.MERGE, topic)
        port.broken = True
        stuck = _exhaust(_exhaust(operation))
        assert (stuck.outcome, stuck.phase) == (None, Phase.TERMINATING)
        port.broken = False
        expire_lease(operation)
        assert drive(operation).outcome is Outcome.SUCCEEDED
        assert_sound(topic, messages)


def test_runners_that_die_without_a_word_are_counted_too(external: MemorySegments) -> None:
    topic = make_topic()
    operation = request(OperationKind.SPLIT, topic)
    for _ in range(driver.MAX_ATTEMPTS):
        expire_lease(operation)
        with pytest.raises(Crash):
            interrupted(operation, Phase.CHILDREN_CREATED, Moment.AFTER_EFFECT, crash)
    expire_lease(operation)
    assert drive(operation).outcome is Outcome.FAILED
    assert_sound(topic, set())


def test_a_plan_that_no_longer_fits_fails_and_frees_its_segments() -> None:
    topic = make_topic(segments=3)
    operation = request(OperationKind.SPLIT, topic)
    # Whatever made this: the plan's child has an id that is in use.
    Segment.objects.filter(topic_id=topic.incarnation, segment_id=2).update(
        segment_id=operation.plan.child_ids[0]
    )
    failed = drive(operation)
    assert failed.outcome is Outcome.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "layout_corrupt"
    assert scaling.list_operations(name=topic.name, limit=9, unfinished_only=True) == []


def test_a_topic_deleted_by_force_ends_its_operation_quietly(external: MemorySegments) -> None:
    topic = make_topic()
    operation = request(OperationKind.SPLIT, topic)
    interrupted(
        operation,
        Phase.CHILDREN_CREATED,
        Moment.AFTER_RECORDING,
        lambda: topics.delete_topic(name=topic.name, force=True, actor=ACTOR),
    )
    assert store_ids(topic) == set()


def test_the_sweep_finds_what_waits_and_nothing_else(settings: Settings) -> None:
    settings.SCALABLE_OPERATION_SWEEP_SECONDS = 60
    finished = drive(request(OperationKind.SPLIT, make_topic("finished")))
    fresh = request(OperationKind.SPLIT, make_topic("fresh"))
    running, forgotten, expired = (
        request(OperationKind.SPLIT, make_topic(name)) for name in ("running", "forgotten", "expired")
    )
    for operation in (running, expired):
        with pytest.raises(Crash):
            interrupted(operation, Phase.COMMITTED, Moment.BEFORE_EFFECT, crash)
    expire_lease(expired)
    Operation.objects.filter(pk=forgotten.operation_id).update(created_at="2000-01-01T00:00:00Z")
    assert sweeping.sweep_operations() == [forgotten.operation_id, expired.operation_id]
    assert finished.outcome is Outcome.SUCCEEDED
    assert read(fresh.operation_id).attempts == 0


def test_a_long_effect_renews_its_lease(external: MemorySegments, settings: Settings) -> None:
    settings.SCALABLE_OPERATION_LEASE_SECONDS = 0
    topic = make_topic(segments=1)
    operation = scaling.request_split(name=topic.name, segment_id=0, boundaries=range(1, 20), actor=ACTOR)
    expiries: list[Any] = []
    original = external.create

    def create(key: SegmentKey, **arguments: Any) -> None:
        expiries.append(Operation.objects.values_list("lease_expires_at", flat=True).get())
        original(key, **arguments)

    external.create = create  # type: ignore[method-assign]
    assert drive(operation).outcome is Outcome.SUCCEEDED
    assert len(expiries) == 20
    assert expiries == sorted(set(expiries)), "each one later than the one before"
