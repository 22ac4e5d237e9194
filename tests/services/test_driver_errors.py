"""The driver in trouble: errors are kept, attempts bounded before the point of no return, leases renewed."""

from typing import Any

import pytest
from pytest_django import Settings

from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.models import Operation, Segment
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import Fence, SegmentKey
from scalable.segments.registry import use_port
from scalable.services import driver, scaling, sweeping, topics
from scalable.services.driver import Moment
from scalable.services.scaling import OperationView
from scalable.store.operations import read
from tests.services.interruptions import assert_sound, crash, expire_lease, interrupted
from tests.services.mortal import Crash
from tests.topology import (
    ACTOR,
    append_everywhere,
    drive,
    make_topic,
    request,
    store_ids,
)

pytestmark = pytest.mark.django_db


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


class UnsealableSegments(EmbeddedSegments):
    """The data plane in the metadata database, which seals nothing as long as it is `broken`."""

    broken = True

    def terminate(self, key: SegmentKey, *, fence: Fence | None) -> int:
        if self.broken:
            raise Unreachable("terminate")
        return super().terminate(key, fence=fence)


def test_what_fails_behind_the_record_takes_the_record_with_it() -> None:
    port = UnsealableSegments()
    with use_port(port):
        topic = make_topic()
        messages = append_everywhere(topic, "before")
        operation = request(OperationKind.SPLIT, topic)
        failed = drive(operation)
        assert (failed.outcome, failed.phase, failed.attempts) == (None, Phase.PLANNED, 1)
        failed = _exhaust(operation)
        assert (failed.outcome, failed.phase) == (Outcome.FAILED, Phase.PLANNED)
        assert topics.get_topic(name=topic.name).epoch == topic.epoch
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
