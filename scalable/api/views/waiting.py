"""How requests wait for the end of a split or merge: bounded, and without a database connection."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.conf import settings
from django.db import connections
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from scalable.api.hub import hub, operation_key
from scalable.domain.errors import (
    OperationAborted,
    OperationNotFound,
    SegmentClaimed,
    TooManyRequests,
    TopicDeleted,
    error_from_json,
)
from scalable.domain.names import TopicName
from scalable.domain.operations import Outcome
from scalable.services import scaling
from scalable.services.scaling import OperationView

WAITING_REQUESTS_MAX = 64
RETRY_AFTER_SECONDS = 1.0
PREFERENCE_HEADER = "Preference-Applied"
RESPOND_ASYNC = "respond-async"

_places = threading.BoundedSemaphore(WAITING_REQUESTS_MAX)


def answer_operation(request: Request, start: Callable[[], OperationView]) -> Response:
    """Start an operation and answer its end (204), or its address at once or when the wait is over (202).

    Raises what `start` raises, the error of an operation that failed, OperationAborted, TooManyRequests, and
    TopicDeleted when the topic went meanwhile, and its operations with it.
    """
    if prefers_async(request):
        return _accepted(request, start(), preference_applied=True)
    with _place():
        operation = start()
        try:
            latest = _await_end(operation)
        except OperationNotFound:
            raise TopicDeleted(topic=str(operation.topic)) from None
    if latest.outcome is None:
        return _accepted(request, latest)
    _raise_failure(latest)
    return Response(status=204)


def prefers_async(request: Request) -> bool:
    """Tell whether the request carries `Prefer: respond-async` (RFC 7240)."""
    preferences = str(request.headers.get("Prefer", "")).split(",")
    return any(each.partition(";")[0].strip().lower() == RESPOND_ASYNC for each in preferences)


def when_unclaimed(request: Request, name: TopicName, act: Callable[[], object]) -> None:
    """Do what a topic's unfinished operations refuse, once they have ended.

    Waits as a split does, without a connection; raises SegmentClaimed when that is over or was not wanted,
    TooManyRequests, and what `act` raises.
    """
    deadline = time.monotonic() + settings.SCALABLE_OPERATION_WAIT_SECONDS
    while True:
        try:
            act()
            return
        except SegmentClaimed as claimed:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0 or prefers_async(request):
                raise
            with _place():
                hub.wait_blocking(
                    operation_key(claimed.operation_id),
                    timeout_seconds=left_seconds,
                    predicate=partial(_ended, name, claimed.operation_id),
                )


def _ended(name: TopicName, operation_id: str) -> bool | None:
    try:
        operation = scaling.get_operation(name=name, operation_id=operation_id)
    except OperationNotFound:  # gone with its topic
        return True
    finally:
        connections.close_all()
    return operation.outcome is not None or None


@contextmanager
def _place() -> Iterator[None]:
    # Taken before the operation is written down: a request that is refused has changed nothing.
    if not _places.acquire(blocking=False):
        raise TooManyRequests(limit=WAITING_REQUESTS_MAX, retry_after_seconds=RETRY_AFTER_SECONDS)
    try:
        yield
    finally:
        _places.release()


def _await_end(started: OperationView) -> OperationView:
    """The operation once it ended, or as it is when the wait is over; raises OperationNotFound."""
    finished = hub.wait_blocking(
        operation_key(started.operation_id),
        timeout_seconds=settings.SCALABLE_OPERATION_WAIT_SECONDS,
        predicate=partial(_finished, started),
    )
    return finished or scaling.get_operation(name=started.topic, operation_id=started.operation_id)


def _finished(started: OperationView) -> OperationView | None:
    operation = scaling.get_operation(name=started.topic, operation_id=started.operation_id)
    connections.close_all()
    return operation if operation.outcome is not None else None


def _raise_failure(operation: OperationView) -> None:
    if operation.outcome is Outcome.ABORTED:
        raise OperationAborted(operation_id=operation.operation_id)
    if operation.outcome is Outcome.FAILED:
        raise error_from_json(operation.error or {})


def _accepted(request: Request, operation: OperationView, *, preference_applied: bool = False) -> Response:
    name = operation.topic
    path = {"tenant": name.tenant, "namespace": name.namespace, "topic": name.name}
    location = reverse("operation", kwargs={**path, "operation_id": operation.operation_id}, request=request)
    headers = {"Location": location}
    if preference_applied:
        headers[PREFERENCE_HEADER] = RESPOND_ASYNC
    return Response(operation.to_json(), status=202, headers=headers)
