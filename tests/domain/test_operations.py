"""The phases of operations: every path ends, and nothing turns back behind the point of no return."""

import pytest

from scalable.domain.operations import TRANSITIONS, Phase, may_abort, next_phase


def walk(phase: Phase, *, transactional: bool) -> list[Phase]:
    path = [phase]
    while (following := next_phase(path[-1], transactional)) is not None:
        path.append(following)
    return path


def test_a_port_outside_the_metadata_database_goes_through_every_phase() -> None:
    assert walk(Phase.PLANNED, transactional=False) == list(Phase)


def test_a_transactional_port_commits_in_one_step() -> None:
    assert walk(Phase.PLANNED, transactional=True) == [Phase.PLANNED, Phase.COMMITTED, Phase.NOTIFIED]


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("transactional", [True, False])
def test_every_phase_leads_to_the_end(phase: Phase, transactional: bool) -> None:
    path = walk(phase, transactional=transactional)
    assert path[-1] is Phase.NOTIFIED
    assert len(set(path)) == len(path)


def test_abort_is_allowed_exactly_before_the_first_terminate_may_have_happened() -> None:
    assert [phase for phase in Phase if may_abort(phase)] == [Phase.PLANNED, Phase.CHILDREN_CREATED]


def test_no_phase_behind_the_point_of_no_return_leads_before_it() -> None:
    for phase, (following, abortable) in TRANSITIONS.items():
        assert abortable or not may_abort(following), phase
