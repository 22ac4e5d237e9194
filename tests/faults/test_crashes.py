"""Real worker processes are killed with SIGKILL before, in and after every phase of a split and of a merge.

Whatever the moment: the topic has exactly the old or the new layout, which tiles the space and takes writes
as soon as the operation is through; no store is left over, and every acknowledged message can be read, once.
"""

from functools import partial
from itertools import product

import pytest
import redis

from scalable.domain.operations import OperationKind, Phase
from scalable.models import Operation
from scalable.services import sweeping
from scalable.services.driver import Moment
from scalable.store.operations import read
from tests.faults.conftest import Plane, Workers
from tests.faults.scenes import Scene, finished, phases_of, set_scenes
from tests.faults.strikes import Blow, Strike, hear
from tests.faults.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_a_driver_killed_anywhere_is_succeeded_by_another(
    plane: Plane, workers: Workers, broker: redis.Redis
) -> None:
    workers.prefork(children=3, SCALABLE_OPERATION_LEASE_SECONDS="600")
    points = product(OperationKind, phases_of(plane), Moment)
    scenes = set_scenes((kind, Strike(Blow.KILL, phase, moment)) for kind, phase, moment in points)
    waiting = set(scenes)
    while waiting:
        waiting.discard(hear(broker, "struck").operation_id)
    for scene in scenes.values():
        scene.check_half_way()
    # The drivers are dead; what is left of their leases need not be waited for.
    Operation.objects.update(lease_expires_at="2000-01-01T00:00:00Z")
    for scene in scenes.values():
        until(partial(finished, scene.operation), what=scene.title)
        scene.check_end()
    assert sweeping.sweep_stores() == ([], [])


@pytest.mark.parametrize("kind", OperationKind)
def test_a_whole_worker_that_dies_is_succeeded_when_its_lease_ran_out(
    plane: Plane, workers: Workers, broker: redis.Redis, kind: OperationKind
) -> None:
    phase = Phase.COMMITTED if plane.port.transactional else Phase.PARENTS_TERMINATED
    worker = workers.threads(SCALABLE_OPERATION_LEASE_SECONDS="1")
    scene = Scene(kind, Strike(Blow.KILL, phase, Moment.AFTER_EFFECT))
    assert hear(broker, "struck").pid == worker.pid
    until(lambda: worker.returncode is not None, what="the worker's death")
    scene.check_half_way()
    workers.threads(SCALABLE_OPERATION_LEASE_SECONDS="1")
    until(partial(finished, scene.operation), what=scene.title)
    scene.check_end()
    assert read(scene.operation.operation_id).attempts == 2
