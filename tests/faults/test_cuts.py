"""A driver whose database connection is cut, at every moment of every phase: another one carries on."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import psycopg
import pytest
from django.db import DatabaseError, connection, connections

from scalable.domain.operations import OperationKind, Outcome, Phase
from scalable.models import Operation
from scalable.services import sweeping
from scalable.services.driver import Moment, drive_operation
from scalable.store.operations import read
from tests.faults.conftest import Plane
from tests.faults.scenes import phases_of
from tests.services.interruptions import assert_sound
from tests.topology import append_everywhere, drive, make_topic, request

pytestmark = pytest.mark.django_db(transaction=True)


def drive_until_cut(operation_id: str, url: str, phase: Phase, moment: Moment) -> None:
    """Drive an operation in a thread of its own, and let the server end its session on the way."""

    def probe(*point: object) -> None:
        if point == (phase, moment):
            with connection.cursor() as cursor, psycopg.connect(url, autocommit=True) as other:
                cursor.execute("SELECT pg_backend_pid()")
                other.execute("SELECT pg_terminate_backend(%s)", cursor.fetchone())

    try:
        drive_operation(operation_id=operation_id, runner="cut off", probe=probe)
    except DatabaseError:
        pass  # what a worker logs
    finally:
        connections.close_all()


@pytest.mark.parametrize("kind", OperationKind)
def test_a_driver_that_loses_its_connection_is_succeeded_by_another(
    plane: Plane, service_environment: dict[str, str], kind: OperationKind
) -> None:
    sweeping.sweep_stores()
    for phase, moment in product(phases_of(plane), Moment):
        topic = make_topic(f"{phase} {moment}")
        messages = append_everywhere(topic, "before")
        operation = request(kind, topic)
        cut = partial(drive_until_cut, operation.operation_id, service_environment["DATABASE_URL"])
        with ThreadPoolExecutor(1) as pool:
            pool.submit(cut, phase, moment).result()
        last = (Phase.NOTIFIED, Moment.AFTER_RECORDING)
        assert (read(operation.operation_id).outcome is None) == ((phase, moment) != last)
        Operation.objects.filter(pk=operation.operation_id).update(lease_expires_at="2000-01-01T00:00:00Z")
        assert drive(operation).outcome is Outcome.SUCCEEDED
        assert_sound(topic, messages)
    assert sweeping.sweep_stores() == ([], [])
