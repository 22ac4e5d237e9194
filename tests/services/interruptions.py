"""Interrupting a driver at a point of its way, and what must hold afterwards whatever happened."""

from collections.abc import Callable

from scalable.domain.operations import Phase
from scalable.models import Operation
from scalable.services.driver import Moment, Probe, drive_operation
from scalable.services.scaling import OperationView
from scalable.services.topics import TopicView
from tests.services.mortal import Crash
from tests.topology import append_everywhere, layout_of, read_all, store_ids


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
