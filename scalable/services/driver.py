"""The driver of operations: takes the lease, walks the phases, records each with what it found out.

Two crashes matter at every phase. Behind its effect and before its record: the next driver repeats the
effect. Behind its record: the next driver goes on from there. A driver that was superseded meanwhile fails on
the fence of the first row that it writes, and changes nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from time import perf_counter
from typing import Any

from django.conf import settings
from django.db import transaction

from scalable.domain.errors import (
    LayoutCorrupt,
    LeaseLost,
    OperationNotFound,
    ScalableError,
    SegmentNotActive,
    SegmentNotFound,
    TopicNotFound,
)
from scalable.domain.operations import Phase, may_abort
from scalable.segments.registry import segment_port
from scalable.services.reshaping import Drive, Step, SubscriptionsMoved, step_to
from scalable.services.scaling import announce_step, delete_children
from scalable.store import operations as store
from scalable.store import topics
from scalable.store.operations import OperationView

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
MAX_RETRY_SECONDS = 60
MAX_REASON_CHARACTERS = 500
HOPELESS = (SegmentNotFound, SegmentNotActive, LayoutCorrupt)
"""Errors that no repetition of a plan can overcome."""
SUPERSEDED = (LeaseLost, OperationNotFound, TopicNotFound)
"""Errors that say that the operation is no longer ours: taken over, aborted, or gone with its topic."""


class Moment(StrEnum):
    """Where in a phase a probe is called."""

    BEFORE_EFFECT = "before-effect"
    AFTER_EFFECT = "after-effect"
    AFTER_RECORDING = "after-recording"


class AttemptsExhausted(Exception):
    """An operation was begun again and again, and its runners died."""


Probe = Callable[[Phase, Moment], None]


def _no_probe(phase: Phase, moment: Moment) -> None:
    """Look at nothing."""


def drive_operation(*, operation_id: str, runner: str, probe: Probe = _no_probe) -> None:
    """Drive an operation to its end, unless it is finished, held by another runner, or not due again.

    `runner` names the holder of the lease; `probe` is called around each phase. An error stays in the
    operation's row and the sweep tries again; whoever was superseded ends quietly.
    """
    lease = store.take_lease(operation_id, runner=runner, seconds=settings.SCALABLE_OPERATION_LEASE_SECONDS)
    if lease is None:
        return
    try:
        drive = Drive(store.read(operation_id), lease, segment_port())
        _walk(drive, probe)
        if drive.next_phase is None:
            done = drive.operation
            kind, segments = done.kind.lower(), list(done.plan.parent_ids)
            logger.info("The %s of %s of %s is done: epoch %s", kind, segments, done.topic, done.epoch)
    except SUPERSEDED as loss:
        logger.info("Operation %s is no longer driven by %s: %s", operation_id, runner, loss)


def _walk(drive: Drive, probe: Probe) -> None:
    try:
        _refuse_endless_attempts(drive)
        while phase := drive.next_phase:
            _take_step(drive, phase, probe)
    except SUPERSEDED:
        raise
    except Exception as error:
        operation = drive.operation
        logger.exception("Operation %s stopped behind %s", operation.operation_id, operation.phase)
        _stop(drive, error)


def _take_step(drive: Drive, phase: Phase, probe: Probe) -> None:
    started_at = perf_counter()
    step = step_to(phase, drive)
    probe(phase, Moment.BEFORE_EFFECT)
    moved = True
    while moved:  # a few times at most: then the step waits for nobody (`reshaping`)
        try:
            _act_and_record(drive, phase, step, probe, started_at)
            moved = False
        except SubscriptionsMoved:
            continue
    probe(phase, Moment.AFTER_RECORDING)


def _act_and_record(drive: Drive, phase: Phase, step: Step, probe: Probe, started_at: float) -> None:
    step.effect(drive)
    drive.revision = None
    with transaction.atomic():
        step.commit(drive)
        probe(phase, Moment.AFTER_EFFECT)
        operation = _record(drive, phase, started_at)
        step.last(drive)
    drive.operation = operation


def _record(drive: Drive, phase: Phase, started_at: float) -> OperationView:
    """Move on to a phase, in the transaction of its effects on the metadata."""
    revision = drive.revision or topics.raise_revision(drive.operation.incarnation)
    elapsed_ms = round((perf_counter() - started_at) * 1000, 3)
    operation = replace(
        drive.operation,
        phase=phase,
        timings={**drive.operation.timings, phase.value: elapsed_ms},
        results=drive.results,
        epoch=drive.epoch,
    )
    if phase is Phase.NOTIFIED:
        store.succeed(drive.lease, operation)
    else:
        store.advance(drive.lease, operation, seconds=settings.SCALABLE_OPERATION_LEASE_SECONDS)
    announce_step(operation, revision)
    return operation


def _refuse_endless_attempts(drive: Drive) -> None:
    """Give up on what has cost so many runners their lives that none of them could record an error."""
    if drive.operation.attempts > MAX_ATTEMPTS and may_abort(drive.operation.phase):
        raise AttemptsExhausted(f"begun {drive.operation.attempts} times, and no runner came to an end")


def _stop(drive: Drive, error: Exception) -> None:
    """Keep the error: a hopeless operation ends before the point of no return, others are tried again."""
    attempts = drive.operation.attempts
    hopeless = isinstance(error, HOPELESS) or attempts >= MAX_ATTEMPTS
    if hopeless and may_abort(drive.operation.phase):
        _fail(drive, _described(error))
        return
    store.postpone(drive.lease, error=_described(error), seconds=min(2**attempts, MAX_RETRY_SECONDS))


def _fail(drive: Drive, error: dict[str, Any]) -> None:
    with transaction.atomic():
        revision = topics.raise_revision(drive.operation.incarnation)
        store.fail(drive.lease, error)
        announce_step(drive.operation, revision)
    delete_children(drive.operation)


def _described(error: Exception) -> dict[str, Any]:
    if isinstance(error, ScalableError):
        return error.to_json()
    reason = f"{type(error).__name__}: {error}"[:MAX_REASON_CHARACTERS]
    return {"code": "internal", "reason": reason, "fields": {}, "hint": "The runner's log has more."}
