"""Drivers are paused with SIGSTOP past their lease, at every phase; awake again, they change nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import pytest
import redis

from scalable.domain.operations import OperationKind
from scalable.services import sweeping, topics
from scalable.services.driver import Moment
from scalable.store.operations import read
from tests.faults.conftest import Plane, Workers
from tests.faults.scenes import finished, phases_of, set_scenes
from tests.faults.strikes import Blow, Event, Strike, hear
from tests.faults.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PATIENCE = {"SCALABLE_OPERATION_LEASE_SECONDS": "1", "SCALABLE_IDLE_TRANSACTION_TIMEOUT_MS": "500"}


@contextmanager
def asleep(events: list[Event]) -> Iterator[None]:
    """Wake the processes up at the end, whatever happens."""
    try:
        yield
    finally:
        for event in events:
            os.kill(event.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", [OperationKind.SPLIT, OperationKind.MERGE])
def test_a_driver_that_slept_past_its_lease_changes_nothing(
    plane: Plane, workers: Workers, broker: redis.Redis, kind: OperationKind
) -> None:
    points = list(product(phases_of(plane), Moment))
    workers.prefork(children=len(points) + 1, **PATIENCE)
    scenes = set_scenes((kind, Strike(Blow.STOP, phase, moment)) for phase, moment in points)
    sleepers = [hear(broker, "struck") for _ in points]
    assert {event.operation_id for event in sleepers} == set(scenes)
    with asleep(sleepers):
        for scene in scenes.values():
            until(partial(finished, scene.operation), what=scene.title)
            scene.check_end()
        before = {key: (topics.get_topic(name=scene.topic.name), read(key)) for key, scene in scenes.items()}
    awake = {event.pid for event in sleepers}
    while awake:
        awake.discard(hear(broker, "ended").pid)
    for key, scene in scenes.items():
        assert (topics.get_topic(name=scene.topic.name), read(key)) == before[key]
        scene.check_end()
    assert sweeping.sweep_stores() == ([], [])
