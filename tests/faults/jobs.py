"""The task that drives operations, with a probe that strikes its own process once, at the first attempt."""

import os

import redis
from celery import shared_task
from django.conf import settings

from scalable.domain.operations import Phase
from scalable.services.driver import Moment, drive_operation
from scalable.store.operations import read
from tasks.runner import runner_name
from tests.faults.strikes import Event, Strike, tell


@shared_task(name="tasks.jobs.drive")
def drive(operation_id: str) -> None:
    """Drive an operation, unless struck."""
    with redis.Redis.from_url(settings.SCALABLE_REDIS_URL) as client:

        def probe(phase: Phase, moment: Moment) -> None:
            operation = read(operation_id)
            strike = Strike.parse(operation.reason)
            if strike and operation.attempts == 1 and (strike.phase, strike.moment) == (phase, moment):
                tell(client, Event("struck", operation_id, os.getpid()))
                strike.blow.fall()

        try:
            drive_operation(operation_id=operation_id, runner=runner_name(), probe=probe)
        finally:
            tell(client, Event("ended", operation_id, os.getpid()))
