"""When a process that died is started again."""

from dataclasses import dataclass

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0


@dataclass(frozen=True)
class Backoff:
    """Delays that double with each failure in a row; a run of `STEADY_SECONDS` starts over."""

    failures: int = 0

    def after_run(self, seconds: float) -> "Backoff":
        """Return the state after a run that ended by itself."""
        return Backoff(1 if seconds >= STEADY_SECONDS else self.failures + 1)

    @property
    def delay_seconds(self) -> float:
        doublings = max(0, self.failures - 1)
        return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(doublings, 16))
