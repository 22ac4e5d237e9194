"""Operations that the autoscaler asked for in vain: they are not asked for again at once, and ever later.

An abort is somebody's word: it holds longer than a failure, which may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scalable.domain.decision import Guard, GuardCode
from scalable.domain.operations import Outcome

FIRST_WAIT_SECONDS: Mapping[Outcome, float] = {Outcome.FAILED: 60.0, Outcome.ABORTED: 600.0}
LONGEST_WAIT_SECONDS = 3_600.0
REMEMBERED_SECONDS = 86_400
"""So long ended operations count: the longest wait fits into it many times."""

_CODES: Mapping[Outcome, GuardCode] = {
    Outcome.FAILED: GuardCode.OPERATION_FAILED,
    Outcome.ABORTED: GuardCode.OPERATION_ABORTED,
}


@dataclass(frozen=True, slots=True)
class Setback:
    """How the last operation of a kind on a segment ended and when, and how many came to nothing so far."""

    outcome: Outcome
    count: int
    at_ms: int

    @property
    def wait_seconds(self) -> float:
        """Give how long the same is not asked for again: twice as long each time, an hour at most."""
        doublings = min(self.count - 1, 10)
        return min(FIRST_WAIT_SECONDS[self.outcome] * (1 << doublings), LONGEST_WAIT_SECONDS)

    def guard(self, rule: str, segment_id: int, now_ms: int) -> Guard | None:
        """Give the guard that holds the same back on this segment, or None once the wait is over."""
        until_ms = self.at_ms + round(self.wait_seconds * 1000)
        if now_ms >= until_ms:
            return None
        waited = (now_ms - self.at_ms) / 1000
        times = f"{self.count} of the last day came to nothing"
        code = _CODES[self.outcome]
        return Guard(code, rule, (segment_id,), waited, self.wait_seconds, until_ms, times)


Setbacks = Mapping[tuple[str, int], Setback]
"""By kind of operation and segment."""
