"""Changes of a layout as durable operations: kinds, phases, and the one table of transitions between them.

A data plane inside the metadata database commits an operation in one step (PLANNED, COMMITTED, NOTIFIED);
for one outside it every effect is a phase of its own. TERMINATING is recorded before the first parent is
terminated. It is the point of no return, from which an operation only goes forward.
"""

from __future__ import annotations

from enum import StrEnum


class OperationKind(StrEnum):
    """What an operation does to the layout."""

    SPLIT = "SPLIT"
    MERGE = "MERGE"
    REBUCKET = "REBUCKET"


class Phase(StrEnum):
    """What is recorded as done; the effect of the next phase may have happened without being recorded."""

    PLANNED = "PLANNED"
    CHILDREN_CREATED = "CHILDREN_CREATED"
    TERMINATING = "TERMINATING"
    PARENTS_TERMINATED = "PARENTS_TERMINATED"
    COMMITTED = "COMMITTED"
    NOTIFIED = "NOTIFIED"


class Outcome(StrEnum):
    """How an operation ended."""

    SUCCEEDED = "SUCCEEDED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"


TRANSITIONS: dict[Phase, tuple[Phase, bool]] = {
    # phase:                  (next phase,               may the operation be aborted here?)
    Phase.PLANNED: (Phase.CHILDREN_CREATED, True),
    Phase.CHILDREN_CREATED: (Phase.TERMINATING, True),
    Phase.TERMINATING: (Phase.PARENTS_TERMINATED, False),
    Phase.PARENTS_TERMINATED: (Phase.COMMITTED, False),
    Phase.COMMITTED: (Phase.NOTIFIED, False),
}
TRANSACTIONAL_NEXT: dict[Phase, Phase] = {
    Phase.PLANNED: Phase.COMMITTED,
    Phase.COMMITTED: Phase.NOTIFIED,
}


def next_phase(phase: Phase, transactional: bool) -> Phase | None:
    """Give the phase that follows, or None after the last.

    An operation that began on a port outside the metadata database goes through all phases to its end.
    """
    if transactional and phase in TRANSACTIONAL_NEXT:
        return TRANSACTIONAL_NEXT[phase]
    step = TRANSITIONS.get(phase)
    return step[0] if step else None


def may_abort(phase: Phase) -> bool:
    """Tell whether the operation has not yet passed the point of no return."""
    step = TRANSITIONS.get(phase)
    return step is not None and step[1]
